// Depthwise convolution of small planes, whose rows are shorter than vectors or
// little longer: LANES planes at a time are transposed in registers, so that channels are
// innermost, and worked on in the nearest caches. Planes are dense.
//
// Forward, data gradients (with the filter elements reversed, the source spread by UP) and
// weight gradients. Pairs are (h, w); strides are (n, c, h, w).

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "depthwise_square.clh"

#ifndef PIXELS
#define PIXELS 1024  // of a plane with its padding at most
#endif
#ifndef GROUP
#define GROUP FILTER_SIZE  // filter elements whose sums fit the registers together
#endif
#define GROUPS (FILTER_SIZE / GROUP)
// Elements of a padded side that `outputs` of them reach.
#define REACH(outputs) ((((outputs) - 1) * STRIDE + PHASE + KERNEL - 1) / UP + 1)

#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)

// Where a block of LANES pixels begins: the last one overlaps its neighbour.
#define BLOCK_AT(p, size) max(0, min(p, (size) - LANES))

// LANES planes of `count` pixels, pixel by pixel.
static inline void turn(lanes_t *pixels, const global storage_t *planes, int plane_stride,
                        int count) {
  if (count < LANES) {
    for (int i = 0; i < count; ++i) pixels[i] = load_lanes(planes, i, plane_stride, LANES);
    return;
  }
  for (int p = 0; p < count; p += LANES) {
    const int first = BLOCK_AT(p, count);
    lanes_t block[LANES];
#pragma unroll
    for (int c = 0; c < LANES; ++c) block[c] = LOAD_LANES(planes + c * plane_stride + first);
    transpose(block);
#pragma unroll
    for (int i = 0; i < LANES; ++i) pixels[first + i] = block[i];
  }
}

// The same into a padded plane of `columns` columns, whose first element is the
// source's at -`origin`.
static inline void turn_padded(lanes_t *padded, const global storage_t *planes,
                               int plane_stride, int2 size, int2 origin, int rows,
                               int columns) {
  lanes_t pixels[PIXELS];
  turn(pixels, planes, plane_stride, size.s0 * size.s1);
  const int end_row = min(size.s0, rows - origin.s0);
  const int end_column = min(size.s1, columns - origin.s1);
  for (int row = 0; row < end_row; ++row) {
    for (int column = 0; column < end_column; ++column) {
      padded[(row + origin.s0) * columns + column + origin.s1] = pixels[row * size.s1 + column];
    }
  }
}

