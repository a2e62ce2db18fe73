// Operands of the 36 products that make Winograd's gradient of the weight
// (winograd_gradient.cpp): panels of WIDTH channels (panels.clh) along the
// tiles. SIZE is 6 for tiles of the image, 4 for tiles of the output's gradient.

#include "winograd.clh"
#include "panels.clh"
#include "transpose_vectors.clh"
#include "image_lines.clh"
#include "prefetch.clh"

#define TILE_PARAMETERS                                                     \
  CONST_TENSOR(storage_t, image), TENSOR(compute_t, panels), const int top, \
      const int left, const int extent, TILES_PARAMETERS

#ifndef SIZE
#define SIZE 6
#endif

#if SIZE == 6
#define transform_tile transform_input
#else
#define transform_tile transform_output_gradient
#endif

#ifndef IS_GPU
#define TILES 16  // transformed at a time
#define COLUMNS_OF_TILES (4 * TILES + 16)

// `count` columns of a line from `column` on, each a vector of `lanes`
// channels; zero outside of the image. `at` is the offset of column 0.
static inline void load_channels(const global storage_t *in, lanes_t *line, int at,
                                 int column, int count, int lanes, int width,
                                 int channel_stride, int w_stride, int extent) {
  if (channel_stride == 1) {
    for (int x = 0; x < count; ++x) {
      line[x] = (uint)(column + x) < (uint)width
                    ? load_lanes(in, at + (column + x) * w_stride, 1, lanes)
                    : 0;
    }
    return;
  }
  for (int x = 0; x < count; x += LANES) {
    lanes_t rows[LANES];
#pragma unroll
    for (int l = 0; l < LANES; ++l) {
      const int row = at + min(l, lanes - 1) * channel_stride;
      rows[l] = load_columns(in, row, column + x, width, w_stride, extent);
      PREFETCH(in + row + (column + x + 2 * LANES) * w_stride);
    }
    transpose(rows);
#pragma unroll
    for (int l = 0; l < LANES; ++l) {
      line[x + l] = rows[l];
    }
  }
}

// The channels that WIDTH leaves of a vector share its panel, others the next.
#if WIDTH >= LANES
#define STORE_CHANNELS(value, to) vstore16(value, 0, to);
#else
#define STORE_CHANNELS(value, to)            \
  vstore8(value.lo, 0, to);                  \
  if (has_next) {                            \
    vstore8(value.hi, 0, (to) + panel_size); \
  }
#endif

// One work-item: a row of tiles of LANES channels.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_tiles_cpu(TILE_PARAMETERS) {
  const int channel = get_global_id(0) * LANES;
  const int row = get_global_id(1);
  const int lanes = min(LANES, channels - channel);
  const int panel = channel / WIDTH;
  const int panel_count = (channels + WIDTH - 1) / WIDTH;
  const int has_next = panel + 1 < panel_count;
  const size_t panel_size = (size_t)tiles * WIDTH;
  const size_t frequency_stride = panel_count * panel_size;
  const tile_t tile = tile_at((first + row) * tile_columns, tile_rows, tile_columns);
  const int h = tile.row * 4 - top;
  const int at = tile.image * batch_stride + channel * channel_stride;
  global compute_t *out = POINTER(panels) + panel * panel_size +
                          (size_t)row * tile_columns * WIDTH + channel % WIDTH;
  lanes_t lines[6][COLUMNS_OF_TILES];
  for (int begin = 0; begin < tile_columns; begin += TILES) {
    const int count = min(TILES, tile_columns - begin);
    const int columns = 4 * count + SIZE - 4;
    for (int y = 0; y < SIZE; ++y) {
      if (lanes > 0 && (uint)(h + y) < (uint)height) {
        load_channels(POINTER(image), lines[y], at + (h + y) * h_stride, begin * 4 - left,
                      columns, lanes, width, channel_stride, w_stride, extent);
      } else {
        for (int x = 0; x < columns; ++x) {
          lines[y][x] = 0;
        }
      }
    }
    for (int x = 0; x < columns; ++x) {
      lanes_t d[SIZE], o[6];
#pragma unroll
      for (int y = 0; y < SIZE; ++y) {
        d[y] = lines[y][x];
      }
      transform_tile(d, o);
#pragma unroll
      for (int y = 0; y < 6; ++y) {
        lines[y][x] = o[y];
      }
    }
    for (int t = 0; t < count; ++t) {
      for (int y = 0; y < 6; ++y) {
        lanes_t o[6];
        transform_tile(lines[y] + 4 * t, o);
        global compute_t *to = out + y * 6 * frequency_stride + (begin + t) * WIDTH;
#pragma unroll
        for (int x = 0; x < 6; ++x) {
          STORE_CHANNELS(o[x], to + x * frequency_stride)
        }
      }
    }
  }
}

#else
// One work-item: one tile of one channel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void winograd_tiles_gpu(TILE_PARAMETERS) {
  const int channel = get_global_id(0);
  const int k = get_global_id(1);
  const int panel_count = (channels + WIDTH - 1) / WIDTH;
  const tile_t tile = tile_at(first * tile_columns + k, tile_rows, tile_columns);
  const int row = tile.row * 4 - top;
  const int column = tile.column * 4 - left;
  const global storage_t *in =
      POINTER(image) + tile.image * batch_stride + channel * channel_stride;
  lanes_t lines[6][SIZE];
#pragma unroll
  for (int x = 0; x < SIZE; ++x) {
    lanes_t d[SIZE], o[6];
#pragma unroll
    for (int y = 0; y < SIZE; ++y) {
      d[y] = channel < channels && (uint)(row + y) < (uint)height &&
                     (uint)(column + x) < (uint)width
                 ? LOAD(in, (row + y) * h_stride + (column + x) * w_stride)
                 : 0;
    }
    transform_tile(d, o);
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      lines[y][x] = o[y];
    }
  }
  const size_t panel_size = (size_t)tiles * WIDTH;
  global compute_t *out = POINTER(panels) + channel / WIDTH * panel_size +
                          (size_t)k * WIDTH + channel % WIDTH;
#pragma unroll
  for (int y = 0; y < 6; ++y) {
    lanes_t o[6];
    transform_tile(lines[y], o);
#pragma unroll
    for (int x = 0; x < 6; ++x) {
      out[(y * 6 + x) * panel_count * panel_size] = o[x];
    }
  }
}
#endif
