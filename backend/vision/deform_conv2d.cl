// Deformable convolution (Zhu, Hu, Lin, Dai, Deformable ConvNets v2, 2019): the
// image is sampled where offsets say, and the samples, as columns of a matrix,
// are multiplied with the weights elsewhere.
//
// columns: (channel, filter element) x output position, a work-item an element. The gradient
// of the image is made by planes, each by one work-item, or on GPUs by segments.h of
// the pixels that are said here; that of offsets and masks by a sum over the channels
// of their group. One image a launch.

#include "types.clh"
#include "segments.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

typedef struct {
  int channels;
  int height;
  int width;
  int kernel_height;
  int kernel_width;
  int out_height;
  int out_width;
  int stride[2];
  int padding[2];
  int dilation[2];
  int groups;  // of offsets
  int masked;
} geometry_t;

typedef struct {
  compute_t y;
  compute_t x;
  compute_t mask;
} sample_t;

// Where filter element `element` of offset group `group` looks for output `position`.
inline sample_t sample_of(const geometry_t *g,
                          const global storage_t *offset,
                          const global storage_t *mask,
                          int group,
                          int element,
                          int position) {
  const int filter_size = g->kernel_height * g->kernel_width;
  const size_t plane = (size_t)g->out_height * g->out_width;
  const size_t at = ((size_t)group * filter_size + element) * plane + position;
  const size_t at_offset = ((size_t)group * filter_size + element) * 2 * plane + position;
  const int y = position / g->out_width * g->stride[0] - g->padding[0] +
                element / g->kernel_width * g->dilation[0];
  const int x = position % g->out_width * g->stride[1] - g->padding[1] +
                element % g->kernel_width * g->dilation[1];
  sample_t sample;
  sample.y = y + LOAD(offset, at_offset);
  sample.x = x + LOAD(offset, at_offset + plane);
  sample.mask = g->masked ? LOAD(mask, at) : (compute_t)1;
  return sample;
}

inline int is_inside(const geometry_t *g, sample_t s) {
  return s.y > -1 && s.y < g->height && s.x > -1 && s.x < g->width;
}

inline compute_t pixel_at(const geometry_t *g, const global storage_t *plane, int y, int x) {
  const int inside = y >= 0 && y < g->height && x >= 0 && x < g->width;
  return inside ? LOAD(plane, (size_t)y * g->width + x) : (compute_t)0;
}

inline compute_t interpolate(const geometry_t *g, const global storage_t *plane, sample_t s) {
  if (!is_inside(g, s)) return 0;
  const int y = (int)floor(s.y);
  const int x = (int)floor(s.x);
  const compute_t ly = s.y - y;
  const compute_t lx = s.x - x;
  return (1 - ly) * ((1 - lx) * pixel_at(g, plane, y, x) + lx * pixel_at(g, plane, y, x + 1)) +
         ly * ((1 - lx) * pixel_at(g, plane, y + 1, x) + lx * pixel_at(g, plane, y + 1, x + 1));
}

// An output position of a row, a filter element of a channel or of a group.
#define POSITION_OF_ITEM                                       \
  const geometry_t *g = &geometry;                             \
  const int positions = g->out_height * g->out_width;          \
  const int position = get_global_id(0);                       \
  const int row = get_global_id(1);                            \
  if (position >= positions) return;                           \
  const int filter_size = g->kernel_height * g->kernel_width;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void deformable_columns(
    const geometry_t geometry,
    TENSOR(storage_t, columns),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, offset),
    CONST_TENSOR(storage_t, mask)) {
  POSITION_OF_ITEM
  const int channel = row / filter_size;
  const int group = channel / (g->channels / g->groups);
  const sample_t sample =
      sample_of(g, POINTER(offset), POINTER(mask), group, row % filter_size, position);
  const global storage_t *plane = POINTER(image) + (size_t)channel * g->height * g->width;
  STORE(POINTER(columns), (size_t)row * positions + position,
        sample.mask * interpolate(g, plane, sample));
}

