// Depthwise convolution where channels are innermost (channels_last): forward, and
// with the taps reversed the data gradient, whose source is spread by the stride.

#include "types.clh"
#include "lanes.clh"
#include "fetch.clh"
#include "depthwise_square.clh"

#ifndef CHANNELS
#define CHANNELS 512  // of one work-item at most
#endif
#ifndef PREFETCH
#define PREFETCH 0  // pixels are apart and come from memory
#endif
#define STRIP 4  // outputs of a row that share what they read
#define WINDOW (((STRIP - 1) * STRIDE + PHASE + KERNEL - 1) / UP + 1)

#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)
#define STORE_LANES(p, value) CONCAT(store_lanes_, DTYPE)(p, value)

// Adds what the source's WINDOW pixels from column `first` of a row on give to a
// strip of outputs.
static inline void add_row(lanes_t *sums, const lanes_t *factors, const global storage_t *row,
                           int pixel_stride, int first, int width, int is_inside) {
#pragma unroll
  for (int i = 0; i < WINDOW; ++i) {
    lanes_t value;
    if (is_inside) {
      value = LOAD_LANES(row + (first + i) * pixel_stride);
    } else {
      const int column = clamp(first + i, 0, width - 1);
      value = LOAD_LANES(row + column * pixel_stride);
      value = column == first + i ? value : (lanes_t)0;
    }
#pragma unroll
    for (int o = 0; o < STRIP; ++o) {
      const int kw = i * UP - o * STRIDE - PHASE;
      if (kw >= 0 && kw < KERNEL) sums[o] = fma(factors[kw], value, sums[o]);
    }
  }
}

// One work-item: up to CHANNELS channels, LANES at least, of `rows` of the images'
// rows, numbered through the batch. Pairs are (h, w); strides are (n, c, h, w); the weight's are (first
// element, channel, h, w).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_strips(CONST_TENSOR(storage_t, source), CONST_TENSOR(storage_t, weight),
                      CONST_TENSOR(storage_t, bias), TENSOR(storage_t, out), const int channels,
                      const int channels_at_once, const int2 source_size, const int2 out_size,
                      const int2 padding, const int images, const int4 source_stride,
                      const int4 weight_stride, const int4 out_stride, const int bias_stride,
                      const int has_bias, const int rows) {
  const int first_channel = get_global_id(0) * channels_at_once;
  const int vectors =
      (min(channels_at_once, channels - first_channel) + LANES - 1) / LANES;
  const int begin = get_global_id(1) * rows;
  const int end = min(images * out_size.s0, begin + rows);
  // The last vector overlaps its neighbour.
  const int last = channels - LANES;
  lanes_t factors[CHANNELS / LANES * TAPS];
  lanes_t bases[CHANNELS / LANES];
  for (int v = 0; v < vectors; ++v) {
    const int channel = min(first_channel + v * LANES, last);
    for (int tap = 0; tap < TAPS; ++tap) {
      factors[v * TAPS + tap] = load_lanes(
          POINTER(weight) + weight_stride.s0 + channel * weight_stride.s1 +
              tap / KERNEL * weight_stride.s2 + tap % KERNEL * weight_stride.s3,
          0, weight_stride.s1, LANES);
    }
    bases[v] = has_bias ? load_lanes(POINTER(bias), channel * bias_stride, bias_stride, LANES)
                        : (lanes_t)0;
  }

  for (int row_of_batch = begin; row_of_batch < end; ++row_of_batch) {
    const int n = row_of_batch / out_size.s0;
    const int oh = row_of_batch % out_size.s0;
    const int position = oh * STRIDE - padding.s0;
    const int inside_kh = max(0, -position);
    const int first_kh = inside_kh + (position + inside_kh) % UP;
    const int end_kh = min(KERNEL, (source_size.s0 - 1) * UP + 1 - position);
    const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0;
    global storage_t *target =
        POINTER(out) + (size_t)n * out_stride.s0 + oh * out_stride.s2;
    for (int strip = 0; strip < out_size.s1; strip += STRIP) {
      // The last strip overlaps its neighbour, unless taps depend on its parity.
      const int ow = UP > 1 ? strip : max(0, min(strip, out_size.s1 - STRIP));
      const int outputs = min(STRIP, out_size.s1 - ow);
      const int iw = (ow * STRIDE - padding.s1 - PHASE) / UP;
      const int is_inside = iw >= 0 && iw + WINDOW <= source_size.s1;
      for (int v = 0; v < vectors; ++v) {
        const int channel = min(first_channel + v * LANES, last);
        lanes_t sums[STRIP];
#pragma unroll
        for (int o = 0; o < STRIP; ++o) sums[o] = bases[v];
#if PREFETCH
        // What the next row of outputs reads first.
        if (oh + 1 < out_size.s0) {
#pragma unroll
          for (int kh = KERNEL; kh < KERNEL + STRIDE; ++kh) {
            const int ih = (position + kh) / UP;
            if ((position + kh) % UP != 0 || ih >= source_size.s0) continue;
#pragma unroll
            for (int i = 0; i < STRIP * STRIDE / UP; ++i) {
              fetch(in + ih * source_stride.s2 + (iw + i) * source_stride.s3 + channel);
            }
          }
        }
#endif
        for (int kh = first_kh; kh < end_kh; kh += UP) {
          const lanes_t *row_factors = factors + v * TAPS + kh * KERNEL;
          const global storage_t *row = in + (position + kh) / UP * source_stride.s2 + channel;
          if (is_inside) {
            add_row(sums, row_factors, row, source_stride.s3, iw, source_size.s1, 1);
          } else {
            add_row(sums, row_factors, row, source_stride.s3, iw, source_size.s1, 0);
          }
        }
#pragma unroll
        for (int o = 0; o < STRIP; ++o) {
          if (o < outputs) STORE_LANES(target + (ow + o) * out_stride.s3 + channel, sums[o]);
        }
      }
    }
  }
}
