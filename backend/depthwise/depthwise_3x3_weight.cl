// The weight's gradient of a depthwise convolution by 3 x 3 kernels.

#include "depthwise_3x3.clh"

static inline void add_products(lanes_t *sums, lanes_t factor, const lanes_t *window) {
  sums[0] = fma(factor, window[0], sums[0]);
  sums[1] = fma(factor, window[1], sums[1]);
  sums[2] = fma(factor, window[2], sums[2]);
}

// What row `ih` of the input adds: with row kh of the filter elements it meets the gradient's
// row (ih + 1 - kh) / STRIDE.
static inline __attribute__((always_inline)) void add_row_tile(
    lanes_t *sums, const global storage_t *row, const global storage_t *grad, int ih,
    int row_stride, int grad_stride, int grad_rows, int ow, int is_left, int is_right) {
#if PREFETCH
  for (int part = 0; part < STRIDE; ++part)
    PREFETCH(row + ROWS_AHEAD * row_stride + STRIDE * ow + part * LANES);
  if (ih % STRIDE == 0) PREFETCH(grad + (ih / STRIDE + ROWS_AHEAD) * grad_stride + ow);
#endif
  lanes_t window[3];
  load_window(window, row, ow, is_left, is_right);
#pragma unroll
  for (int kh = 0; kh < 3; ++kh) {
    const int place = ih + 1 - kh;
    if (place % STRIDE != 0 || place < 0 || place >= grad_rows * STRIDE) continue;
    add_products(sums + kh * 3, LOAD_LANES(grad + place / STRIDE * grad_stride + ow), window);
  }
}

// One work-item: the filter elements of one channel over `images_at_once` images, to
// partial[part][element][channel] (depthwise_weight_total.cl).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_3x3(CONST_TENSOR(storage_t, input), CONST_TENSOR(storage_t, grad),
                          TENSOR(compute_t, partial), const int channels,
                          const int channels_at_once, const int images,
                          const int images_at_once, const int2 input_size,
                          const int2 grad_size, const int2 padding, const int4 input_stride,
                          const int4 grad_stride) {
  const int channel = get_global_id(0) * channels_at_once;
  const int part = get_global_id(1);
  const int end = min(images, (part + 1) * images_at_once);
  const int rows = grad_size.s0;
  const lanes_t is_within = lanes_within(grad_size.s1);
  // The last row tile has outputs of its neighbour's, a narrow row some beyond it.
  const lanes_t is_others =
      lanes_within((grad_size.s1 - 1) / LANES * LANES - (grad_size.s1 - LANES));
  lanes_t totals[9];
  for (int element = 0; element < 9; ++element) totals[element] = 0;

  for (int n = part * images_at_once; n < end; ++n) {
    const global storage_t *in =
        POINTER(input) + (size_t)n * input_stride.s0 + channel * input_stride.s1;
    const global storage_t *from =
        POINTER(grad) + (size_t)n * grad_stride.s0 + channel * grad_stride.s1;
    // Of an image first, for the sake of precision.
    lanes_t sums[9];
    lanes_t last_sums[9];
#pragma unroll
    for (int element = 0; element < 9; ++element) sums[element] = last_sums[element] = 0;
    if (grad_size.s1 > LANES) {
      for (int ih = 0; ih < input_size.s0; ++ih) {
        const global storage_t *row = in + ih * input_stride.s2;
#define ADD_STRIP(ow, is_left, is_right)                                                    \
  add_row_tile(is_right ? last_sums : sums, row, from, ih, input_stride.s2, grad_stride.s2, \
            rows, ow, is_left, is_right);
        FOR_EACH_STRIP(grad_size.s1, ADD_STRIP)
      }
    } else {
      const int after = AFTER_PLANE(images - 1 - n, channels - 1 - channel, input_stride);
      const int after_grad = AFTER_PLANE(images - 1 - n, channels - 1 - channel, grad_stride);
      for (int ih = 0; ih < input_size.s0; ++ih) {
        lanes_t window[3];
        load_narrow_window(window, in + ih * input_stride.s2,
                         READABLE(after, ih, input_size, input_stride), is_within);
#pragma unroll
        for (int kh = 0; kh < 3; ++kh) {
          const int place = ih + 1 - kh;
          if (place % STRIDE != 0 || place < 0 || place >= rows * STRIDE) continue;
          const int oh = place / STRIDE;
          add_products(sums + kh * 3,
                       load_within(from + oh * grad_stride.s2, 0,
                                   READABLE(after_grad, oh, grad_size, grad_stride)),
                       window);
        }
      }
    }
#pragma unroll
    for (int element = 0; element < 9; ++element) {
      totals[element] += LANES_SELECT((lanes_t)0, sums[element], is_within > (lanes_t)0) +
                     LANES_SELECT(last_sums[element], (lanes_t)0, is_others > (lanes_t)0);
    }
  }
  for (int element = 0; element < 9; ++element) {
    POINTER(partial)[(size_t)(part * 9 + element) * channels + channel] = LANES_SUM(totals[element]);
  }
}
