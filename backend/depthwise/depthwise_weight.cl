// The weight's gradient of a depthwise convolution in two dimensions: for each
// output channel and filter element, the sum over all images and positions of the output's
// gradient times the input under the filter element.
//
// The rows of all images are dealt out in parts; each part's sums go to
// partial[part][channel][element], which the host adds up, so that sums stay short
// and nothing is added atomically. LANES run along a row
// (depthwise_weight_rows), along the channels (depthwise_weight_channels), or,
// on gpu-class devices, a work-group shares its sums (depthwise_weight_taps).

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
  compute_t lane[LANES];
  global compute_t *out = POINTER(partial) + ((size_t)part * channels + channel) * filter_size;
  for (int element = 0; element < filter_size; ++element) {
    vstore16(sums[element], 0, lane);
    for (int l = 0; l < count; ++l) out[l * filter_size + element] = lane[l];
  }
}

#else

// The filter elements that a work-group sums: all of a filter that is built in, by names
// and not in arrays, which compilers may leave in memory; else one.
#if KERNEL == 3
#define TAPS 9
#define FOR_TAPS(body)                 \
  body(0, 0) body(0, 1) body(0, 2)     \
  body(1, 0) body(1, 1) body(1, 2)     \
  body(2, 0) body(2, 1) body(2, 2)
#else
#define TAPS 1
#define FOR_TAPS(body) body(0, 0)
#endif
#define TAP_OF(r, c) ((r) * KERNEL + (c))
#define DECLARE_SUM(r, c) compute_t sum_##r##_##c = 0;
#define ADD_PRODUCT(r, c)                                                             \
  {                                                                                   \
    const int ih = top + (r) * dilation.s0;                                           \
    const int iw = left + (c) * dilation.s1;                                          \
    const bool is_inside = (uint)ih < (uint)input_size.s0 && (uint)iw < (uint)input_size.s1; \
    const compute_t value =                                                           \
        is_inside ? LOAD(image, ih * input_stride.s2 + iw * input_stride.s3) : 0;     \
    sum_##r##_##c = is_inside ? fma(factor, value, sum_##r##_##c) : sum_##r##_##c;    \
  }
#define SHARE_SUM(r, c) shared_sums[TAP_OF(r, c)][lane] = sum_##r##_##c;

// One work-group: TAPS elements of one channel's filter over a part.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void depthwise_weight_taps(WEIGHT_PARAMETERS) {
  local compute_t shared_sums[TAPS][WG_SIZE];
  const int lane = get_local_id(0);
  const int filter_size = KERNEL_H * KERNEL_W;
  const int groups = filter_size / TAPS;
  const int channel = (int)get_group_id(0) / groups;
  const int element = (int)get_group_id(0) % groups * TAPS;
  const int part = get_global_id(1);
  const int height = grad_size.s0, width = grad_size.s1;
  const int end = min(images * height, (part + 1) * rows) * width;
  const global storage_t *in =
      POINTER(input) + (size_t)(channel / depth_multiplier) * input_stride.s1;
  const global storage_t *from = POINTER(grad) + (size_t)channel * grad_stride.s1;
  FOR_TAPS(DECLARE_SUM)
  int i = part * rows * width + lane;
  int ow = i % width, oh = i / width % height, n = i / width / height;
  const int step_w = WG_SIZE % width;
  const int step_h = WG_SIZE / width % height;
  const int step_n = WG_SIZE / width / height;
  for (; i < end; i += WG_SIZE) {
    const global storage_t *image = in + (size_t)n * input_stride.s0;
    const compute_t factor = LOAD(from, (size_t)n * grad_stride.s0 +
                                            oh * grad_stride.s2 + ow * grad_stride.s3);
    const int top = oh * stride.s0 - padding.s0 + element / KERNEL_W * dilation.s0;
    const int left = ow * stride.s1 - padding.s1 + element % KERNEL_W * dilation.s1;
    FOR_TAPS(ADD_PRODUCT)
    ow += step_w;
    oh += step_h;
    n += step_n;
    if (ow >= width) {
      ow -= width;
      ++oh;
    }
    if (oh >= height) {
      oh -= height;
      ++n;
    }
  }
  FOR_TAPS(SHARE_SUM)
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) {
      for (int tap = 0; tap < TAPS; ++tap) {
        shared_sums[tap][lane] += shared_sums[tap][lane + half_size];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane < TAPS) {
    POINTER(partial)[((size_t)part * channels + channel) * filter_size + element + lane] =
        shared_sums[lane][0];
  }
}

#endif
