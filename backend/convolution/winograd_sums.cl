// Sums over the tiles, a matrix a frequency, to the gradient of the weight. One
// work-item: LANES input channels of an output channel.

#include "winograd.clh"
#include "lanes.clh"

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
  // Rows are padded to whole vectors.
  const global compute_t *in = POINTER(sums) + row * row_stride + channel;
  lanes_t lines[3][6];
#pragma unroll
  for (int x = 0; x < 6; ++x) {
    lanes_t o[6];
#pragma unroll
    for (int y = 0; y < 6; ++y) {
#if LANES == 1
      o[y] = in[(y * 6 + x) * frequency_stride];
#else
      o[y] = vload16(0, in + (y * 6 + x) * frequency_stride);
#endif
    }
    const lanes_t o0 = o[0], o1 = o[1], o2 = o[2], o3 = o[3], o4 = o[4], o5 = o[5];
    lanes_t g0, g1, g2;
    TRANSFORM_WEIGHT_GRADIENT(lanes_t, o, g)
    lines[0][x] = g0;
    lines[1][x] = g1;
    lines[2][x] = g2;
  }
  lanes_t taps[9];
#pragma unroll
  for (int y = 0; y < 3; ++y) {
    const lanes_t *line = lines[y];
    const lanes_t o0 = line[0], o1 = line[1], o2 = line[2];
    const lanes_t o3 = line[3], o4 = line[4], o5 = line[5];
    lanes_t g0, g1, g2;
    TRANSFORM_WEIGHT_GRADIENT(lanes_t, o, g)
    taps[y * 3] = g0;
    taps[y * 3 + 1] = g1;
    taps[y * 3 + 2] = g2;
  }
  global storage_t *out =
      POINTER(weight) + row * out_row_stride + channel * out_channel_stride;
  const int lanes = min(LANES, channels - channel);
  const compute_t *values = (const compute_t *)taps;
  for (int l = 0; l < lanes; ++l) {
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      STORE(out, l * out_channel_stride + tap / 3 * out_h_stride + tap % 3 * out_w_stride,
            values[tap * LANES + l]);
    }
  }
}
