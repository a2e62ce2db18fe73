// Depthwise convolution where channels are innermost (channels_last): forward, and
// with the filter elements reversed the data gradient, whose source is spread by the stride.

#include "types.clh"
#include "lanes.clh"
#include "prefetch.clh"
#include "depthwise_square.clh"

#ifndef CHANNELS
#define CHANNELS 512  // of one work-item at most
#endif
#ifndef PREFETCH
#define PREFETCH 0  // pixels are apart and come from memory
#endif
#ifndef ROWS
#define ROWS 4  // of outputs that share what they read, a multiple of UP
#endif
#ifndef DILATION
#define DILATION 1  // or 2, with a KERNEL of 3 and an UP of 1
#endif
#ifndef PHASE_H
#define PHASE_H PHASE  // of rows; PHASE is that of columns
#endif
// Larger kernels would take PoCL seconds to compile unrolled, and are no faster by
// several rows that are not.
#if KERNEL == 3
#define ROW_TILE 2  // outputs of a row that share what they read
#define UNROLL_ROWS _Pragma("unroll")
#else
#define ROW_TILE 4
#define UNROLL_ROWS _Pragma("unroll 1")
#endif
// Pixels or rows of the source under `outputs` neighbours.
#define WINDOW(outputs, phase) \
  ((((outputs) - 1) * STRIDE + (phase) + (KERNEL - 1) * DILATION) / UP + 1)
// The filter element that is `distance` into the window, if there is one.
#define HAS_ELEMENT(distance) \
  ((distance) >= 0 && (distance) % DILATION == 0 && (distance) / DILATION < KERNEL)

#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)
#define STORE_LANES(p, value) CONCAT(store_lanes_, DTYPE)(p, value)

// Adds what the pixels from column `first` of the source's r-th row under a tile of
// outputs give to them.
static inline __attribute__((always_inline)) void add_row(
    lanes_t *sums, const lanes_t *filter, const global storage_t *row, int r, int pixel_stride,
    int first, int width, int is_inside) {
#pragma unroll
  for (int i = 0; i < WINDOW(ROW_TILE, PHASE); ++i) {
    const int column = first + i;
    if (!is_inside && (uint)column >= (uint)width) continue;
    const lanes_t value = LOAD_LANES(row + column * pixel_stride);
#pragma unroll
    for (int q = 0; q < ROWS; ++q) {
      const int down = r * UP - q * STRIDE - PHASE_H;
      if (!HAS_ELEMENT(down)) continue;
#pragma unroll
      for (int o = 0; o < ROW_TILE; ++o) {
        const int right = i * UP - o * STRIDE - PHASE;
        if (HAS_ELEMENT(right)) {
          sums[q * ROW_TILE + o] = fma(filter[down / DILATION * KERNEL + right / DILATION], value,
                                    sums[q * ROW_TILE + o]);
        }
      }
    }
  }
}

#define ADD_ROWS(is_inside)                                                              \
  UNROLL_ROWS for (int r = 0; r < WINDOW(ROWS, PHASE_H); ++r) {                          \
    const int ih = first_row + r;                                                        \
    if ((uint)ih >= (uint)source_size.s0) continue;                                      \
    add_row(sums, filter, in + ih * source_stride.s2 + channel, r, source_stride.s3, iw, \
            source_size.s1, is_inside);                                                  \
  }

