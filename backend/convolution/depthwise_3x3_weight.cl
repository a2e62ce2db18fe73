// The weight's gradient of a depthwise convolution by 3 x 3 kernels.

#include "depthwise_3x3.clh"

static inline void add_products(lanes_t *sums, lanes_t factor, const lanes_t *taps) {
  sums[0] = fma(factor, taps[0], sums[0]);
  sums[1] = fma(factor, taps[1], sums[1]);
  sums[2] = fma(factor, taps[2], sums[2]);
}

// What row `ih` of the input adds: with row kh of the taps it meets the gradient's row
// (ih + 1 - kh) / STRIDE.
static inline __attribute__((always_inline)) void add_strip(
    lanes_t *sums, const global storage_t *row, const global storage_t *grad, int ih,
    int row_stride, int grad_stride, int grad_rows, int ow, int is_left, int is_right) {
#if PREFETCH
  for (int part = 0; part < STRIDE; ++part)
    fetch(row + ROWS_AHEAD * row_stride + STRIDE * ow + part * LANES);
  if (ih % STRIDE == 0) fetch(grad + (ih / STRIDE + ROWS_AHEAD) * grad_stride + ow);
#endif
  lanes_t taps[3];
  load_taps(taps, row, ow, is_left, is_right);
#pragma unroll
  for (int kh = 0; kh < 3; ++kh) {
    const int place = ih + 1 - kh;
    if (place % STRIDE != 0 || place < 0 || place >= grad_rows * STRIDE) continue;
    add_products(sums + kh * 3, LOAD_LANES(grad + place / STRIDE * grad_stride + ow), taps);
  }
}

// One work-item: the taps of one channel over `images_at_once` images, to
// partial[part][tap][channel] (depthwise_weight_total.cl).
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
  // The last strip has outputs of its neighbour's, a narrow row some beyond it.
  const lanes_t is_others =
      lanes_within((grad_size.s1 - 1) / LANES * LANES - (grad_size.s1 - LANES));
  lanes_t totals[9];
  for (int tap = 0; tap < 9; ++tap) totals[tap] = 0;

  for (int n = part * images_at_once; n < end; ++n) {
    const global storage_t *in =
        POINTER(input) + (size_t)n * input_stride.s0 + channel * input_stride.s1;
    const global storage_t *from =
        POINTER(grad) + (size_t)n * grad_stride.s0 + channel * grad_stride.s1;
    // Of an image first, for the sake of precision.
    lanes_t sums[9];
    lanes_t last_sums[9];
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) sums[tap] = last_sums[tap] = 0;
    if (grad_size.s1 > LANES) {
      for (int ih = 0; ih < input_size.s0; ++ih) {
        const global storage_t *row = in + ih * input_stride.s2;
#define ADD_STRIP(ow, is_left, is_right)                                                 \
  add_strip(is_right ? last_sums : sums, row, from, ih, input_stride.s2, grad_stride.s2, \
            rows, ow, is_left, is_right);
        FOR_EACH_STRIP(grad_size.s1, ADD_STRIP)
      }
    } else {
      const int after = AFTER_PLANE(images - 1 - n, channels - 1 - channel, input_stride);
      const int after_grad = AFTER_PLANE(images - 1 - n, channels - 1 - channel, grad_stride);
      for (int ih = 0; ih < input_size.s0; ++ih) {
        lanes_t taps[3];
        load_narrow_taps(taps, in + ih * input_stride.s2,
                         READABLE(after, ih, input_size, input_stride), is_within);
#pragma unroll
        for (int kh = 0; kh < 3; ++kh) {
          const int place = ih + 1 - kh;
          if (place % STRIDE != 0 || place < 0 || place >= rows * STRIDE) continue;
          const int oh = place / STRIDE;
          add_products(sums + kh * 3,
                       load_within(from + oh * grad_stride.s2, 0,
                                   READABLE(after_grad, oh, grad_size, grad_stride)),
                       taps);
        }
      }
    }
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      totals[tap] += LANES_SELECT((lanes_t)0, sums[tap], is_within > (lanes_t)0) +
                     LANES_SELECT(last_sums[tap], (lanes_t)0, is_others > (lanes_t)0);
    }
  }
  for (int tap = 0; tap < 9; ++tap) {
    POINTER(partial)[(size_t)(part * 9 + tap) * channels + channel] = LANES_SUM(totals[tap]);
  }
}
