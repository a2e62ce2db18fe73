// Weights to the left operands of Winograd's 36 products: panels of ROWS output
// channels (panels.clh). A work-item makes LANES neighbouring elements of a
// panel for each frequency: output channels first, then input channels. On
// cpu-class devices these are whole cache lines.

#include "winograd.clh"
#include "panels.clh"
#include "lanes.clh"

#if LANES == 1
#define STORE_PANEL(value, at) out[at] = value
#else
#define STORE_PANEL(value, at) vstore16(value, 0, out + (at))
#endif

kernel __attribute__((reqd_work_group_size(LANES == 1 ? 64 : 1, 1, 1)))
void winograd_weight(CONST_TENSOR(storage_t, weight), TENSOR(compute_t, panels),
                     const int rows, const int channels, const long row_stride,
                     const long channel_stride, const long h_stride,
                     const long w_stride) {
  const int first = get_global_id(0) * LANES;
  const int panel = get_global_id(1);
  const int size = channels * ROWS;
  if (first >= size) {
    return;
  }
  const global storage_t *in = POINTER(weight);
  compute_t taps[9][LANES] __attribute__((aligned(64)));
  for (int l = 0; l < LANES; ++l) {
    const int channel = (first + l) / ROWS;
    const int row = panel * ROWS + (first + l) % ROWS;
    const int is_inside = channel < channels && row < rows;
    const long at = is_inside ? row * row_stride + channel * channel_stride : 0;
#pragma unroll
    for (int y = 0; y < 3; ++y) {
#pragma unroll
      for (int x = 0; x < 3; ++x) {
        const compute_t value = LOAD(in, at + y * h_stride + x * w_stride);
        taps[y * 3 + x][l] = is_inside ? value : 0;
      }
    }
  }
  lanes_t lines[6][3];
#pragma unroll
  for (int x = 0; x < 3; ++x) {
    const lanes_t g0 = *(const lanes_t *)taps[x];
    const lanes_t g1 = *(const lanes_t *)taps[3 + x];
    const lanes_t g2 = *(const lanes_t *)taps[6 + x];
    lanes_t o0, o1, o2, o3, o4, o5;
    TRANSFORM_WEIGHT(lanes_t, g, o)
    lines[0][x] = o0;
    lines[1][x] = o1;
    lines[2][x] = o2;
    lines[3][x] = o3;
    lines[4][x] = o4;
    lines[5][x] = o5;
  }
  const size_t step = (size_t)((rows + ROWS - 1) / ROWS) * size;
  global compute_t *out = POINTER(panels) + (size_t)panel * size + first;
  const int is_whole = first + LANES <= size;
#pragma unroll
  for (int y = 0; y < 6; ++y) {
    const lanes_t g0 = lines[y][0], g1 = lines[y][1], g2 = lines[y][2];
    lanes_t o[6], o0, o1, o2, o3, o4, o5;
    TRANSFORM_WEIGHT(lanes_t, g, o)
    o[0] = o0;
    o[1] = o1;
    o[2] = o2;
    o[3] = o3;
    o[4] = o4;
    o[5] = o5;
#pragma unroll
    for (int x = 0; x < 6; ++x) {
      if (is_whole) {
        STORE_PANEL(o[x], (y * 6 + x) * step);
      } else {
        const compute_t *lane = (const compute_t *)&o[x];
        for (int l = 0; l < size - first; ++l) {
          out[(y * 6 + x) * step + l] = lane[l];
        }
      }
    }
  }
}
