// torchvision's roi_align, roi_pool, ps_roi_align and ps_roi_pool.
//
// Forward: a work-item makes one bin of one region and channel. Backward: a
// work-item owns one plane (image, channel) of the gradient and walks the
// regions in order, so nothing is added from two sides. The gradient is summed
// in compute_t. Of roi_align on GPUs a work-item says which pixels a bin's
// gradient goes to, and segments.h adds it up.

#include "types.clh"
#include "boxes.clh"
#include "segments.clh"

// Whether a work-item has a bin. That of a region without its image is zero.
inline bool has_bin(const geometry_t *g, size_t item, global storage_t *out, global int *info,
                    const global storage_t *regions, global report_t *record, int op) {
  if (item >= pooled_size(g)) return false;
  if (has_image(g, regions, bin_of(g, item).region, record, op)) return true;
  STORE(out, item, 0);
  info[item] = -1;
  return false;
}

#define FORWARD_PARAMETERS                                              \
  const geometry_t geometry, TENSOR(storage_t, out), TENSOR(int, info), \
      CONST_TENSOR(storage_t, image), CONST_TENSOR(storage_t, regions), \
      global report_t *record, const int op

#define BIN                                                                       \
  const geometry_t *g = &geometry;                                                \
  const size_t item = get_global_id(0);                                           \
  if (!has_bin(g, item, POINTER(out), POINTER(info), POINTER(regions), record, op)) \
    return;                                                                       \
  const bin_t bin = bin_of(g, item);

#define BACKWARD_PARAMETERS                                                   \
  const geometry_t geometry, TENSOR(compute_t, grad_image),                   \
      CONST_TENSOR(storage_t, grad), CONST_TENSOR(int, info),                 \
      CONST_TENSOR(storage_t, regions)

#define PLANE                                                           \
  const geometry_t *g = &geometry;                                      \
  const size_t item = get_global_id(0);                                 \
  if (item >= (size_t)g->images * g->channels) return;                  \
  const int batch = item / g->channels;                                 \
  const int channel = item % g->channels;                               \
  const size_t plane_size = (size_t)g->height * g->width;               \
  global compute_t *plane = POINTER(grad_image) + item * plane_size;    \
  for (size_t i = 0; i < plane_size; ++i) plane[i] = 0;

