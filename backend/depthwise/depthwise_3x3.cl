// Depthwise convolution by 3 x 3 kernels: forward, and with the filter elements reversed the
// data gradient, that of stride 2 by a kernel of its own.

#include "depthwise_3x3.clh"
#include "transpose_vectors.clh"

// Pairs are (h, w); strides are (n, c, h, w); the weight's are (first element,
// channel, h, w). `depth_multiplier` output channels read one source channel.
#define DEPTHWISE_3X3_PARAMETERS                                                 \
  TENSOR(storage_t, out), CONST_TENSOR(storage_t, source),                       \
      CONST_TENSOR(storage_t, weight), CONST_TENSOR(storage_t, bias), const int channels, \
      const int depth_multiplier, const int2 source_size, const int2 out_size,   \
      const int4 source_stride, const int4 weight_stride, const int4 out_stride, \
      const int bias_stride, const int has_bias, const int rows

// A work-item has `rows` rows of one channel's output.
#define DEPTHWISE_3X3_PLACES                                                                 \
  const int begin = get_global_id(0) * rows;                                                 \
  const int end = min(out_size.s0, begin + rows);                                            \
  const int channel = (int)get_global_id(1) % channels;                                      \
  const int n = (int)get_global_id(1) / channels;                                            \
  const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0 +              \
                               (size_t)(channel / depth_multiplier) * source_stride.s1;      \
  global storage_t *target =                                                                 \
      POINTER(out) + (size_t)n * out_stride.s0 + (size_t)channel * out_stride.s1;            \
  const lanes_t base = has_bias ? LOAD(POINTER(bias), channel * bias_stride) : 0;            \
  compute_t factors[9];                                                                      \
  for (int element = 0; element < 9; ++element) {                                            \
    factors[element] = LOAD(POINTER(weight), weight_stride.s0 + channel * weight_stride.s1 + \
                                             element / 3 * weight_stride.s2 +                \
                                             element % 3 * weight_stride.s3);                \
  }

static inline lanes_t add_window(lanes_t sum, const lanes_t *window, const compute_t *factors) {
  sum = fma((lanes_t)factors[0], window[0], sum);
  sum = fma((lanes_t)factors[1], window[1], sum);
  return fma((lanes_t)factors[2], window[2], sum);
}

