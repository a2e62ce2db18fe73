// Winograd's 36 products back to outputs, plus a bias: `products` holds, for
// each frequency, a row of tiles for each channel.

#include "winograd.clh"
#include "panels.clh"
#include "transpose_vectors.clh"

#define OUTPUT_PARAMETERS                                                      \
  CONST_TENSOR(compute_t, products), CONST_TENSOR(storage_t, bias),           \
      TENSOR(storage_t, output), const int has_bias, const int bias_stride,   \
      const int row_stride, const int frequency_stride, TILES_PARAMETERS

#ifndef IS_GPU
// The outputs of LANES tiles: the columns of row y follow each other from
// lines + y * line_stride on.
static inline void write_outputs(compute_t *lines, int line_stride, const global compute_t *in,
                                 int frequency_stride, compute_t offset) {
  lanes_t half_way[4][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    lanes_t m[6], columns[4];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      m[y] = vload16(0, in + (size_t)(y * 6 + x) * frequency_stride);
    }
    transform_output(m, columns);
#pragma unroll
    for (int y = 0; y < 4; ++y) {
      half_way[y][x] = columns[y];
    }
  }
#pragma unroll
  for (int y = 0; y < 4; ++y) {
    // Column after column of the tiles.
    lanes_t columns[4], pairs[4];
    transform_output(half_way[y], columns);
    interleave(pairs, columns, 4);
    interleave(columns, pairs, 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      vstore16(columns[i] + offset, i, lines + y * line_stride);
    }
  }
}

// One work-item: WIDTH tiles of BLOCK channels.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void winograd_output_cpu(OUTPUT_PARAMETERS) {
  const int panel = get_global_id(0);
  const int begin = get_global_id(1) * BLOCK;
  const int end = min(channels, begin + BLOCK);
  const int count = min(WIDTH, tiles - panel * WIDTH);
  const tile_t first_tile = tile_at(first + panel * WIDTH, tile_rows, tile_columns);
  compute_t lines[4][4 * WIDTH];
  for (int channel = begin; channel < end; ++channel) {
    const compute_t offset = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
    const global compute_t *in =
        POINTER(products) + (size_t)channel * row_stride + panel * WIDTH;
    for (int t = 0; t < count; t += LANES) {
      write_outputs(lines[0] + 4 * t, 4 * WIDTH, in + t, frequency_stride, offset);
    }
    tile_t tile = first_tile;
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
  const tile_t tile = tile_at(first + t, tile_rows, tile_columns);
  const global compute_t *in = POINTER(products) + (size_t)channel * row_stride + t;
  compute_t half_way[4][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    compute_t m[6], column[4];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      m[y] = in[(size_t)(y * 6 + x) * frequency_stride];
    }
    transform_output(m, column);
#pragma unroll
    for (int y = 0; y < 4; ++y) {
      half_way[y][x] = column[y];
    }
  }
  global storage_t *out = POINTER(output) + (size_t)tile.image * batch_stride +
                          channel * channel_stride;
#pragma unroll
  for (int y = 0; y < 4; ++y) {
    compute_t values[4];
    transform_output(half_way[y], values);
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
