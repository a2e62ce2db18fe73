// Winograd's 36 products back to outputs, plus a bias: `products` holds, for
// each frequency, a row of tiles for each channel.

#include "winograd.clh"
#include "panels.clh"
#include "lanes.clh"

#define OUTPUT_PARAMETERS                                                      \
  CONST_TENSOR(compute_t, products), CONST_TENSOR(storage_t, bias),           \
      TENSOR(storage_t, output), const int channels, const int first_tile,    \
      const int tiles, const int tile_rows, const int tile_columns,           \
      const int height, const int width, const int has_bias,                  \
      const int bias_stride, const int row_stride,                            \
      const int frequency_stride, const int batch_stride,                     \
      const int channel_stride, const int h_stride, const int w_stride

#ifndef IS_GPU
// Column after column of the tiles in four vectors.
#define INTERLEAVE(line, y0, y1, y2, y3)                \
  {                                                     \
    lanes_t low_even, low_odd, high_even, high_odd, all; \
    low_even.even = y0.lo;                              \
    low_even.odd = y2.lo;                               \
    low_odd.even = y1.lo;                               \
    low_odd.odd = y3.lo;                                \
    high_even.even = y0.hi;                             \
    high_even.odd = y2.hi;                              \
    high_odd.even = y1.hi;                              \
    high_odd.odd = y3.hi;                               \
    all.even = low_even.lo;                             \
    all.odd = low_odd.lo;                               \
    vstore16(all, 0, line);                             \
    all.even = low_even.hi;                             \
    all.odd = low_odd.hi;                               \
    vstore16(all, 1, line);                             \
    all.even = high_even.lo;                            \
    all.odd = high_odd.lo;                              \
    vstore16(all, 2, line);                             \
    all.even = high_even.hi;                            \
    all.odd = high_odd.hi;                              \
    vstore16(all, 3, line);                             \
  }

// One work-item: WIDTH tiles of BLOCK channels.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_output_cpu(OUTPUT_PARAMETERS) {
  const int panel = get_global_id(0);
  const int begin = get_global_id(1) * BLOCK;
  const int end = min(channels, begin + BLOCK);
  const int count = min(WIDTH, tiles - panel * WIDTH);
  const tile_t first = tile_at(first_tile + panel * WIDTH, tile_rows, tile_columns);
  compute_t lines[4][4 * WIDTH];
  for (int channel = begin; channel < end; ++channel) {
    const compute_t offset = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
    const global compute_t *in =
        POINTER(products) + (size_t)channel * row_stride + panel * WIDTH;
    for (int t = 0; t < count; t += LANES) {
      lanes_t half_way[4][6];
#pragma unroll
      for (int x = 0; x < 6; ++x) {
        const global compute_t *line = in + (size_t)x * frequency_stride + t;
        const size_t step = 6 * (size_t)frequency_stride;
        const lanes_t m0 = vload16(0, line), m1 = vload16(0, line + step);
        const lanes_t m2 = vload16(0, line + 2 * step), m3 = vload16(0, line + 3 * step);
        const lanes_t m4 = vload16(0, line + 4 * step), m5 = vload16(0, line + 5 * step);
        lanes_t y0, y1, y2, y3;
        TRANSFORM_OUTPUT(lanes_t, m, y)
        half_way[0][x] = y0;
        half_way[1][x] = y1;
        half_way[2][x] = y2;
        half_way[3][x] = y3;
      }
#pragma unroll
      for (int y = 0; y < 4; ++y) {
        const lanes_t m0 = half_way[y][0], m1 = half_way[y][1], m2 = half_way[y][2];
        const lanes_t m3 = half_way[y][3], m4 = half_way[y][4], m5 = half_way[y][5];
        lanes_t y0, y1, y2, y3;
        TRANSFORM_OUTPUT(lanes_t, m, y)
        y0 += offset;
        y1 += offset;
        y2 += offset;
        y3 += offset;
        INTERLEAVE(lines[y] + 4 * t, y0, y1, y2, y3)
      }
    }
    tile_t tile = first;
    for (int place = 0; place < count;) {
      const int run = min(tile_columns - tile.column, count - place);
      const int column = tile.column * 4;
      const int columns = min(run * 4, width - column);
      for (int y = 0; y < min(4, height - tile.row * 4); ++y) {
        const size_t at = (size_t)tile.image * batch_stride + channel * channel_stride +
                          (tile.row * 4 + y) * h_stride + column * w_stride;
        for (int x = 0; x < columns; x += LANES) {
          store_lanes(POINTER(output), at + x * w_stride, w_stride, columns - x,
                      vload16(0, lines[y] + place * 4 + x));
        }
      }
      place += run;
      tile = next_row(tile, tile_rows);
    }
  }
}

#else
// One work-item: one tile of one channel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void winograd_output_gpu(OUTPUT_PARAMETERS) {
  const int t = get_global_id(0);
  const int channel = get_global_id(1);
  if (t >= tiles) {
    return;
  }
  const compute_t offset = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
  const tile_t tile = tile_at(first_tile + t, tile_rows, tile_columns);
  const global compute_t *in = POINTER(products) + (size_t)channel * row_stride + t;
  compute_t half_way[4][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    const global compute_t *line = in + (size_t)x * frequency_stride;
    const size_t step = 6 * (size_t)frequency_stride;
    const compute_t m0 = line[0], m1 = line[step], m2 = line[2 * step];
    const compute_t m3 = line[3 * step], m4 = line[4 * step], m5 = line[5 * step];
    compute_t y0, y1, y2, y3;
    TRANSFORM_OUTPUT(compute_t, m, y)
    half_way[0][x] = y0;
    half_way[1][x] = y1;
    half_way[2][x] = y2;
    half_way[3][x] = y3;
  }
  global storage_t *out = POINTER(output) + (size_t)tile.image * batch_stride +
                          channel * channel_stride;
#pragma unroll
  for (int y = 0; y < 4; ++y) {
    const compute_t m0 = half_way[y][0], m1 = half_way[y][1], m2 = half_way[y][2];
    const compute_t m3 = half_way[y][3], m4 = half_way[y][4], m5 = half_way[y][5];
    compute_t y0, y1, y2, y3;
    TRANSFORM_OUTPUT(compute_t, m, y)
    const compute_t values[4] = {y0, y1, y2, y3};
    const int row = tile.row * 4 + y;
    for (int x = 0; x < 4; ++x) {
      const int column = tile.column * 4 + x;
      if (row < height && column < width) {
        STORE(out, row * h_stride + column * w_stride, values[x] + offset);
      }
    }
  }
}
#endif
