// The weight's gradient of a depthwise convolution where channels are innermost
// (channels_last), by kernels of KERNEL_H x KERNEL_W.
//
// Square strides of STRIDE, undilated. Each work-item sums a part of the rows of all
// images into partial[part][element][channel], which depthwise_weight_total.cl adds up.

#include "types.clh"
#include "lanes.clh"
#include "prefetch.clh"

#ifndef KERNEL_H
#define KERNEL_H 3
#define KERNEL_W 3
#endif
#ifndef CHANNELS
#define CHANNELS 512  // of one work-item at most
#endif
#ifndef PREFETCH
#define PREFETCH 0  // images come from memory
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#define FILTER_SIZE (KERNEL_H * KERNEL_W)
#define ROW_TILE 28  // pixels of a row whose sums stay in registers
#ifndef ROWS
#define ROWS 1  // of filter elements, whose sums fit the registers together
#endif

#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)

// What the pixels begin..end - 1 of a gradient's row and the input's rows under them
// add to the sums of ROWS rows of filter elements. `grad` and `rows` are at the row's start.
static inline __attribute__((always_inline)) void add_pixels(
    lanes_t *sums, const global storage_t **rows, const global storage_t *grad, int begin,
    int end, int is_inside, int width, int padding, int input_row, int input_pixel,
    int grad_row, int grad_pixel) {
  for (int ow = begin; ow < end; ++ow) {
    const lanes_t factor = LOAD_LANES(grad + ow * grad_pixel);
    const int iw = ow * STRIDE - padding;
#if PREFETCH
    if (is_inside) {
      // What the gradient's next row needs first.
      PREFETCH(grad + grad_row + ow * grad_pixel);
#pragma unroll
      for (int r = 0; r < STRIDE; ++r) {
#pragma unroll
        for (int i = 0; i < STRIDE; ++i) {
          PREFETCH(rows[ROWS - 1] + (r + 1) * input_row + (iw + KERNEL_W - 1 - i) * input_pixel);
        }
      }
    }
#endif
#pragma unroll
    for (int kw = 0; kw < KERNEL_W; ++kw) {
      const int column = iw + kw;
      if (!is_inside && (column < 0 || column >= width)) continue;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const lanes_t value = LOAD_LANES(rows[r] + column * input_pixel);
        sums[r * KERNEL_W + kw] = fma(factor, value, sums[r * KERNEL_W + kw]);
      }
    }
  }
}

// One work-item: up to CHANNELS channels, LANES at least, of a part. Pairs are
// (h, w); strides are (n, c, h, w).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_row_tiles(CONST_TENSOR(storage_t, input), CONST_TENSOR(storage_t, grad),
                             TENSOR(compute_t, partial), const int channels,
                             const int channels_at_once, const int images, const int rows,
                             const int2 input_size, const int2 grad_size, const int2 padding,
                             const int4 input_stride, const int4 grad_stride) {
  const int first_channel = get_global_id(0) * channels_at_once;
  const int vectors =
      (min(channels_at_once, channels - first_channel) + LANES - 1) / LANES;
  const int part = get_global_id(1);
  const int end = min(images * grad_size.s0, (part + 1) * rows);
  // The last vector overlaps its neighbour.
  const int last = channels - LANES;
  // Columns whose filter elements are all inside of the image.
  const int inner_begin = (max(0, padding.s1) + STRIDE - 1) / STRIDE;
  const int reach = input_size.s1 + padding.s1 - KERNEL_W;
  const int inner_end = reach < 0 ? 0 : min(grad_size.s1, reach / STRIDE + 1);
  lanes_t sums[CHANNELS / LANES * FILTER_SIZE];
  for (int i = 0; i < vectors * FILTER_SIZE; ++i) sums[i] = 0;

  for (int i = part * rows; i < end; ++i) {
    const int oh = i % grad_size.s0;
    const int n = i / grad_size.s0;
    for (int row_tile = 0; row_tile < grad_size.s1; row_tile += ROW_TILE) {
      const int tile_end = min(grad_size.s1, row_tile + ROW_TILE);
      const int left_end = clamp(inner_begin, row_tile, tile_end);
      const int right_begin = clamp(inner_end, left_end, tile_end);
      for (int v = 0; v < vectors; ++v) {
        const int channel = min(first_channel + v * LANES, last);
        const global storage_t *in =
            POINTER(input) + (size_t)n * input_stride.s0 + channel;
        const global storage_t *from = POINTER(grad) + (size_t)n * grad_stride.s0 +
                                       oh * grad_stride.s2 + channel;
        for (int kh = 0; kh < KERNEL_H; kh += ROWS) {
          const int first_row = oh * STRIDE - padding.s0 + kh;
          if (ROWS == 1 && (first_row < 0 || first_row >= input_size.s0)) continue;
          // Of several, those beside the image are summed as well, and dropped.
          const global storage_t *row[ROWS];
          lanes_t row_sums[ROWS * KERNEL_W];
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const int ih = first_row + r;
            row[r] = in + clamp(ih, 0, input_size.s0 - 1) * input_stride.s2;
#pragma unroll
            for (int kw = 0; kw < KERNEL_W; ++kw) row_sums[r * KERNEL_W + kw] = 0;
          }
#define ADD_PIXELS(begin, end, is_inside)                                           \
  add_pixels(row_sums, row, from, begin, end, is_inside, input_size.s1, padding.s1, \
             input_stride.s2, input_stride.s3, grad_stride.s2, grad_stride.s3)
          ADD_PIXELS(row_tile, left_end, 0);
          ADD_PIXELS(left_end, right_begin, 1);
          ADD_PIXELS(right_begin, tile_end, 0);
          lanes_t *into = sums + v * FILTER_SIZE + kh * KERNEL_W;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const int ih = first_row + r;
            if (kh + r >= KERNEL_H || ih < 0 || ih >= input_size.s0) continue;
#pragma unroll
            for (int kw = 0; kw < KERNEL_W; ++kw) {
              into[r * KERNEL_W + kw] += row_sums[r * KERNEL_W + kw];
            }
          }
        }
      }
    }
  }
  for (int v = 0; v < vectors; ++v) {
    const int channel = min(first_channel + v * LANES, last);
    for (int element = 0; element < FILTER_SIZE; ++element) {
      vstore16(sums[v * FILTER_SIZE + element], 0,
               POINTER(partial) + (size_t)(part * FILTER_SIZE + element) * channels + channel);
    }
  }
}
