// Images to the right operands of Winograd's 36 products: panels of WIDTH tiles
// (panels.clh), for the tiles from `first_tile` on.

#include "winograd.clh"
#include "panels.clh"
#include "lanes.clh"
#include "image_lines.clh"

#define INPUT_PARAMETERS                                                       \
  CONST_TENSOR(storage_t, input), TENSOR(compute_t, panels),                  \
      const int channels, const int first_tile, const int tiles,              \
      const int tile_rows, const int tile_columns, const int height,          \
      const int width, const int top, const int left, const int extent,       \
      const int batch_stride, const int channel_stride, const int h_stride,   \
      const int w_stride

#ifndef IS_GPU
#define COLUMNS_OF_PANEL (4 * WIDTH)

// Every fourth column, from each of the first four.
#define DEINTERLEAVE(line, x0, x1, x2, x3)                             \
  {                                                                    \
    const lanes_t a = vload16(0, line), b = vload16(1, line);          \
    const lanes_t c = vload16(2, line), d = vload16(3, line);          \
    const lanes_t even_ab = (lanes_t)(a.even, b.even);                 \
    const lanes_t even_cd = (lanes_t)(c.even, d.even);                 \
    const lanes_t odd_ab = (lanes_t)(a.odd, b.odd);                    \
    const lanes_t odd_cd = (lanes_t)(c.odd, d.odd);                    \
    x0 = (lanes_t)(even_ab.even, even_cd.even);                        \
    x1 = (lanes_t)(odd_ab.even, odd_cd.even);                          \
    x2 = (lanes_t)(even_ab.odd, even_cd.odd);                          \
    x3 = (lanes_t)(odd_ab.odd, odd_cd.odd);                            \
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
  const tile_t first = tile_at(first_tile + panel * WIDTH, tile_rows, tile_columns);
  const size_t frequency_stride =
      (size_t)((tiles + WIDTH - 1) / WIDTH) * channels * WIDTH;
  compute_t lines[6][COLUMNS_OF_PANEL + LANES];
  compute_t shifted[6][COLUMNS_OF_PANEL + LANES];
  for (int channel = begin; channel < end; ++channel) {
    tile_t tile = first;
    for (int place = 0; place < count;) {
      const int run = min(tile_columns - tile.column, count - place);
      const int row = tile.row * 4 - top;
      const int column = tile.column * 4 - left;
      const int at = tile.image * batch_stride + channel * channel_stride;
      for (int x = 0; x < run * 4 + 2; x += LANES) {
        lanes_t d[6];
#pragma unroll
        for (int y = 0; y < 6; ++y) {
          d[y] = 0;
          if ((uint)(row + y) < (uint)height) {
            d[y] = load_columns(POINTER(input), at + (row + y) * h_stride, column + x,
                                width, w_stride, extent);
          }
        }
        const lanes_t d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4], d5 = d[5];
        lanes_t o0, o1, o2, o3, o4, o5;
        TRANSFORM_INPUT(lanes_t, d, o)
        const lanes_t o[6] = {o0, o1, o2, o3, o4, o5};
        const int to = place * 4 + x;
#pragma unroll
        for (int y = 0; y < 6; ++y) {
          if (to < COLUMNS_OF_PANEL) {
            vstore16(o[y], 0, lines[y] + to);
          }
          if (x == 0) {
            vstore4(o[y].s4567, 0, shifted[y] + to);
            vstore8(o[y].hi, 0, shifted[y] + to + 4);
          } else {
            vstore16(o[y], 0, shifted[y] + to - 4);
          }
        }
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
      for (int y = 0; y < 6; ++y) {
        lanes_t d0, d1, d2, d3, d4, d5, unused_d6, unused_d7;
        DEINTERLEAVE(lines[y] + 4 * t, d0, d1, d2, d3)
        DEINTERLEAVE(shifted[y] + 4 * t, d4, d5, unused_d6, unused_d7)
        lanes_t o0, o1, o2, o3, o4, o5;
        TRANSFORM_INPUT(lanes_t, d, o)
        global compute_t *line = out + y * 6 * frequency_stride + t;
        vstore16(o0, 0, line);
        vstore16(o1, 0, line + frequency_stride);
        vstore16(o2, 0, line + 2 * frequency_stride);
        vstore16(o3, 0, line + 3 * frequency_stride);
        vstore16(o4, 0, line + 4 * frequency_stride);
        vstore16(o5, 0, line + 5 * frequency_stride);
      }
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
  const tile_t tile = tile_at(first_tile + t, tile_rows, tile_columns);
  const int row = tile.row * 4 - top;
  const int column = tile.column * 4 - left;
  const global storage_t *in =
      POINTER(input) + tile.image * batch_stride + channel * channel_stride;
  compute_t lines[6][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    compute_t d[6];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      d[y] = t < tiles && (uint)(row + y) < (uint)height && (uint)(column + x) < (uint)width
                 ? LOAD(in, (row + y) * h_stride + (column + x) * w_stride)
                 : 0;
    }
    const compute_t d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4], d5 = d[5];
    compute_t o0, o1, o2, o3, o4, o5;
    TRANSFORM_INPUT(compute_t, d, o)
    lines[0][x] = o0;
    lines[1][x] = o1;
    lines[2][x] = o2;
    lines[3][x] = o3;
    lines[4][x] = o4;
    lines[5][x] = o5;
  }
  const size_t frequency_stride = (size_t)panel_count * channels * WIDTH;
  global compute_t *out = POINTER(panels) +
      ((size_t)(t / WIDTH) * channels + channel) * WIDTH + t % WIDTH;
#pragma unroll
  for (int y = 0; y < 6; ++y) {
    const compute_t d0 = lines[y][0], d1 = lines[y][1], d2 = lines[y][2];
    const compute_t d3 = lines[y][3], d4 = lines[y][4], d5 = lines[y][5];
    compute_t o0, o1, o2, o3, o4, o5;
    TRANSFORM_INPUT(compute_t, d, o)
    global compute_t *line = out + y * 6 * frequency_stride;
    line[0] = o0;
    line[frequency_stride] = o1;
    line[2 * frequency_stride] = o2;
    line[3 * frequency_stride] = o3;
    line[4 * frequency_stride] = o4;
    line[5 * frequency_stride] = o5;
  }
}
#endif
