// Sums over the tiles, a matrix a frequency, to the gradient of the weight. One
// work-item: LANES input channels of an output channel.

#include "winograd.clh"

kernel __attribute__((reqd_work_group_size(LANES == 1 ? 64 : 1, 1, 1)))
void winograd_sums(CONST_TENSOR(compute_t, sums), TENSOR(storage_t, weight),
                   const int rows, const int channels, const int row_stride,
                   const int frequency_stride, const long out_row_stride,
                   const long out_channel_stride, const long out_h_stride,
                   const long out_w_stride) {
  const int channel = get_global_id(0) * LANES;
  const int row = get_global_id(1);
  if (channel >= channels) {
    return;
  }
  // Rows are padded to full vectors.
  const global compute_t *in = POINTER(sums) + row * row_stride + channel;
  lanes_t lines[3][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    lanes_t o[6], g[3];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
#if LANES == 1
      o[y] = in[(y * 6 + x) * frequency_stride];
#else
      o[y] = vload16(0, in + (y * 6 + x) * frequency_stride);
#endif
    }
    transform_weight_gradient(o, g);
#pragma unroll
    for (int y = 0; y < 3; ++y) {
      lines[y][x] = g[y];
    }
  }
  lanes_t filter[9];
#pragma unroll
  for (int y = 0; y < 3; ++y) {
    transform_weight_gradient(lines[y], filter + y * 3);
  }
  global storage_t *out =
      POINTER(weight) + row * out_row_stride + channel * out_channel_stride;
  const int lanes = min(LANES, channels - channel);
  const compute_t *values = (const compute_t *)filter;
  for (int l = 0; l < lanes; ++l) {
#pragma unroll
    for (int element = 0; element < 9; ++element) {
      STORE(out, l * out_channel_stride + element / 3 * out_h_stride + element % 3 * out_w_stride,
            values[element * LANES + l]);
    }
  }
}
