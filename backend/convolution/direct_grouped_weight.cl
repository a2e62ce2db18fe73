// Weight gradients of convolutions of groups of few channels, for cpu-class
// devices, without columns.
//
// A work-item sums a group's products over a part of the row tiles of all images. The
// output's gradient is laid into planes too, with zeros where the line between planes
// (direct_grouped.clh) is not an output, so that an element of the weight is one product of
// two lines. Small images are stacked. TILE x TILE products of vectors are summed in
// registers and transposed there, into one vector of sums.

#include "types.clh"
#include "lanes.clh"
#include "panels.clh"
#include "image_lines.clh"
#include "transpose_vectors.clh"
#include "direct_grouped.clh"

#define TILE 4
// Adds the second `count` vectors to the first.
#define FOLD(vectors, count)                          \
  _Pragma("unroll") for (int i = 0; i < count; ++i) { \
    vectors[i] += vectors[i + count];                 \
  }
#define TILES(count) (((count) + TILE - 1) / TILE)

// TILE x TILE sums of products at outputs alone, which lie in rows of `width`.
static lanes_t sums_of_outputs(const compute_t **factors, const compute_t **sources, int images,
                               int image_size, int rows, int pitch, int width) {
  compute_t sums[TILE * TILE] = {0};
  for (int n = 0; n < images; ++n) {
    for (int row = 0; row < rows; ++row) {
      for (int x = 0; x < width; ++x) {
        const int at = n * image_size + row * pitch + x;
        for (int i = 0; i < TILE * TILE; ++i) {
          sums[i] += factors[i / TILE][at] * sources[i % TILE][at];
        }
      }
    }
  }
  return vload16(0, sums);
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void direct_grouped_weight(CONST_TENSOR(storage_t, image), CONST_TENSOR(storage_t, grad),
                   TENSOR(compute_t, partial), const geometry_t g, const int images,
                   const int images_at_once, const int row_tiles, const int items,
                   const int items_at_once, const int4 image_stride, const int4 grad_stride,
                   const int extent, const int grad_extent) {
  const int pitch = pitch_of(&g);
  const int plane_rows = plane_rows_of(&g);
  const int image_size = plane_rows * pitch;
  const int plane_size = images_at_once * image_size + PLANE_SLACK;
  const int channel_size = plane_size * g.stride.x * g.stride.y;
  const int depth = g.channels * g.kernel_size.x * g.kernel_size.y;
  const int group = get_global_id(0);
  const int2 unit = (int2)(1, 1), none = (int2)(0, 0);

  compute_t planes[PLANES_SIZE] __attribute__((aligned(64)));
  compute_t grads[PLANES_SIZE] __attribute__((aligned(64)));
  compute_t totals[TOTALS_SIZE] __attribute__((aligned(64)));
  // Rows of images that a part lacks, and what a line's last vector reaches.
  for (int i = 0; i < PLANES_SIZE; i += 16) {
    vstore16((VECTOR)(0), 0, planes + i);
    vstore16((VECTOR)(0), 0, grads + i);
  }
  const int tiles = TILES(g.out_channels) * TILES(depth);
  for (int i = 0; i < tiles; ++i) {
    vstore16((VECTOR)(0), i, totals);
  }
  const int first_item = get_global_id(1) * items_at_once;
  for (int item = first_item; item < min(first_item + items_at_once, items); ++item) {
    const int first_row = item % row_tiles * g.rows;
    const int first_image = item / row_tiles * images_at_once;
    const int rows = min(g.rows, g.out_size.x - first_row);
    for (int n = 0; n < images_at_once; ++n) {
      const int is_image = first_image + n < images;
      LAY_PLANES(grads + n * image_size, POINTER(grad),
                 (first_image + n) * grad_stride.x + group * g.out_channels * grad_stride.y,
                 g.out_channels, plane_size, plane_size, pitch, plane_rows,
                 is_image ? rows : 0, first_row, unit, none, g.out_size, grad_stride,
                 grad_extent)
    }
    for (int c = 0; c < g.channels; c += g.channels_at_once) {
      const int channels = min(g.channels_at_once, g.channels - c);
      for (int n = 0; n < min(images_at_once, images - first_image); ++n) {
        LAY_PLANES(planes + n * image_size, POINTER(image),
                   (first_image + n) * image_stride.x +
                       (group * g.channels + c) * image_stride.y,
                   channels, channel_size, plane_size, pitch, plane_rows, plane_rows,
                   first_row, g.stride, g.padding, g.image_size, image_stride, extent)
      }
      const int first = c * g.kernel_size.x * g.kernel_size.y;
      const int last = min(depth, first + channels * g.kernel_size.x * g.kernel_size.y);
      const int line = (images_at_once - 1) * image_size + (rows - 1) * pitch + g.out_size.y;
      for (int k = first; k < last; k += TILE) {
        const compute_t *sources[TILE];
#pragma unroll
        for (int i = 0; i < TILE; ++i) {
          sources[i] = planes + offset_of(&g, min(k + i, last - 1) - first, channel_size,
                                          plane_size, pitch);
        }
        for (int o = 0; o < g.out_channels; o += TILE) {
          const compute_t *factors[TILE];
#pragma unroll
          for (int i = 0; i < TILE; ++i) {
            factors[i] = grads + min(o + i, g.out_channels - 1) * plane_size;
          }
          lanes_t sums[TILE * TILE];
#pragma unroll
          for (int i = 0; i < TILE * TILE; ++i) {
            sums[i] = 0;
          }
          for (int at = 0; at < line; at += 16) {
            lanes_t values[TILE];
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
              values[i] = vload16(0, sources[i] + at);
            }
#pragma unroll
            for (int row = 0; row < TILE; ++row) {
              const lanes_t factor = vload16(0, factors[row] + at);
#pragma unroll
              for (int i = 0; i < TILE; ++i) {
                sums[row * TILE + i] = fma(factor, values[i], sums[row * TILE + i]);
              }
            }
          }
          transpose(sums);
          FOLD(sums, 8)
          FOLD(sums, 4)
          FOLD(sums, 2)
          FOLD(sums, 1)
          // Maybe of a zero between outputs and an infinite value.
          if (any(isnan(sums[0]))) {
            sums[0] = sums_of_outputs(factors, sources,
                                      min(images_at_once, images - first_image), image_size,
                                      rows, pitch, g.out_size.y);
          }
          compute_t *total = totals + (o / TILE * TILES(depth) + k / TILE) * 16;
          vstore16(vload16(0, total) + sums[0], 0, total);
        }
      }
    }
  }
  const int groups = get_global_size(0);
  global compute_t *out = POINTER(partial) +
      (size_t)(get_global_id(1) * groups + group) * tiles * 16;
  for (int i = 0; i < tiles; ++i) {
    vstore16(vload16(i, totals), i, out);
  }
}
