// Weights to operands of Winograd's 36 products: panels of ROWS output channels
// (panels.clh). A work-item makes STEPS times LANES neighbouring elements of a
// panel for each frequency: output channels first, then input channels. On
// cpu-class devices these are whole cache lines.

#include "winograd.clh"
#include "panels.clh"

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
  const int panel = get_global_id(1);
  const int size = channels * ROWS;
  const int begin = get_global_id(0) * STEPS * LANES;
  const global storage_t *in = POINTER(weight);
  for (int first = begin; first < min(begin + STEPS * LANES, size); first += LANES) {
    compute_t filter[9][LANES] __attribute__((aligned(64)));
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
          filter[y * 3 + x][l] = is_inside ? value : 0;
        }
      }
    }
    lanes_t lines[6][3];
#pragma unroll
    for (int x = 0; x < 3; ++x) {
      lanes_t g[3], o[6];
#pragma unroll
      for (int y = 0; y < 3; ++y) {
        g[y] = *(const lanes_t *)filter[y * 3 + x];
      }
      transform_weight(g, o);
#pragma unroll
      for (int y = 0; y < 6; ++y) {
        lines[y][x] = o[y];
      }
    }
    const size_t step = (size_t)((rows + ROWS - 1) / ROWS) * size;
    global compute_t *out = POINTER(panels) + (size_t)panel * size + first;
    const int is_whole = first + LANES <= size;
#pragma unroll
    for (int y = 0; y < 6; ++y) {
      lanes_t o[6];
      transform_weight(lines[y], o);
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
}