// One work-item: LANES channels of `images_at_once` images. The weight's strides are
// (first element, channel, h, w).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_planes(TENSOR(storage_t, out), CONST_TENSOR(storage_t, source),
                      CONST_TENSOR(storage_t, weight), CONST_TENSOR(storage_t, bias),
                      const int channels, const int images, const int2 source_size,
                      const int2 out_size, const int2 padding, const int4 source_stride,
                      const int4 weight_stride, const int4 out_stride, const int bias_stride,
                      const int has_bias, const int images_at_once) {
  // The last vector overlaps its neighbour.
  const int channel = min((int)get_global_id(0) * LANES, channels - LANES);
  const int begin = get_global_id(1) * images_at_once;
  const int end = min(images, begin + images_at_once);
  const int rows = REACH(out_size.s0);
  const int columns = REACH(out_size.s1);
  const int2 origin = (padding + PHASE) / UP;
  const int count = out_size.s0 * out_size.s1;
  lanes_t padded[PIXELS];
  lanes_t outputs[PIXELS];
  lanes_t factors[FILTER_SIZE];
  for (int i = 0; i < rows * columns; ++i) padded[i] = 0;
  for (int element = 0; element < FILTER_SIZE; ++element) {
    factors[element] = load_lanes(POINTER(weight) + weight_stride.s0 +
                                  channel * weight_stride.s1 + element / KERNEL * weight_stride.s2 +
                                  element % KERNEL * weight_stride.s3,
                              0, weight_stride.s1, LANES);
  }
  lanes_t base = 0;
  if (has_bias) base = load_lanes(POINTER(bias), channel * bias_stride, bias_stride, LANES);

  for (int n = begin; n < end; ++n) {
    turn_padded(padded,
                POINTER(source) + (size_t)n * source_stride.s0 + channel * source_stride.s1,
                source_stride.s1, source_size, origin, rows, columns);
    // Filter elements of outputs that differ by UP fall on elements, the same ones.
#pragma unroll
    for (int h = 0; h < UP; ++h) {
#pragma unroll
      for (int w = 0; w < UP; ++w) {
        for (int oh = h; oh < out_size.s0; oh += UP) {
          const lanes_t *row = padded + oh / UP * STRIDE * columns;
          for (int ow = w; ow < out_size.s1; ow += UP) {
            lanes_t sum = base;
#pragma unroll
            for (int element = 0; element < FILTER_SIZE; ++element) {
              const int down = h + element / KERNEL + PHASE;
              const int right = w + element % KERNEL + PHASE;
              if (down % UP == 0 && right % UP == 0) {
                sum = fma(factors[element],
                          row[down / UP * columns + ow / UP * STRIDE + right / UP], sum);
              }
            }
            outputs[oh * out_size.s1 + ow] = sum;
          }
        }
      }
    }
    global storage_t *target =
        POINTER(out) + (size_t)n * out_stride.s0 + channel * out_stride.s1;
    for (int p = 0; p < count; p += LANES) {
      const int first = BLOCK_AT(p, count);
      if (count < LANES) {
        for (int i = 0; i < count; ++i) {
          store_lanes(target, i, out_stride.s1, LANES, outputs[i]);
        }
        continue;
      }
      lanes_t pixels[LANES];
#pragma unroll
      for (int i = 0; i < LANES; ++i) pixels[i] = outputs[first + i];
      transpose(pixels);
#pragma unroll
      for (int c = 0; c < LANES; ++c) {
        CONCAT(store_lanes_, DTYPE)(target + c * out_stride.s1 + first, pixels[c]);
      }
    }
  }
}

// One work-item: the filter elements of LANES channels over `images_at_once` images, to
// partial[part][element][channel] (depthwise_weight_total.cl).
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void depthwise_weight_planes(CONST_TENSOR(storage_t, input), CONST_TENSOR(storage_t, grad),
                             TENSOR(compute_t, partial), const int channels,
                             const int channels_at_once, const int images, const int images_at_once,
                             const int2 input_size, const int2 grad_size, const int2 padding,
                             const int4 input_stride, const int4 grad_stride) {
  // The last vector overlaps its neighbour.
  const int channel = min((int)get_global_id(0) * channels_at_once, channels - LANES);
  const int part = get_global_id(1);
  const int end = min(images, (part + 1) * images_at_once);
  const int rows = REACH(grad_size.s0);
  const int columns = REACH(grad_size.s1);
  lanes_t padded[PIXELS];
  lanes_t factors[PIXELS];
  lanes_t sums[FILTER_SIZE];
  for (int i = 0; i < rows * columns; ++i) padded[i] = 0;
  for (int element = 0; element < FILTER_SIZE; ++element) sums[element] = 0;

  for (int n = part * images_at_once; n < end; ++n) {
    turn_padded(padded,
                POINTER(input) + (size_t)n * input_stride.s0 + channel * input_stride.s1,
                input_stride.s1, input_size, padding, rows, columns);
    turn(factors, POINTER(grad) + (size_t)n * grad_stride.s0 + channel * grad_stride.s1,
         grad_stride.s1, grad_size.s0 * grad_size.s1);
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      lanes_t group_sums[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; ++i) group_sums[i] = 0;
      for (int oh = 0; oh < grad_size.s0; ++oh) {
        for (int ow = 0; ow < grad_size.s1; ++ow) {
          const lanes_t factor = factors[oh * grad_size.s1 + ow];
          const lanes_t *from = padded + oh * STRIDE * columns + ow * STRIDE;
#pragma unroll
          for (int i = 0; i < GROUP; ++i) {
            const int element = group * GROUP + i;
            group_sums[i] =
                fma(factor, from[element / KERNEL * columns + element % KERNEL], group_sums[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < GROUP; ++i) sums[group * GROUP + i] += group_sums[i];
    }
  }
  for (int element = 0; element < FILTER_SIZE; ++element) {
    vstore16(sums[element], 0, POINTER(partial) + (size_t)(part * FILTER_SIZE + element) * channels + channel);
  }
}
