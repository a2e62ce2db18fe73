// im2col and col2im: the columns of an image, laid out as a tensor of
// (batch, channel x kernel height x kernel width, pixel), and their sum.
//
// A work-item makes one element of what is written: x is its pixel (im2col) or
// its width (col2im), y counts the other dimensions. Strides are any.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif
#ifndef IS_BOOL
#define IS_BOOL 0
#endif

// The host's Geometry. Axes are height and width.
typedef struct {
  long image_strides[4];
  long columns_strides[3];
  int channels;
  int image[2];
  int pixels[2];
  int kernel_size[2];
  int dilation[2];
  int padding[2];
  int stride[2];
} geometry_t;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void im2col(
    const geometry_t geometry, TENSOR(storage_t, columns), CONST_TENSOR(storage_t, image)) {
  const geometry_t *g = &geometry;
  const int pixel = get_global_id(0);
  if (pixel >= g->pixels[0] * g->pixels[1]) return;
  const int rows = g->channels * g->kernel_size[0] * g->kernel_size[1];
  const int batch = (int)get_global_id(1) / rows;
  const int row = (int)get_global_id(1) % rows;
  const int tap_w = row % g->kernel_size[1];
  const int tap_h = row / g->kernel_size[1] % g->kernel_size[0];
  const int channel = row / g->kernel_size[1] / g->kernel_size[0];
  const int h =
      pixel / g->pixels[1] * g->stride[0] - g->padding[0] + tap_h * g->dilation[0];
  const int w =
      pixel % g->pixels[1] * g->stride[1] - g->padding[1] + tap_w * g->dilation[1];
  compute_t value = 0;
  if (h >= 0 && h < g->image[0] && w >= 0 && w < g->image[1])
    value = LOAD(POINTER(image), batch * g->image_strides[0] + channel * g->image_strides[1] +
                                     h * g->image_strides[2] + w * g->image_strides[3]);
  STORE(POINTER(columns),
        batch * g->columns_strides[0] + row * g->columns_strides[1] +
            pixel * g->columns_strides[2],
        value);
}

// Of one channel and filter element, on CPUs: the columns of a row of pixels are the run of
// [begin, end) in a row of the image, and zeros.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void im2col_rows(
    const geometry_t geometry, TENSOR(storage_t, columns), CONST_TENSOR(storage_t, image)) {
  const geometry_t *g = &geometry;
  const int row = get_global_id(0);
  const int batch = get_global_id(1);
  const int tap_w = row % g->kernel_size[1];
  const int tap_h = row / g->kernel_size[1] % g->kernel_size[0];
  const int channel = row / g->kernel_size[1] / g->kernel_size[0];
  const int width = g->pixels[1];
  const int step = g->stride[1];
  const int first = tap_w * g->dilation[1] - g->padding[1];
  const int begin = clamp((step - 1 - first) / step, 0, width);
  const int end = clamp((g->image[1] - first + step - 1) / step, begin, width);
  const long to_step = g->columns_strides[2];
  const long from_step = step * g->image_strides[3];
  for (int pixel_h = 0; pixel_h < g->pixels[0]; ++pixel_h) {
    const int h = pixel_h * g->stride[0] - g->padding[0] + tap_h * g->dilation[0];
    const bool is_inside = h >= 0 && h < g->image[0];
    global storage_t *to = POINTER(columns) + batch * g->columns_strides[0] +
                           row * g->columns_strides[1] + (long)pixel_h * width * to_step;
    const global storage_t *from = POINTER(image) + batch * g->image_strides[0] +
                                   channel * g->image_strides[1] +
                                   (is_inside ? h : 0) * g->image_strides[2] +
                                   first * g->image_strides[3];
    const int from_w = is_inside ? begin : width;
    const int to_w = is_inside ? end : width;
    for (int w = 0; w < from_w; ++w) STORE(to, w * to_step, (compute_t)0);
    if (to_step == 1 && from_step == 1) {
      for (int w = from_w; w < to_w; ++w) to[w] = from[w];
    } else {
      for (int w = from_w; w < to_w; ++w) to[w * to_step] = from[w * from_step];
    }
    for (int w = to_w; w < width; ++w) STORE(to, w * to_step, (compute_t)0);
  }
}

// The pixel whose window has this position at a filter element, or -1.
inline int pixel_of(const geometry_t *g, int axis, int position, int element) {
  const int begin = position + g->padding[axis] - element * g->dilation[axis];
  const int pixel = begin / g->stride[axis];
  return begin < 0 || pixel * g->stride[axis] != begin || pixel >= g->pixels[axis] ? -1
                                                                                   : pixel;
}

// An element gathers its copies in the order of the filter elements.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void col2im(
    const geometry_t geometry, TENSOR(storage_t, image), CONST_TENSOR(storage_t, columns)) {
  const geometry_t *g = &geometry;
  const int w = get_global_id(0);
  if (w >= g->image[1]) return;
  int rest = get_global_id(1);
  const int h = rest % g->image[0];
  rest /= g->image[0];
  const int channel = rest % g->channels;
  const int batch = rest / g->channels;
  compute_t sum = 0;
  for (int tap_h = 0; tap_h < g->kernel_size[0]; ++tap_h) {
    const int pixel_h = pixel_of(g, 0, h, tap_h);
    if (pixel_h < 0) continue;
    for (int tap_w = 0; tap_w < g->kernel_size[1]; ++tap_w) {
      const int pixel_w = pixel_of(g, 1, w, tap_w);
      if (pixel_w < 0) continue;
      const int row = (channel * g->kernel_size[0] + tap_h) * g->kernel_size[1] + tap_w;
      const long pixel = (long)pixel_h * g->pixels[1] + pixel_w;
      const compute_t value =
          LOAD(POINTER(columns), batch * g->columns_strides[0] + row * g->columns_strides[1] +
                                     pixel * g->columns_strides[2]);
#if IS_BOOL
      sum |= value;
#else
      sum += value;
#endif
    }
  }
  STORE(POINTER(image),
        batch * g->image_strides[0] + channel * g->image_strides[1] +
            h * g->image_strides[2] + w * g->image_strides[3],
        sum);
}