// Outputs `ow`.. of two rows, which have source rows in common, the first of them
// `first`.
static inline __attribute__((always_inline)) void sum_row_tiles(
    lanes_t *upper, lanes_t *lower, const global storage_t *in, const compute_t *factors,
    int first, int source_rows, int row_stride, int ow, int is_left, int is_right) {
#pragma unroll
  for (int i = 0; i < STRIDE + 3; ++i) {
    const int ih = first + i;
    if (ih < 0 || ih >= source_rows) continue;
    const global storage_t *row = in + ih * row_stride;
#if PREFETCH
    if (i >= 3 - STRIDE) {
      for (int part = 0; part < STRIDE; ++part)
        PREFETCH(row + ROWS_AHEAD * row_stride + STRIDE * ow + part * LANES);
    }
#endif
    lanes_t window[3];
    load_window(window, row, ow, is_left, is_right);
    if (i < 3) *upper = add_window(*upper, window, factors + i * 3);
    if (i >= STRIDE) *lower = add_window(*lower, window, factors + (i - STRIDE) * 3);
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_3x3(DEPTHWISE_3X3_PARAMETERS) {
  DEPTHWISE_3X3_PLACES
  if (out_size.s1 > LANES) {
    for (int oh = begin; oh < end; oh += 2) {
      const int first = oh * STRIDE - 1;
      const int has_lower = oh + 1 < end;
#define OUTPUT_STRIP(at, is_left, is_right)                                             \
  {                                                                                     \
    lanes_t upper = base;                                                               \
    lanes_t lower = base;                                                               \
    sum_row_tiles(&upper, &lower, in, factors, first, source_size.s0, source_stride.s2, \
               at, is_left, is_right);                                                  \
    store_full_lanes_nt(target + oh * out_stride.s2 + (at), upper);                     \
    if (has_lower)                                                                      \
      store_full_lanes_nt(target + (oh + 1) * out_stride.s2 + (at), lower);             \
  }
      FOR_EACH_STRIP(out_size.s1, OUTPUT_STRIP)
    }
  } else {
    const int after = AFTER_PLANE((int)get_global_size(1) / channels - 1 - n,
                                  (channels - 1 - channel) / depth_multiplier, source_stride);
    const lanes_t is_within = lanes_within(out_size.s1);
#define NARROW_WINDOW(ih)                                  \
  load_narrow_window(window, in + (ih) * source_stride.s2, \
                   READABLE(after, ih, source_size, source_stride), is_within)
// The rows that follow are written afterwards.
#define STORE_NARROW(oh, sum)                      \
  store_lanes(target + (oh) * out_stride.s2, 0, 1, \
              (end - (oh)) * out_size.s1 < LANES ? out_size.s1 : LANES, sum)
    lanes_t window[3];
#if STRIDE == 1
    // A source row belongs to the outputs of the rows above, at and below it.
    lanes_t above = base;
    lanes_t here = base;
    for (int ih = begin - 1; ih <= end; ++ih) {
      lanes_t below = base;
      if (ih >= 0 && ih < source_size.s0) {
        NARROW_WINDOW(ih);
        above = add_window(above, window, factors + 6);
        here = add_window(here, window, factors + 3);
        below = add_window(below, window, factors);
      }
      if (ih > begin) STORE_NARROW(ih - 1, above);
      above = here;
      here = below;
    }
#else
    for (int oh = begin; oh < end; ++oh) {
      lanes_t sum = base;
      for (int kh = 0; kh < 3; ++kh) {
        const int ih = oh * STRIDE - 1 + kh;
        if (ih < 0 || ih >= source_size.s0) continue;
        NARROW_WINDOW(ih);
        sum = add_window(sum, window, factors + kh * 3);
      }
      STORE_NARROW(oh, sum);
    }
#endif
  }
}

// The data gradient of stride 2 in rows of more than LANES gradients: of each gradient
// with those right of and below it, four elements.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_3x3_spread(DEPTHWISE_3X3_PARAMETERS) {
  DEPTHWISE_3X3_PLACES
  for (int ih = begin / 2; ih < (end + 1) / 2; ++ih) {
    const global storage_t *row = in + ih * source_stride.s2;
    const int has_below = ih + 1 < source_size.s0;
    const int has_lower = 2 * ih + 1 < end;
    global storage_t *to = target + 2 * ih * out_stride.s2;
#define SPREAD_STRIP(at, is_left, is_right)                                               \
  {                                                                                       \
    const lanes_t here = LOAD_LANES(row + (at));                                          \
    const lanes_t right = is_right ? SHIFTED_DOWN(here) : LOAD_LANES(row + (at) + 1);     \
    lanes_t below = 0;                                                                    \
    lanes_t below_right = 0;                                                              \
    if (has_below) {                                                                      \
      below = LOAD_LANES(row + source_stride.s2 + (at));                                  \
      below_right =                                                                       \
          is_right ? SHIFTED_DOWN(below) : LOAD_LANES(row + source_stride.s2 + (at) + 1); \
    }                                                                                     \
    STORE_TURNS(to + 2 * (at), base + factors[4] * here,                                  \
                base + factors[3] * here + factors[5] * right)                            \
    if (has_lower)                                                                        \
      STORE_TURNS(to + out_stride.s2 + 2 * (at),                                          \
                  base + factors[1] * here + factors[7] * below,                          \
                  base + factors[0] * here + factors[2] * right +                         \
                      factors[6] * below + factors[8] * below_right)                      \
  }
// Interleaved vectors.
#define STORE_TURNS(p, even_lanes, odd_lanes)                 \
  {                                                           \
    const lanes_t e = even_lanes;                             \
    const lanes_t o = odd_lanes;                              \
    store_full_lanes_nt((p), INTERLEAVED_LOW(e, o));          \
    store_full_lanes_nt((p) + LANES, INTERLEAVED_HIGH(e, o)); \
  }
    FOR_EACH_STRIP(source_size.s1, SPREAD_STRIP)
  }
}
