// The weight's gradient of a depthwise convolution in two dimensions: for each
// output channel and filter element, the sum over all images and positions of the output's
// gradient times the input under the filter element.
//
// The rows of all images are dealt out in parts; each part's sums go to
// partial[part][channel][element], which the host adds up, so that sums stay short
// and nothing is added atomically. LANES run along a row
// (depthwise_weight_rows), along the channels (depthwise_weight_channels), or,
// on gpu-class devices, a work-group shares one sum.

#include "types.clh"
#include "lanes.clh"
#include "depthwise.clh"

// Pairs are (h, w); strides are (n, c, h, w). `depth_multiplier` output channels read
// one input channel.
#define WEIGHT_PARAMETERS                                                         \
  CONST_TENSOR(storage_t, input), CONST_TENSOR(storage_t, grad),                  \
      TENSOR(compute_t, partial), const int channels, const int depth_multiplier, \
      const int images, const int rows, const int2 input_size,                    \
      const int2 grad_size, const int2 kernel_size, const int2 stride,            \
      const int2 padding, const int2 dilation, const int4 input_stride,           \
      const int4 grad_stride

#if LANES > 1

// One work-item: one channel's filter elements over the `rows` rows of a part.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_rows(WEIGHT_PARAMETERS) {
  const int channel = get_global_id(0);
  const int part = get_global_id(1);
  const int end = min(images * grad_size.s0, (part + 1) * rows);
  const int filter_size = KERNEL_H * KERNEL_W;
  const int step = stride.s1;
  const int columns = min(COLUMNS_AT_ONCE(step), (grad_size.s1 + LANES - 1) / LANES * LANES);
  const int reach = REACH(columns, step);
  const global storage_t *in =
      POINTER(input) + (size_t)(channel / depth_multiplier) * input_stride.s1;
  const global storage_t *from = POINTER(grad) + (size_t)channel * grad_stride.s1;
  lanes_t sums[MAX_FILTER_SIZE];
  compute_t kept[KEPT_ROWS * (SPAN + SPAN_SLACK)];
  compute_t factors[SPAN + SPAN_SLACK];
  for (int element = 0; element < filter_size; ++element) sums[element] = 0;

  for (int ow = 0; ow < grad_size.s1; ow += columns) {
    const int first = ow * step - padding.s1;
    int numbers[KEPT_ROWS];
    for (int slot = 0; slot < KEPT_ROWS; ++slot) numbers[slot] = -1;
    for (int i = part * rows; i < end; ++i) {
      const int oh = i % grad_size.s0;
      const int n = i / grad_size.s0;
      copy_span(factors, from + (size_t)n * grad_stride.s0 + oh * grad_stride.s2, ow,
                columns, 1, grad_size.s1, grad_stride.s3,
                (grad_size.s0 - 1 - oh) * grad_stride.s2 + grad_size.s1);
      for (int kh = 0; kh < KERNEL_H; ++kh) {
        const int ih = oh * stride.s0 - padding.s0 + kh * dilation.s0;
        if (ih < 0 || ih >= input_size.s0) continue;
        const compute_t *span =
            keep_row(kept, numbers, n * input_size.s0 + ih,
                     in + (size_t)n * input_stride.s0 + ih * input_stride.s2, first, reach, 1,
                     input_size.s1, input_stride.s3,
                     (input_size.s0 - 1 - ih) * input_stride.s2 + input_size.s1);
        lanes_t *row_sums = sums + kh * KERNEL_W;
        for (int w = 0; w < columns; w += LANES) {
          const lanes_t factor = vload16(0, factors + w);
          for (int kw = 0; kw < KERNEL_W; ++kw) {
            row_sums[kw] = fma(
                factor, load_span(span, w * step + kw * dilation.s1, step), row_sums[kw]);
          }
        }
      }
    }
  }
  global compute_t *out = POINTER(partial) + ((size_t)part * channels + channel) * filter_size;
  for (int element = 0; element < filter_size; ++element) {
    out[element] = LANES_SUM(sums[element]);
  }
}

