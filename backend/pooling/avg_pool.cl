// Average pooling and its gradient. Forward: a work-item makes BLOCK outputs.
// Backward: it makes BLOCK elements of the image's gradient as a sum over the
// windows that hold each, in a fixed order.

#include "types.clh"
#include "window.clh"
#include "average.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void avg_pool(AVG_POOL_PARAMETERS) {
  PLACE(pooled)
  const global storage_t *image = POINTER(self) + plane_offset(&place, g->image_strides);
  const int d_begin = window_begin(g, 0, place.depth);
  const int d_end = window_end(g, 0, place.depth);
  const int h_begin = window_begin(g, 1, place.height);
  const int h_end = window_end(g, 1, place.height);
  const long counted_plane =
      (long)counted(g, 0, place.depth) * counted(g, 1, place.height);
  for (int width = place.width; width < place.end_width; ++width) {
    const int w_begin = window_begin(g, 2, width);
    const int w_end = window_end(g, 2, width);
    lanes_t sum = 0;
    for (int d = d_begin; d < d_end; ++d)
      for (int h = h_begin; h < h_end; ++h)
        for (int w = w_begin; w < w_end; ++w)
          sum += load_lanes(image,
                            pixel_offset(g->image_strides, d, h, w),
                            g->image_strides[1],
                            place.lanes);
    const long divisor =
        divisor_override ? divisor_override : counted_plane * counted(g, 2, width);
    // A window that lies in the padding altogether averages nothing: 0.
    const int empty = d_begin >= d_end || h_begin >= h_end || w_begin >= w_end;
    store_element(POINTER(out), &place, g->pooled_strides, width,
                  sum / (compute_t)(empty ? 1 : divisor));
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void avg_pool_backward(
    AVG_POOL_BACKWARD_PARAMETERS) {
  PLACE(image)
  const global storage_t *grad =
      POINTER(grad_output) + plane_offset(&place, g->pooled_strides);
  const int d_begin = covering_begin(g, 0, place.depth);
  const int d_end = covering_end(g, 0, place.depth);
  const int h_begin = covering_begin(g, 1, place.height);
  const int h_end = covering_end(g, 1, place.height);
  for (int width = place.width; width < place.end_width; ++width) {
    const int w_begin = covering_begin(g, 2, width);
    const int w_end = covering_end(g, 2, width);
    lanes_t sum = 0;
    for (int d = d_begin; d < d_end; ++d)
      for (int h = h_begin; h < h_end; ++h) {
        const long counted_plane = (long)counted(g, 0, d) * counted(g, 1, h);
        for (int w = w_begin; w < w_end; ++w) {
          const long divisor =
              divisor_override ? divisor_override : counted_plane * counted(g, 2, w);
          sum += load_lanes(grad,
                            pixel_offset(g->pooled_strides, d, h, w),
                            g->pooled_strides[1],
                            place.lanes) /
                 (compute_t)divisor;
        }
      }
    store_element(POINTER(grad_input), &place, g->image_strides, width, sum);
  }
}