// One work-item: up to CHANNELS channels, LANES at least, of `groups` groups of ROWS
// rows, numbered through the batch. Pairs are (h, w); strides are (n, c, h, w); the
// weight's are (first element, channel, h, w).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_row_tiles(TENSOR(storage_t, out), CONST_TENSOR(storage_t, source),
                      CONST_TENSOR(storage_t, weight), CONST_TENSOR(storage_t, bias),
                      const int channels,
                      const int channels_at_once, const int2 source_size, const int2 out_size,
                      const int2 padding, const int images, const int4 source_stride,
                      const int4 weight_stride, const int4 out_stride, const int bias_stride,
                      const int has_bias, const int groups) {
  const int first_channel = get_global_id(0) * channels_at_once;
  const int vectors =
      (min(channels_at_once, channels - first_channel) + LANES - 1) / LANES;
  const int groups_of_image = (out_size.s0 + ROWS - 1) / ROWS;
  const int begin = get_global_id(1) * groups;
  const int end = min(images * groups_of_image, begin + groups);
  // The last vector overlaps its neighbour.
  const int last = channels - LANES;
  lanes_t factors[CHANNELS / LANES * FILTER_SIZE];
  lanes_t bases[CHANNELS / LANES];
  for (int v = 0; v < vectors; ++v) {
    const int channel = min(first_channel + v * LANES, last);
    for (int element = 0; element < FILTER_SIZE; ++element) {
      factors[v * FILTER_SIZE + element] = load_lanes(
          POINTER(weight) + weight_stride.s0 + channel * weight_stride.s1 +
              element / KERNEL * weight_stride.s2 + element % KERNEL * weight_stride.s3,
          0, weight_stride.s1, LANES);
    }
    bases[v] = has_bias ? load_lanes(POINTER(bias), channel * bias_stride, bias_stride, LANES)
                        : (lanes_t)0;
  }

  for (int group = begin; group < end; ++group) {
    const int n = group / groups_of_image;
    const int row = group % groups_of_image * ROWS;
    // The last rows and the last row tile overlap their neighbours, unless filter elements
    // depend on their parity.
    const int oh = UP > 1 ? row : max(0, min(row, out_size.s0 - ROWS));
    const int first_row = (oh * STRIDE - padding.s0 - PHASE_H) / UP;
    const global storage_t *in = POINTER(source) + (size_t)n * source_stride.s0;
    global storage_t *target =
        POINTER(out) + (size_t)n * out_stride.s0 + oh * out_stride.s2;
    for (int row_tile = 0; row_tile < out_size.s1; row_tile += ROW_TILE) {
      const int ow = UP > 1 ? row_tile : max(0, min(row_tile, out_size.s1 - ROW_TILE));
      const int iw = (ow * STRIDE - padding.s1 - PHASE) / UP;
      const int is_inside = iw >= 0 && iw + WINDOW(ROW_TILE, PHASE) <= source_size.s1;
      const int is_whole = ow + ROW_TILE <= out_size.s1 && oh + ROWS <= out_size.s0;
      for (int v = 0; v < vectors; ++v) {
        const int channel = min(first_channel + v * LANES, last);
        const lanes_t *filter = factors + v * FILTER_SIZE;
        lanes_t sums[ROWS * ROW_TILE];
#pragma unroll
        for (int o = 0; o < ROWS * ROW_TILE; ++o) sums[o] = bases[v];
#if PREFETCH
        // What the next rows of outputs read first.
        if (oh + ROWS < out_size.s0) {
#pragma unroll
          for (int r = 0; r < ROWS * STRIDE / UP; ++r) {
            const int ih = first_row + WINDOW(ROWS, PHASE_H) + r;
            if (ih >= source_size.s0) continue;
#pragma unroll
            for (int i = 0; i < ROW_TILE * STRIDE / UP; ++i) {
              PREFETCH(in + ih * source_stride.s2 + (iw + i) * source_stride.s3 + channel);
            }
          }
        }
#endif
        if (is_inside) {
          ADD_ROWS(1)
        } else {
          ADD_ROWS(0)
        }
#pragma unroll
        for (int q = 0; q < ROWS; ++q) {
#pragma unroll
          for (int o = 0; o < ROW_TILE; ++o) {
            if (!is_whole && (oh + q >= out_size.s0 || ow + o >= out_size.s1)) continue;
            STORE_LANES(target + q * out_stride.s2 + (ow + o) * out_stride.s3 + channel,
                        sums[q * ROW_TILE + o]);
          }
        }
      }
    }
  }
}
