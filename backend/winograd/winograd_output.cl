// Winograd's 36 products back to outputs on GPUs, plus a bias: `products` holds, for
// each frequency, a row of tiles for each channel.

#include "winograd.clh"
#include "epilogue.clh"
#include "fours.clh"

#ifndef IS_WIDE
#define IS_WIDE 0  // a tile's rows are fours of memory, all inside the image
#endif

// One work-item: one tile of one channel.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void winograd_output(TENSOR(storage_t, output), CONST_TENSOR(compute_t, products),
                     CONST_TENSOR(storage_t, bias), const int has_bias, const int bias_stride,
                     const int row_stride, const int frequency_stride,
                     TILES_PARAMETERS EPILOGUE_PARAMETERS) {
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
  const size_t out_from = (size_t)tile.image * batch_stride + channel * channel_stride;
#pragma unroll
  for (int y = 0; y < 4; ++y) {
    compute_t values[4];
    transform_output(half_way[y], values);
    const int row = tile.row * 4 + y;
#if IS_WIDE
    if (row < height) {
      const size_t place = out_from + row * h_stride + tile.column * 4;
      const vec4_t four = (vec4_t)(values[0], values[1], values[2], values[3]) + offset;
      CONCAT(store4_, DTYPE)
      (POINTER(output) + place, EPILOGUE_FOUR(four, place, channel, 0));
    }
#else
    for (int x = 0; x < 4; ++x) {
      const int column = tile.column * 4 + x;
      if (row < height && column < width) {
        const size_t place = out_from + row * h_stride + column * w_stride;
        STORE(POINTER(output), place, EPILOGUE(values[x] + offset, place, channel));
      }
    }
#endif
  }
}
