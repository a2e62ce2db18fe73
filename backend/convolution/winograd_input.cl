// Images to the right operands of Winograd's 36 products: panels of WIDTH tiles
// (panels.clh), for the tiles from `first` on.

#include "winograd.clh"
#include "panels.clh"
#include "transpose_vectors.clh"
#include "image_lines.clh"
#include "fetch.clh"

#define INPUT_PARAMETERS                                                       \
  CONST_TENSOR(storage_t, input), TENSOR(compute_t, panels), const int top,   \
      const int left, const int extent, TILES_PARAMETERS

#ifndef IS_GPU
#define COLUMNS_OF_PANEL (4 * WIDTH)
// Every fourth column, from each of the first four.
static inline void load_columns_of_tiles(lanes_t *columns, const compute_t *line) {
  lanes_t vectors[4];
  lanes_t half_way[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    vectors[i] = vload16(i, line);
  }
  separate(half_way, vectors, 4);
  separate(columns, half_way, 4);
}

// LANES transformed columns `o` of six rows to column `to` of `lines` and of
// `shifted`, where they lie a tile before. Not a function: in one, Intel's compiler
// stores number by number.
#define STORE_COLUMNS(lines, shifted)                                          \
  _Pragma("unroll") for (int y = 0; y < 6; ++y) {                             \
    if (to < COLUMNS_OF_PANEL) vstore16(o[y], 0, lines[y] + to);              \
    if (x == 0) {                                                             \
      vstore4(o[y].s4567, 0, shifted[y] + to);                                \
      vstore8(o[y].hi, 0, shifted[y] + to + 4);                               \
    } else {                                                                  \
      vstore16(o[y], 0, shifted[y] + to - 4);                                 \
    }                                                                         \
  }

// The frequencies of LANES tiles from their columns.
static inline void write_panels(global compute_t *out, const compute_t *lines,
                                const compute_t *shifted, int line_stride,
                                size_t frequency_stride) {
  for (int y = 0; y < 6; ++y) {
    lanes_t d[8], o[6];
    load_columns_of_tiles(d, lines + y * line_stride);
    load_columns_of_tiles(d + 4, shifted + y * line_stride);
    transform_input(d, o);
#pragma unroll
    for (int x = 0; x < 6; ++x) {
      vstore16(o[x], 0, out + (y * 6 + x) * frequency_stride);
    }
  }
}

// One work-item: a panel's tiles of BLOCK channels. The columns of each image
// row are transformed while they follow each other in memory, into lines that
// hold the tiles of a panel side by side (and once more shifted by a tile, for
// the two columns that neighbours share); then the lines, a vector of tiles at
// a time.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_input_cpu(INPUT_PARAMETERS) {
  const int panel = get_global_id(0);
  const int begin = get_global_id(1) * BLOCK;
  const int end = min(channels, begin + BLOCK);
  const int count = min(WIDTH, tiles - panel * WIDTH);
  const tile_t first_tile = tile_at(first + panel * WIDTH, tile_rows, tile_columns);
  const size_t frequency_stride =
      (size_t)((tiles + WIDTH - 1) / WIDTH) * channels * WIDTH;
  compute_t lines[6][COLUMNS_OF_PANEL + LANES];
  compute_t shifted[6][COLUMNS_OF_PANEL + LANES];
  for (int channel = begin; channel < end; ++channel) {
    tile_t tile = first_tile;
    for (int place = 0; place < count;) {
      const int run = min(tile_columns - tile.column, count - place);
      const int row = tile.row * 4 - top;
      const int column = tile.column * 4 - left;
      const int at = tile.image * batch_stride + channel * channel_stride;
      for (int x = 0; x < run * 4 + 2; x += LANES) {
        lanes_t d[6], o[6];
#pragma unroll
        for (int y = 0; y < 6; ++y) {
          d[y] = 0;
          if ((uint)(row + y) < (uint)height) {
            d[y] = load_columns(POINTER(input), at + (row + y) * h_stride, column + x,
                                width, w_stride, extent);
            // The next channel's, which is far away.
            fetch(POINTER(input) + at + channel_stride + (row + y) * h_stride +
                  (column + x) * w_stride);
          }
        }
        transform_input(d, o);
        const int to = place * 4 + x;
        STORE_COLUMNS(lines, shifted)
      }
      place += run;
      tile = next_row(tile, tile_rows);
    }
    for (int x = count * 4; x < COLUMNS_OF_PANEL; ++x) {
      for (int y = 0; y < 6; ++y) {
        lines[y][x] = shifted[y][x] = 0;
      }
    }
    global compute_t *out = POINTER(panels) + ((size_t)panel * channels + channel) * WIDTH;
    for (int t = 0; t < WIDTH; t += LANES) {
      write_panels(out + t, lines[0] + 4 * t, shifted[0] + 4 * t, COLUMNS_OF_PANEL + LANES,
                   frequency_stride);
    }
  }
}

#else
// One work-item: one tile of one channel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void winograd_input_gpu(INPUT_PARAMETERS) {
  const int t = get_global_id(0);
  const int channel = get_global_id(1);
  const int panel_count = (tiles + WIDTH - 1) / WIDTH;
  if (t >= panel_count * WIDTH) {
    return;
  }
  const tile_t tile = tile_at(first + t, tile_rows, tile_columns);
  const int row = tile.row * 4 - top;
  const int column = tile.column * 4 - left;
  const global storage_t *in =
      POINTER(input) + tile.image * batch_stride + channel * channel_stride;
  compute_t lines[6][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    compute_t d[6], o[6];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      d[y] = t < tiles && (uint)(row + y) < (uint)height && (uint)(column + x) < (uint)width
                 ? LOAD(in, (row + y) * h_stride + (column + x) * w_stride)
                 : 0;
    }
    transform_input(d, o);
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      lines[y][x] = o[y];
    }
  }
  const size_t frequency_stride = (size_t)panel_count * channels * WIDTH;
  global compute_t *out = POINTER(panels) +
      ((size_t)(t / WIDTH) * channels + channel) * WIDTH + t % WIDTH;
#pragma unroll
  for (int y = 0; y < 6; ++y) {
    compute_t o[6];
    transform_input(lines[y], o);
    global compute_t *line = out + y * 6 * frequency_stride;
#pragma unroll
    for (int x = 0; x < 6; ++x) {
      line[x * frequency_stride] = o[x];
    }
  }
}
#endif
