// Winograd's transforms on CPUs where pixels of a channel follow each other: as in
// winograd_channels.cl between images and rows of channels, but 16 channels of a
// segment of a row of tiles are transposed in registers on the way.
//
// One work-item: a row of tiles of BLOCKS vectors of channels.

#include "winograd_lanes.clh"
#include "panels.clh"
#include "transpose_vectors.clh"
#include "image_lines.clh"
#include "prefetch.clh"

#define BLOCKS 8
// Tiles of a segment: 46 columns of input are 3 vectors, 64 columns of output 4.
#define INPUT_TILES 11
#define INPUT_COLUMNS (3 * LANES)
#define OUTPUT_TILES 16
#define OUTPUT_COLUMNS (4 * LANES)

// The last vector overlaps its neighbour; fewer channels than a vector leave lanes.
#define FOR_CHANNELS(c)                                                                         \
  for (int block = get_global_id(1) * BLOCKS, c = min(block * LANES, max(channels - LANES, 0)); \
       block < min((int)(get_global_id(1) + 1) * BLOCKS, (channels + LANES - 1) / LANES);       \
       ++block, c = min(block * LANES, max(channels - LANES, 0)))

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_input_planes(CONST_TENSOR(storage_t, input), TENSOR(compute_t, matrices),
                           const int top, const int left, const int extent,
                           const int row_stride, const int frequency_stride,
                           TILES_PARAMETERS) {
  const int first_tile = get_global_id(0) * tile_columns;
  const tile_t tile = tile_at(first + first_tile, tile_rows, tile_columns);
  const int row = tile.row * 4 - top;
  const int valid = min(LANES, channels);
  lanes_t pixels[6][INPUT_COLUMNS];
  FOR_CHANNELS(c)
    for (int begin = 0; begin < tile_columns; begin += INPUT_TILES) {
      const int count = min(INPUT_TILES, tile_columns - begin);
      const int column = begin * 4 - left;
      for (int y = 0; y < 6; ++y) {
        const int at = tile.image * batch_stride + c * channel_stride + (row + y) * h_stride;
        for (int x = 0; x < count * 4 + 2; x += LANES) {
          const int from = at + column + x;
          lanes_t a[LANES];
          if ((uint)(row + y) >= (uint)height || column + x >= width) {
#pragma unroll
            for (int l = 0; l < LANES; ++l) a[l] = 0;
          } else if (valid == LANES && w_stride == 1 && from >= 0 &&
                     from + (LANES - 1) * channel_stride + LANES <= extent) {
            // Read across the ends of rows.
            const PLACES place = column + x + FIRST_PLACES;
            const PLACES is_inside = (place >= 0) & (place < width);
#pragma unroll
            for (int l = 0; l < LANES; ++l) {
              const global storage_t *plane = POINTER(input) + from + l * channel_stride;
              a[l] = select((lanes_t)0, CONCAT(load_lanes_, DTYPE)(plane), is_inside);
              // What the next row of tiles reads, which is far away.
              if (y >= 2) PREFETCH(plane + 4 * h_stride);
            }
            transpose(a);
          } else {
            for (int l = 0; l < LANES; ++l) {
              a[l] = l < valid ? load_columns(POINTER(input), at + l * channel_stride,
                                              column + x, width, w_stride, extent)
                               : (lanes_t)0;
            }
            transpose(a);
          }
#pragma unroll
          for (int l = 0; l < LANES; ++l) pixels[y][x + l] = a[l];
        }
      }
      for (int t = 0; t < count; ++t) {
        lanes_t half_way[6][6];
#pragma unroll
        for (int x = 0; x < 6; ++x) {
          lanes_t d[6], o[6];
#pragma unroll
          for (int y = 0; y < 6; ++y) d[y] = pixels[y][4 * t + x];
          transform_input(d, o);
#pragma unroll
          for (int y = 0; y < 6; ++y) half_way[y][x] = o[y];
        }
        global compute_t *to =
            POINTER(matrices) + (size_t)(first_tile + begin + t) * row_stride + c;
        store_input_tile(to, frequency_stride, half_way);
      }
    }
}

// `count` pixels from `at` on to 16 planes, or `valid` of them.
static inline void store_planes(global storage_t *to, const lanes_t *pixels, int count,
                                int valid, int channel_stride, int w_stride) {
  for (int x = 0; x < count; x += LANES) {
    // The last vector overlaps its neighbour.
    const int from = max(min(x, count - LANES), 0);
    lanes_t a[LANES];
#pragma unroll
    for (int l = 0; l < LANES; ++l) a[l] = pixels[from + l];
    transpose(a);
    if (w_stride == 1 && count >= LANES) {
      for (int l = 0; l < valid; ++l) {
        global storage_t *line = to + l * channel_stride + from;
        store_full_lanes_nt(line, a[l]);
      }
    } else {
      for (int l = 0; l < valid; ++l)
        store_lanes(to, l * channel_stride + from * w_stride, w_stride, count - from, a[l]);
    }
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_output_planes(CONST_TENSOR(compute_t, products), CONST_TENSOR(storage_t, bias),
                            TENSOR(storage_t, output), const int has_bias,
                            const int bias_stride, const int row_stride,
                            const int frequency_stride, TILES_PARAMETERS) {
  const int first_tile = get_global_id(0) * tile_columns;
  const tile_t tile = tile_at(first + first_tile, tile_rows, tile_columns);
  const int valid = min(LANES, channels);
  const int rows = min(4, height - tile.row * 4);
  // Rows of one segment follow each other in memory.
  const int is_run = h_stride == width && w_stride == 1 && tile_columns <= OUTPUT_TILES;
  const int pitch = is_run ? width : OUTPUT_COLUMNS;
  lanes_t pixels[4 * OUTPUT_COLUMNS + LANES];
  FOR_CHANNELS(c) {
    const lanes_t added =
        has_bias ? load_lanes(POINTER(bias), c * bias_stride, bias_stride, valid)
                 : (lanes_t)0;
    for (int begin = 0; begin < tile_columns; begin += OUTPUT_TILES) {
      const int count = min(OUTPUT_TILES, tile_columns - begin);
      const int columns = min(count * 4, width - begin * 4);
      for (int t = 0; t < count; ++t) {
        const global compute_t *in =
            POINTER(products) + (size_t)(first_tile + begin + t) * row_stride + c;
        lanes_t half_way[4][6];
        load_output_tile(in, frequency_stride, half_way);
#pragma unroll
        for (int y = 0; y < 4; ++y) {
          lanes_t o[4];
          transform_output(half_way[y], o);
#pragma unroll
          for (int x = 0; x < 4; ++x) {
            if (y < rows && 4 * t + x < columns) {
              pixels[y * pitch + 4 * t + x] = o[x] + added;
            }
          }
        }
      }
      global storage_t *to = POINTER(output) + (size_t)tile.image * batch_stride +
                             c * channel_stride + tile.row * 4 * h_stride +
                             begin * 4 * w_stride;
      if (is_run) {
        store_planes(to, pixels, rows * columns, valid, channel_stride, w_stride);
      } else {
        for (int y = 0; y < rows; ++y) {
          store_planes(to + y * h_stride, pixels + y * pitch, columns, valid, channel_stride,
                       w_stride);
        }
      }
    }
  }
}
