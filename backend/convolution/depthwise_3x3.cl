// Depthwise convolution by 3 x 3 kernels with a padding of one, undilated, by
// strides of 1 or 2: nearly all there are. Rows are dense; LANES outputs of a row
// take their taps from the rows as they lie.
//
// Forward, with the taps reversed the data gradient of stride 1, and the weight's
// gradient.

#include "types.clh"
#include "lanes.clh"
#include "fetch.clh"

#ifndef PREFETCH
#define PREFETCH 0  // images come from memory
#endif

#define SHIFTED_UP(first, v) \
  ((lanes_t)(first, v.s01, v.s2345, v.s6789, v.sabcd, v.se))
#define SHIFTED_DOWN(v) ((lanes_t)(v.s1, v.s23, v.s4567, v.s89ab, v.scdef, 0))

// Elements of a row from `first` on. `readable` are its own and, behind them,
// those of the rows that follow; zeros beyond.
static inline lanes_t load_within(const global storage_t *row, int first, int readable) {
  if (first + LANES <= readable) return load_lanes(row, first, 1, LANES);
  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = first + l < readable ? LOAD(row, first + l) : 0;
  return vload16(0, lane);
}

// The source's elements left of, at and right of each of LANES outputs. Those of
// outputs beyond the row's end are arbitrary. `keep` is positive in the lanes
// that a row has.
static inline void load_taps(lanes_t *taps, const global storage_t *row, int ow, int size,
                             int readable, lanes_t keep) {
#if STRIDE == 1
  taps[1] = load_within(row, ow, readable);
  if (size < LANES) taps[1] = LANES_SELECT((lanes_t)0, taps[1], keep > (lanes_t)0);
  taps[0] = ow == 0 ? SHIFTED_UP(0, taps[1]) : load_lanes(row, ow - 1, 1, LANES);
  taps[2] = ow + LANES < size ? load_lanes(row, ow + 1, 1, LANES) : SHIFTED_DOWN(taps[1]);
#else
  const lanes_t low = load_within(row, 2 * ow, readable);
  const lanes_t high = load_within(row, 2 * ow + LANES, readable);
  taps[1] = (lanes_t)(low.even, high.even);
  taps[2] = (lanes_t)(low.odd, high.odd);
  const compute_t before = ow == 0 ? 0 : LOAD(row, 2 * ow - 1);
  taps[0] = SHIFTED_UP(before, taps[2]);
#endif
}

// Elements that can be read behind a plane up to the tensor's last one, of as many
// images and channels after it.
#define AFTER_PLANE(images, channels, stride) \
  min(2 * LANES, (images) * (stride).s0 + (channels) * (stride).s1)

static inline lanes_t add_taps(lanes_t sum, const lanes_t *taps, const compute_t *factors) {
  sum = fma((lanes_t)factors[0], taps[0], sum);
  sum = fma((lanes_t)factors[1], taps[1], sum);
  return fma((lanes_t)factors[2], taps[2], sum);
}