inline size_t pooled_at(const geometry_t *g, int region, int channel, int ph, int pw) {
  return (((size_t)region * g->pooled_channels + channel) * g->pooled_height + ph) *
             g->pooled_width + pw;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void roi_align_forward(FORWARD_PARAMETERS) {
  BIN
  const region_t region = sampled_region(g, POINTER(regions), bin.region, 0);
  const global storage_t *plane =
      POINTER(image) + region.image * g->strides[0] + bin.channel * g->strides[1];
  STORE(POINTER(out), item, bin_mean(g, &region, plane, bin.ph, bin.pw));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void roi_align_backward(BACKWARD_PARAMETERS) {
  PLANE
  for (int r = 0; r < g->regions; ++r) {
    const region_t region = sampled_region(g, POINTER(regions), r, 0);
    if (region.image != batch) continue;
    for (int ph = 0; ph < g->pooled_height; ++ph)
      for (int pw = 0; pw < g->pooled_width; ++pw)
        bin_mean_backward(g, &region, plane, ph, pw,
                          LOAD(POINTER(grad), pooled_at(g, r, channel, ph, pw)));
  }
}

// The four pixels of each sample of each bin, as rows of all images' pixels, and
// their weights. Bins have equally many samples.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void roi_align_targets(const geometry_t geometry, TENSOR(int, targets),
                       TENSOR(compute_t, weights), CONST_TENSOR(storage_t, regions)) {
  const geometry_t *g = &geometry;
  size_t item = get_global_id(0);
  const int ix = item % g->sampling_ratio;
  const int iy = item / g->sampling_ratio % g->sampling_ratio;
  const size_t bin = item / g->sampling_ratio / g->sampling_ratio;
  const int pw = bin % g->pooled_width;
  const int ph = bin / g->pooled_width % g->pooled_height;
  const size_t index = bin / g->pooled_width / g->pooled_height;
  if (index >= (size_t)g->regions) return;
  const region_t region = sampled_region(g, POINTER(regions), index, 0);
  const neighbours_t y = sample_row(g, &region, ph, iy);
  const neighbours_t x = sample_column(g, &region, pw, ix);
  const bool is_inside = y.inside && x.inside;
  const compute_t share = (compute_t)1 / (g->sampling_ratio * g->sampling_ratio);
  for (int corner = 0; corner < 4; ++corner) {
    const int row = corner & 2 ? y.high : y.low;
    const int column = corner & 1 ? x.high : x.low;
    POINTER(targets)[item * 4 + corner] =
        is_inside ? (region.image * g->height + row) * g->width + column : NOWHERE;
    POINTER(weights)[item * 4 + corner] = share * (corner & 2 ? y.weight : 1 - y.weight) *
                                          (corner & 1 ? x.weight : 1 - x.weight);
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void ps_roi_align_forward(FORWARD_PARAMETERS) {
  BIN
  const region_t region = sampled_region(g, POINTER(regions), bin.region, 1);
  const int channel = sensitive_channel(g, &bin);
  const global storage_t *plane =
      POINTER(image) + region.image * g->strides[0] + channel * g->strides[1];
  STORE(POINTER(out), item, bin_mean(g, &region, plane, bin.ph, bin.pw));
  POINTER(info)[item] = channel;
}

// A channel serves one bin of every region.
#define SENSITIVE_BIN                                        \
  const int pw = channel % g->pooled_width;                  \
  const int ph = channel / g->pooled_width % g->pooled_height; \
  const int pooled_channel = channel / g->pooled_width / g->pooled_height;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void ps_roi_align_backward(BACKWARD_PARAMETERS) {
  PLANE
  SENSITIVE_BIN
  for (int r = 0; r < g->regions; ++r) {
    const region_t region = sampled_region(g, POINTER(regions), r, 1);
    if (region.image != batch) continue;
    bin_mean_backward(g, &region, plane, ph, pw,
                      LOAD(POINTER(grad), pooled_at(g, r, pooled_channel, ph, pw)));
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void roi_pool_forward(FORWARD_PARAMETERS) {
  BIN
  const cells_t cells = cells_of(g, POINTER(regions), bin.region, 1);
  const global storage_t *plane =
      POINTER(image) + cells.image * g->strides[0] + bin.channel * g->strides[1];
  const int y_begin = cell_begin(cells.bin_height, bin.ph, cells.top, g->height);
  const int y_end = cell_end(cells.bin_height, bin.ph, cells.top, g->height);
  const int x_begin = cell_begin(cells.bin_width, bin.pw, cells.left, g->width);
  const int x_end = cell_end(cells.bin_width, bin.pw, cells.left, g->width);
  // As in torchvision: NaN is never the largest, and nothing below -FLT_MAX.
  int best = -1;
  compute_t largest = -FLT_MAX;
  for (int y = y_begin; y < y_end; ++y)
    for (int x = x_begin; x < x_end; ++x) {
      const compute_t value = LOAD(plane, y * g->strides[2] + x * g->strides[3]);
      if (value > largest) {
        best = y * g->width + x;
        largest = value;
      }
    }
  STORE(POINTER(out), item, y_end > y_begin && x_end > x_begin ? largest : 0);
  POINTER(info)[item] = best;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void roi_pool_backward(BACKWARD_PARAMETERS) {
  PLANE
  for (int r = 0; r < g->regions; ++r) {
    if (image_of(g, POINTER(regions), r) != batch) continue;
    for (int ph = 0; ph < g->pooled_height; ++ph)
      for (int pw = 0; pw < g->pooled_width; ++pw) {
        const size_t at = pooled_at(g, r, channel, ph, pw);
        const int best = POINTER(info)[at];
        if (best >= 0) plane[best] += LOAD(POINTER(grad), at);
      }
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void ps_roi_pool_forward(FORWARD_PARAMETERS) {
  BIN
  const cells_t cells = cells_of(g, POINTER(regions), bin.region, 0);
  const int channel = sensitive_channel(g, &bin);
  const global storage_t *plane =
      POINTER(image) + cells.image * g->strides[0] + channel * g->strides[1];
  const int y_begin = cell_begin(cells.bin_height, bin.ph, cells.top, g->height - 1);
  const int y_end = cell_end(cells.bin_height, bin.ph, cells.top, g->height - 1);
  const int x_begin = cell_begin(cells.bin_width, bin.pw, cells.left, g->width - 1);
  const int x_end = cell_end(cells.bin_width, bin.pw, cells.left, g->width - 1);
  compute_t sum = 0;
  for (int y = y_begin; y < y_end; ++y)
    for (int x = x_begin; x < x_end; ++x)
      sum += LOAD(plane, y * g->strides[2] + x * g->strides[3]);
  const int area = (y_end - y_begin) * (x_end - x_begin);
  STORE(POINTER(out), item, y_end > y_begin && x_end > x_begin ? sum / area : 0);
  POINTER(info)[item] = channel;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void ps_roi_pool_backward(BACKWARD_PARAMETERS) {
  PLANE
  SENSITIVE_BIN
  for (int r = 0; r < g->regions; ++r) {
    const cells_t cells = cells_of(g, POINTER(regions), r, 0);
    if (cells.image != batch) continue;
    const int y_begin = cell_begin(cells.bin_height, ph, cells.top, g->height - 1);
    const int y_end = cell_end(cells.bin_height, ph, cells.top, g->height - 1);
    const int x_begin = cell_begin(cells.bin_width, pw, cells.left, g->width - 1);
    const int x_end = cell_end(cells.bin_width, pw, cells.left, g->width - 1);
    const compute_t share =
        LOAD(POINTER(grad), pooled_at(g, r, pooled_channel, ph, pw)) /
        max((y_end - y_begin) * (x_end - x_begin), 1);
    for (int y = y_begin; y < y_end; ++y)
      for (int x = x_begin; x < x_end; ++x) plane[(size_t)y * g->width + x] += share;
  }
}
