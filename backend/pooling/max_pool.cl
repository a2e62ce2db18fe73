// Max pooling with indices (flat positions in the image's plane), and its
// gradient. As on PyTorch's CPU a NaN wins over everything and the last NaN
// over the others; of equal maxima the first in row-major order wins.
//
// Forward: a work-item makes BLOCK outputs. Backward: it makes BLOCK elements
// of the image's gradient and looks up which of the windows over each chose
// it, so the sum has a fixed order and needs no atomics.

#include "types.clh"
#include "window.clh"
#include "positions.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void max_pool(MAX_POOL_PARAMETERS) {
  PLACE(pooled)
  const global storage_t *image = POINTER(self) + plane_offset(&place, g->image_strides);
  const index_t lane_stride = g->image_strides[1];
  const int d_begin = window_begin(g, 0, place.depth);
  const int d_end = window_end(g, 0, place.depth);
  const int h_begin = window_begin(g, 1, place.height);
  const int h_end = window_end(g, 1, place.height);
  for (int width = place.width; width < place.end_width; ++width) {
    const int w_begin = window_begin(g, 2, width);
    const int w_end = window_end(g, 2, width);
    where_t where = (where_t)plane_position(g, d_begin, h_begin, w_begin);
    lanes_t best = (lanes_t)LOWEST;
    for (int d = d_begin; d < d_end; d += g->dilation[0])
      for (int h = h_begin; h < h_end; h += g->dilation[1])
        for (int w = w_begin; w < w_end; w += g->dilation[2]) {
          const lanes_t value = load_lanes(
              image, pixel_offset(g->image_strides, d, h, w), lane_stride, place.lanes);
          const where_t here = (where_t)plane_position(g, d, h, w);
          const where_t better = (value > best) | (value != value);
          best = LANES_SELECT(best, value, better);
          where = LANES_SELECT(where, here, better);
        }
    store_element(POINTER(out), &place, g->pooled_strides, width, best);
    store_indices(POINTER(indices),
                  element_offset(&place, g->indices_strides, width),
                  g->indices_strides[1],
                  place.lanes,
                  where);
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void max_pool_backward(
    MAX_POOL_BACKWARD_PARAMETERS) {
  PLACE(image)
  const global storage_t *grad =
      POINTER(grad_output) + plane_offset(&place, g->pooled_strides);
  const global long *chosen = POINTER(indices) + plane_offset(&place, g->indices_strides);
  const int d_begin = covering_begin(g, 0, place.depth);
  const int d_end = covering_end(g, 0, place.depth);
  const int h_begin = covering_begin(g, 1, place.height);
  const int h_end = covering_end(g, 1, place.height);
  where_t outside = 0;
  for (int width = place.width; width < place.end_width; ++width) {
    const where_t here =
        (where_t)plane_position(g, place.depth, place.height, width);
    const int w_begin = covering_begin(g, 2, width);
    const int w_end = covering_end(g, 2, width);
    lanes_t sum = 0;
    for (int d = d_begin; d < d_end; ++d)
      for (int h = h_begin; h < h_end; ++h)
        for (int w = w_begin; w < w_end; ++w) {
          const where_t where = load_indices(chosen,
                                             pixel_offset(g->indices_strides, d, h, w),
                                             g->indices_strides[1],
                                             place.lanes);
          const lanes_t value = load_lanes(grad,
                                           pixel_offset(g->pooled_strides, d, h, w),
                                           g->pooled_strides[1],
                                           place.lanes);
          sum += LANES_SELECT((lanes_t)0, value, where == here);
          outside |= outside_plane(g, where);
        }
    store_element(POINTER(grad_input), &place, g->image_strides, width, sum);
  }
  report_positions(g, outside, chosen, place.lanes, record, op);
}
