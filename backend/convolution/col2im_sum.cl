// The adjoint of packing columns (im2col_pack.cl): sums the columns
// [channel][element][image][pixel] into each element of the image, one after the
// other, so without atomics. One work-item: RUN elements of a row.

#include "types.clh"
#include "panels.clh"

#define GEOMETRY                                                         \
  const int4 input_size, const int4 output_size, const int4 kernel_size, \
      const int4 stride, const int4 padding, const int4 dilation

#ifndef RUN
#define RUN 1  // neighbours along w that one work-item computes
#endif
#if RUN == 1
#define SUM_OF(i) sums[0]
#else
#define SUM_OF(i) sums[i]
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void col2im_sum(CONST_TENSOR(compute_t, columns), TENSOR(storage_t, image),
                 const int channels, GEOMETRY, const int images,
                 const index_t batch_stride, const index_t channel_stride,
                 const index_t d_stride, const index_t h_stride,
                 const index_t w_stride) {
  const int begin = get_global_id(0) * RUN;
  const int end = min(input_size.s2, begin + RUN);
  const int h = (int)get_global_id(1) % input_size.s1;
  const int d = (int)get_global_id(1) / input_size.s1;
  const int channel = (int)get_global_id(2) % channels;
  const int n = (int)get_global_id(2) / channels;
  const size_t pixels = (size_t)output_size.s0 * output_size.s1 * output_size.s2;
  const global compute_t *in = POINTER(columns) + n * pixels +
      channel * (size_t)(kernel_size.s0 * kernel_size.s1 * kernel_size.s2) * images * pixels;
  global storage_t *out = POINTER(image) + n * batch_stride + channel * channel_stride +
                          d * d_stride + h * h_stride;
  compute_t sums[RUN];
  for (int i = 0; i < RUN; ++i) {
    sums[i] = 0;
  }
  for (int kd = 0; kd < kernel_size.s0; ++kd) {
    const int from_d = d + padding.s0 - kd * dilation.s0;
    const int od = from_d / stride.s0;
    if (from_d < 0 || od * stride.s0 != from_d || od >= output_size.s0) continue;
    for (int kh = 0; kh < kernel_size.s1; ++kh) {
      const int from_h = h + padding.s1 - kh * dilation.s1;
      const int oh = from_h / stride.s1;
      if (from_h < 0 || oh * stride.s1 != from_h || oh >= output_size.s1) continue;
      for (int kw = 0; kw < kernel_size.s2; ++kw) {
        const int element = (kd * kernel_size.s1 + kh) * kernel_size.s2 + kw;
        const global compute_t *line = in + element * (images * pixels) +
                                       (od * output_size.s1 + oh) * output_size.s2;
        // Output column ow adds to image column ow * stride + shift.
        const int shift = kw * dilation.s2 - padding.s2;
        const int first_ow =
            max(0, begin - shift + stride.s2 - 1) / stride.s2;
        const int last_ow =
            end - 1 < shift ? -1 : min(output_size.s2 - 1, (end - 1 - shift) / stride.s2);
        if (stride.s2 == 1) {
          for (int ow = first_ow; ow <= last_ow; ++ow) {
            SUM_OF(ow + shift - begin) += line[ow];
          }
        } else {
          for (int ow = first_ow; ow <= last_ow; ++ow) {
            SUM_OF(ow * stride.s2 + shift - begin) += line[ow];
          }
        }
      }
    }
  }
  for (int w = begin; w < end; ++w) {
    STORE(out, w * w_stride, sums[w - begin]);
  }
}