// One work-item: the filter elements of LANES channels over a part. depth_multiplier is 1.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_channels(WEIGHT_PARAMETERS) {
  const int channel = get_global_id(0) * LANES;
  const int count = min(LANES, channels - channel);
  const int part = get_global_id(1);
  const int end = min(images * grad_size.s0, (part + 1) * rows);
  const int filter_size = KERNEL_H * KERNEL_W;
  const global storage_t *in = POINTER(input) + channel * input_stride.s1;
  const global storage_t *from = POINTER(grad) + channel * grad_stride.s1;
  lanes_t sums[MAX_FILTER_SIZE];
  for (int element = 0; element < filter_size; ++element) sums[element] = 0;

  for (int i = part * rows; i < end; ++i) {
    const int oh = i % grad_size.s0;
    const int n = i / grad_size.s0;
    for (int ow = 0; ow < grad_size.s1; ++ow) {
      const lanes_t factor = load_lanes(
          from + (size_t)n * grad_stride.s0 + oh * grad_stride.s2 + ow * grad_stride.s3,
          0, grad_stride.s1, count);
      for (int kh = 0; kh < KERNEL_H; ++kh) {
        const int ih = oh * stride.s0 - padding.s0 + kh * dilation.s0;
        if (ih < 0 || ih >= input_size.s0) continue;
        for (int kw = 0; kw < KERNEL_W; ++kw) {
          const int iw = ow * stride.s1 - padding.s1 + kw * dilation.s1;
          if (iw < 0 || iw >= input_size.s1) continue;
          const lanes_t value = load_lanes(
              in + (size_t)n * input_stride.s0 + ih * input_stride.s2 + iw * input_stride.s3,
              0, input_stride.s1, count);
          sums[kh * KERNEL_W + kw] = fma(factor, value, sums[kh * KERNEL_W + kw]);
        }
      }
    }
  }
  global compute_t *out = POINTER(partial) + ((size_t)part * channels + channel) * filter_size;
  for (int element = 0; element < filter_size; ++element) {
    compute_t lane[LANES];
    vstore16(sums[element], 0, lane);
    for (int l = 0; l < count; ++l) out[l * filter_size + element] = lane[l];
  }
}

#else

// One work-group: one channel's filter element over a part.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void depthwise_weight_each(WEIGHT_PARAMETERS) {
  local compute_t shared_sums[WG_SIZE];
  const int lane = get_local_id(0);
  const int filter_size = KERNEL_H * KERNEL_W;
  const int channel = (int)get_group_id(0) / filter_size;
  const int element = (int)get_group_id(0) % filter_size;
  const int part = get_global_id(1);
  const int end = min(images * grad_size.s0, (part + 1) * rows) * grad_size.s1;
  const global storage_t *in =
      POINTER(input) + (size_t)(channel / depth_multiplier) * input_stride.s1;
  const global storage_t *from = POINTER(grad) + (size_t)channel * grad_stride.s1;
  compute_t sum = 0;
  for (int i = part * rows * grad_size.s1 + lane; i < end; i += WG_SIZE) {
    const int ow = i % grad_size.s1;
    const int oh = i / grad_size.s1 % grad_size.s0;
    const int n = i / grad_size.s1 / grad_size.s0;
    const int ih = oh * stride.s0 - padding.s0 + element / KERNEL_W * dilation.s0;
    const int iw = ow * stride.s1 - padding.s1 + element % KERNEL_W * dilation.s1;
    if (ih >= 0 && ih < input_size.s0 && iw >= 0 && iw < input_size.s1) {
      sum = fma(LOAD(from, (size_t)n * grad_stride.s0 + oh * grad_stride.s2 +
                               ow * grad_stride.s3),
                LOAD(in, (size_t)n * input_stride.s0 + ih * input_stride.s2 +
                             iw * input_stride.s3),
                sum);
    }
  }
  shared_sums[lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) shared_sums[lane] += shared_sums[lane + half_size];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0) {
    POINTER(partial)[((size_t)part * channels + channel) * filter_size + element] = shared_sums[0];
  }
}

#endif
