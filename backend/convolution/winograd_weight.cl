// Weights to the left operands of Winograd's 36 products: panels of ROWS output
// channels (panels.clh). A work-item transforms SPAN output channels of one
// input channel: ROWS on cpu-class devices, one on gpu-class ones.

#include "winograd.clh"
#include "panels.clh"

#ifndef SPAN
#define SPAN ROWS
#endif

kernel __attribute__((reqd_work_group_size(1, SPAN == 1 ? 64 : 1, 1)))
void winograd_weight(CONST_TENSOR(storage_t, weight), TENSOR(compute_t, panels),
                     const int rows, const int channels, const long row_stride,
                     const long channel_stride, const long h_stride,
                     const long w_stride) {
  const int channel = get_global_id(0);
  const int first = get_global_id(1) * SPAN;
  const int panel = first / ROWS;
  const size_t count = (rows + ROWS - 1) / ROWS;
  if (panel >= count) {
    return;
  }
  const global storage_t *in = POINTER(weight) + channel * channel_stride;
  global compute_t *out =
      POINTER(panels) + ((size_t)panel * channels + channel) * ROWS + first % ROWS;
  const size_t frequency_stride = count * channels * ROWS;
  for (int l = 0; l < SPAN; ++l) {
    compute_t lines[6][3];
    const int row = first + l;
#pragma unroll
    for (int x = 0; x < 3; ++x) {
      compute_t g0 = 0, g1 = 0, g2 = 0;
      if (row < rows) {
        const long at = row * row_stride + x * w_stride;
        g0 = LOAD(in, at);
        g1 = LOAD(in, at + h_stride);
        g2 = LOAD(in, at + 2 * h_stride);
      }
      compute_t o0, o1, o2, o3, o4, o5;
      TRANSFORM_WEIGHT(compute_t, g, o)
      lines[0][x] = o0;
      lines[1][x] = o1;
      lines[2][x] = o2;
      lines[3][x] = o3;
      lines[4][x] = o4;
      lines[5][x] = o5;
    }
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      const compute_t g0 = lines[y][0], g1 = lines[y][1], g2 = lines[y][2];
      compute_t o0, o1, o2, o3, o4, o5;
      TRANSFORM_WEIGHT(compute_t, g, o)
      global compute_t *line = out + y * 6 * frequency_stride + l;
      line[0] = o0;
      line[frequency_stride] = o1;
      line[2 * frequency_stride] = o2;
      line[3 * frequency_stride] = o3;
      line[4 * frequency_stride] = o4;
      line[5 * frequency_stride] = o5;
    }
  }
}