// One work-item: `rows` rows of one channel's output. Pairs are (h, w); strides
// are (n, c, h, w); the weight's are (first element, channel, h, w). `sharing`
// output channels read one source channel.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_3x3(CONST_TENSOR(storage_t, source), CONST_TENSOR(storage_t, weight),
                   CONST_TENSOR(storage_t, bias), TENSOR(storage_t, out), const int channels,
                   const int sharing, const int2 source_size, const int2 out_size,
                   const int4 source_stride, const int4 weight_stride, const int4 out_stride,
                   const int bias_stride, const int has_bias, const int rows) {
  const int begin = get_global_id(0) * rows;
  const int end = min(out_size.s0, begin + rows);
  const int channel = (int)get_global_id(1) % channels;
  const int n = (int)get_global_id(1) / channels;
  const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0 +
                               (size_t)(channel / sharing) * source_stride.s1;
  const int following = AFTER_PLANE((int)get_global_size(1) / channels - 1 - n,
                                    (channels - 1 - channel) / sharing, source_stride);
  global storage_t *target =
      POINTER(out) + (size_t)n * out_stride.s0 + (size_t)channel * out_stride.s1;
  const lanes_t base = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;
  compute_t factors[9];
  for (int tap = 0; tap < 9; ++tap) {
    factors[tap] = LOAD(POINTER(weight), weight_stride.s0 + channel * weight_stride.s1 +
                                             tap / 3 * weight_stride.s2 +
                                             tap % 3 * weight_stride.s3);
  }

  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = l < out_size.s1;
  const lanes_t keep = vload16(0, lane);
  // The last strip overlaps its neighbour. One that is narrower than a vector
  // runs into the rows that follow, which are written afterwards.
  const int is_narrow = out_size.s1 < LANES;
  for (int w = 0; w < out_size.s1; w += LANES) {
    const int ow = is_narrow ? 0 : min(w, out_size.s1 - LANES);
#if STRIDE == 1
    // A source row belongs to the outputs of the rows before, at and after it.
    lanes_t before = base;
    lanes_t here = base;
    for (int ih = begin - 1; ih <= end; ++ih) {
      lanes_t after = base;
      if (ih >= 0 && ih < source_size.s0) {
        lanes_t taps[3];
#if PREFETCH
        fetch(in + (ih + 8) * source_stride.s2 + ow);
#endif
        load_taps(taps, in + ih * source_stride.s2, ow, source_size.s1,
                  following + (source_size.s0 - 1 - ih) * source_stride.s2 + source_size.s1, keep);
        before = add_taps(before, taps, factors + 6);
        here = add_taps(here, taps, factors + 3);
        after = add_taps(after, taps, factors);
      }
      const int oh = ih - 1;
      const lanes_t sum = before;
      before = here;
      here = after;
      if (oh < begin) continue;
#else
    for (int oh = begin; oh < end; ++oh) {
      lanes_t sum = base;
      for (int kh = 0; kh < 3; ++kh) {
        const int ih = 2 * oh - 1 + kh;
        if (ih < 0 || ih >= source_size.s0) continue;
        lanes_t taps[3];
#if PREFETCH
        if (kh != 0) {
          fetch(in + (ih + 8) * source_stride.s2 + 2 * ow);
          fetch(in + (ih + 8) * source_stride.s2 + 2 * ow + LANES);
        }
#endif
        load_taps(taps, in + ih * source_stride.s2, ow, source_size.s1,
                  following + (source_size.s0 - 1 - ih) * source_stride.s2 + source_size.s1, keep);
        sum = add_taps(sum, taps, factors + kh * 3);
      }
#endif
      const int writable = (end - oh) * out_size.s1;
      store_lanes(target + oh * out_stride.s2, ow, 1,
                  is_narrow && writable < LANES ? out_size.s1 : LANES, sum);
    }
  }
}

static inline void add_products(lanes_t *sums, lanes_t factor, const lanes_t *taps) {
  sums[0] = fma(factor, taps[0], sums[0]);
  sums[1] = fma(factor, taps[1], sums[1]);
  sums[2] = fma(factor, taps[2], sums[2]);
}

#define LOAD_GRAD(oh)                               \
  load_within(from + (oh) * grad_stride.s2, ow,     \
              following_grad + (rows - 1 - (oh)) * grad_stride.s2 + grad_size.s1)

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
  lanes_t sums[9];
  compute_t places[LANES];
  for (int tap = 0; tap < 9; ++tap) sums[tap] = 0;
  for (int l = 0; l < LANES; ++l) places[l] = l;
  const lanes_t place = vload16(0, places);
  const lanes_t keep = LANES_SELECT((lanes_t)0, (lanes_t)1, place < (lanes_t)grad_size.s1);

  for (int n = part * images_at_once; n < end; ++n) {
    const global storage_t *in =
        POINTER(input) + (size_t)n * input_stride.s0 + channel * input_stride.s1;
    const global storage_t *from =
        POINTER(grad) + (size_t)n * grad_stride.s0 + channel * grad_stride.s1;
    const int following_input =
        AFTER_PLANE(images - 1 - n, channels - 1 - channel, input_stride);
    const int following_grad = AFTER_PLANE(images - 1 - n, channels - 1 - channel, grad_stride);
    for (int w = 0; w < grad_size.s1; w += LANES) {
      // The last strip overlaps its neighbour, or runs into the next row, in lanes that
      // are dropped.
      const int ow = max(0, min(w, grad_size.s1 - LANES));
      lanes_t strip_sums[9];
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) strip_sums[tap] = 0;
#if STRIDE == 1
      // A row of the input meets those of the gradient after, at and before it.
      lanes_t before = 0;
      lanes_t here = 0;
      lanes_t after = LOAD_GRAD(0);
      for (int ih = 0; ih < input_size.s0; ++ih) {
        lanes_t taps[3];
#if PREFETCH
        fetch(in + (ih + 8) * input_stride.s2 + ow);
        fetch(from + (ih + 8) * grad_stride.s2 + ow);
#endif
        before = here;
        here = after;
        after = ih + 1 < rows ? LOAD_GRAD(ih + 1) : (lanes_t)0;
        load_taps(taps, in + ih * input_stride.s2, ow, input_size.s1,
                  following_input + (input_size.s0 - 1 - ih) * input_stride.s2 + input_size.s1,
                  keep);
        add_products(strip_sums, after, taps);
        add_products(strip_sums + 3, here, taps);
        add_products(strip_sums + 6, before, taps);
      }
#else
      for (int oh = 0; oh < rows; ++oh) {
        const lanes_t factor = LOAD_GRAD(oh);
#if PREFETCH
        fetch(from + (oh + 8) * grad_stride.s2 + ow);
#endif
#pragma unroll
        for (int kh = 0; kh < 3; ++kh) {
          const int ih = 2 * oh - 1 + kh;
          if (ih >= 0 && ih < input_size.s0) {
            lanes_t taps[3];
#if PREFETCH
            if (kh != 0) {
              fetch(in + (ih + 8) * input_stride.s2 + 2 * ow);
              fetch(in + (ih + 8) * input_stride.s2 + 2 * ow + LANES);
            }
#endif
            load_taps(taps, in + ih * input_stride.s2, ow, input_size.s1,
                      following_input + (input_size.s0 - 1 - ih) * input_stride.s2 + input_size.s1,
                  keep);
            add_products(strip_sums + kh * 3, factor, taps);
          }
        }
      }
#endif
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        sums[tap] += LANES_SELECT((lanes_t)0, strip_sums[tap],
                                  place >= (lanes_t)(w - ow) & place < (lanes_t)grad_size.s1);
      }
    }
  }
  for (int tap = 0; tap < 9; ++tap) {
    POINTER(partial)[(size_t)(part * 9 + tap) * channels + channel] = LANES_SUM(sums[tap]);
  }
}
