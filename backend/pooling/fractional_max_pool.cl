// Fractional max pooling with indices (flat positions in the image's plane).
// As on PyTorch's CPU a NaN wins over everything, and of equal maxima the
// first in row-major order.
//
// A work-item makes one output: x is its width, y counts batch, channel, depth
// and height. `starts` holds for each plane where its windows begin: those of
// all depths, then of all heights, then of all widths.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

// The host's Geometry; strides are those of batch, channel, depth, height and
// width, in elements.
typedef struct {
  long image_strides[5];
  long pooled_strides[5];
  long indices_strides[5];
  int channels;
  int image[3];
  int pooled[3];
  int kernel_size[3];
} geometry_t;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void fractional_max_pool(
    const geometry_t geometry,
    TENSOR(storage_t, out),
    TENSOR(long, indices),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(int, starts)) {
  const geometry_t *g = &geometry;
  const int x = get_global_id(0);
  if (x >= g->pooled[2]) return;
  int rest = get_global_id(1);
  const int y = rest % g->pooled[1];
  rest /= g->pooled[1];
  const int z = rest % g->pooled[0];
  const int plane = rest / g->pooled[0];
  const int channel = plane % g->channels;
  const int batch = plane / g->channels;
  const global int *start =
      POINTER(starts) + (long)plane * (g->pooled[0] + g->pooled[1] + g->pooled[2]);
  // The samples come from the user: windows stay inside the image all the same.
  const int d_begin = clamp(start[z], 0, g->image[0] - g->kernel_size[0]);
  const int h_begin =
      clamp(start[g->pooled[0] + y], 0, g->image[1] - g->kernel_size[1]);
  const int w_begin =
      clamp(start[g->pooled[0] + g->pooled[1] + x], 0, g->image[2] - g->kernel_size[2]);
  const global storage_t *image =
      POINTER(self) + batch * g->image_strides[0] + channel * g->image_strides[1];
  compute_t best = -INFINITY;
  long where = ((long)d_begin * g->image[1] + h_begin) * g->image[2] + w_begin;
  for (int d = d_begin; d < d_begin + g->kernel_size[0]; ++d)
    for (int h = h_begin; h < h_begin + g->kernel_size[1]; ++h)
      for (int w = w_begin; w < w_begin + g->kernel_size[2]; ++w) {
        const compute_t value =
            LOAD(image, d * g->image_strides[2] + h * g->image_strides[3] +
                            w * g->image_strides[4]);
        if (value > best || isnan(value)) {
          best = value;
          where = ((long)d * g->image[1] + h) * g->image[2] + w;
        }
      }
  STORE(POINTER(out),
        batch * g->pooled_strides[0] + channel * g->pooled_strides[1] +
            z * g->pooled_strides[2] + y * g->pooled_strides[3] + x * g->pooled_strides[4],
        best);
  POINTER(indices)[batch * g->indices_strides[0] + channel * g->indices_strides[1] +
                   z * g->indices_strides[2] + y * g->indices_strides[3] +
                   x * g->indices_strides[4]] = where;
}