inline void add_element(
    const geometry_t *g, global compute_t *plane, int y, int x, compute_t value) {
  if (y >= 0 && y < g->height && x >= 0 && x < g->width)
    plane[(size_t)y * g->width + x] += value;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void deformable_image_backward(
    const geometry_t geometry,
    TENSOR(compute_t, grad_image),
    CONST_TENSOR(storage_t, grad_columns),
    CONST_TENSOR(storage_t, offset),
    CONST_TENSOR(storage_t, mask)) {
  const geometry_t *g = &geometry;
  const int channel = get_global_id(0);
  if (channel >= g->channels) return;
  const int positions = g->out_height * g->out_width;
  const int filter_size = g->kernel_height * g->kernel_width;
  const int group = channel / (g->channels / g->groups);
  const size_t size = (size_t)g->height * g->width;
  global compute_t *plane = POINTER(grad_image) + channel * size;
  for (size_t i = 0; i < size; ++i) plane[i] = 0;
  for (int element = 0; element < filter_size; ++element)
    for (int position = 0; position < positions; ++position) {
      const sample_t s = sample_of(g, POINTER(offset), POINTER(mask), group, element, position);
      if (!is_inside(g, s)) continue;
      const compute_t gradient =
          s.mask * LOAD(POINTER(grad_columns),
                        ((size_t)channel * filter_size + element) * positions + position);
      const int y = (int)floor(s.y);
      const int x = (int)floor(s.x);
      const compute_t ly = s.y - y;
      const compute_t lx = s.x - x;
      add_element(g, plane, y, x, (1 - ly) * (1 - lx) * gradient);
      add_element(g, plane, y, x + 1, (1 - ly) * lx * gradient);
      add_element(g, plane, y + 1, x, ly * (1 - lx) * gradient);
      add_element(g, plane, y + 1, x + 1, ly * lx * gradient);
    }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void deformable_offset_backward(
    const geometry_t geometry,
    TENSOR(storage_t, grad_offset),
    TENSOR(storage_t, grad_mask),
    CONST_TENSOR(storage_t, grad_columns),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, offset),
    CONST_TENSOR(storage_t, mask)) {
  POSITION_OF_ITEM
  const int group = row / filter_size;
  const int element = row % filter_size;
  const int channels = g->channels / g->groups;
  const sample_t s = sample_of(g, POINTER(offset), POINTER(mask), group, element, position);
  const int inside = is_inside(g, s);
  const int y = (int)floor(s.y);
  const int x = (int)floor(s.x);
  const compute_t ly = s.y - y;
  const compute_t lx = s.x - x;
  compute_t sum_y = 0;
  compute_t sum_x = 0;
  compute_t sum_mask = 0;
  // As in torchvision, slopes are those of the pixels around, of a sample at -1, too.
  for (int c = group * channels; c < (group + 1) * channels; ++c) {
    const global storage_t *plane = POINTER(image) + (size_t)c * g->height * g->width;
    const compute_t gradient =
        LOAD(POINTER(grad_columns), ((size_t)c * filter_size + element) * positions + position);
    const compute_t v00 = pixel_at(g, plane, y, x);
    const compute_t v01 = pixel_at(g, plane, y, x + 1);
    const compute_t v10 = pixel_at(g, plane, y + 1, x);
    const compute_t v11 = pixel_at(g, plane, y + 1, x + 1);
    sum_y += gradient * ((1 - lx) * (v10 - v00) + lx * (v11 - v01));
    sum_x += gradient * ((1 - ly) * (v01 - v00) + ly * (v11 - v10));
    if (inside)
      sum_mask += gradient * ((1 - ly) * ((1 - lx) * v00 + lx * v01) +
                              ly * ((1 - lx) * v10 + lx * v11));
  }
  const size_t at_offset = (size_t)row * 2 * positions + position;
  STORE(POINTER(grad_offset), at_offset, s.mask * sum_y);
  STORE(POINTER(grad_offset), at_offset + positions, s.mask * sum_x);
  if (g->masked) STORE(POINTER(grad_mask), (size_t)row * positions + position, sum_mask);
}

// Of each offset group, filter element and position the four pixels that were sampled,
// and their weights.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void deformable_targets(
    const geometry_t geometry,
    TENSOR(int, targets),
    TENSOR(compute_t, weights),
    CONST_TENSOR(storage_t, offset),
    CONST_TENSOR(storage_t, mask)) {
  POSITION_OF_ITEM
  const sample_t s = sample_of(g, POINTER(offset), POINTER(mask), row / filter_size,
                               row % filter_size, position);
  const int is_sampled = is_inside(g, s);
  const int top = is_sampled ? (int)floor(s.y) : -1;
  const int left = is_sampled ? (int)floor(s.x) : -1;
  const compute_t ly = s.y - top;
  const compute_t lx = s.x - left;
  for (int corner = 0; corner < 4; ++corner) {
    const int y = top + (corner >> 1);
    const int x = left + (corner & 1);
    const size_t at = ((size_t)row * positions + position) * 4 + corner;
    POINTER(targets)[at] =
        is_sampled && y >= 0 && y < g->height && x >= 0 && x < g->width ? y * g->width + x
                                                                        : NOWHERE;
    POINTER(weights)[at] =
        s.mask * (corner & 2 ? ly : 1 - ly) * (corner & 1 ? lx : 1 - lx);
  }
}
