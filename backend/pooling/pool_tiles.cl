// Gradients of max and average pooling on CPUs, of images whose lines are dense and
// whose windows, at least LANES a row, lie side by side, two columns each, without
// padding: a work-item makes `tile` planes, each element once, of its only window.

#define LANES 16
#include "types.clh"
#include "window.clh"
#include "average.clh"
#include "positions.clh"

#ifndef MAXIMUM
#define MAXIMUM 0
#endif

#define LOAD_VECTOR(p) CONCAT(load_lanes_, DTYPE)(p)

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void pool_backward_tiles(
    const geometry_t geometry,
#if MAXIMUM
    TENSOR(storage_t, grad_input),
    CONST_TENSOR(long, indices),
#else
    const long divisor_override,
    TENSOR(storage_t, grad_input),
#endif
    CONST_TENSOR(storage_t, grad_output)
#if MAXIMUM
    , global report_t *record, const int op
#endif
) {
  const geometry_t *g = &geometry;
  const index_t begin = (index_t)get_global_id(0) * g->tile;
  const index_t end = min(begin + g->tile, g->blocks);
  for (index_t plane = begin; plane < end; ++plane) {
    place_t place;
    place.batch = (int)(plane / g->channels);
    place.channel = (int)(plane % g->channels);
#if MAXIMUM
    const global long *plane_chosen = POINTER(indices) + plane_offset(&place, g->indices_strides);
    where_t outside = 0;
#endif
    for (int z = 0; z < g->image[0]; ++z)
      for (int y = 0; y < g->image[1]; ++y) {
        const int d = covering_begin(g, 0, z);
        const int h = covering_begin(g, 1, y);
        const int is_covered = d < covering_end(g, 0, z) && h < covering_end(g, 1, y);
        const int windows = is_covered ? g->pooled[2] : 0;
        global storage_t *line = POINTER(grad_input) + plane_offset(&place, g->image_strides) +
                                 pixel_offset(g->image_strides, z, y, 0);
        const global storage_t *grads = POINTER(grad_output) +
                                        plane_offset(&place, g->pooled_strides) +
                                        pixel_offset(g->pooled_strides, d, h, 0);
#if MAXIMUM
        const global long *chosen =
            plane_chosen + pixel_offset(g->indices_strides, d, h, 0);
        const index_t here = plane_position(g, z, y, 0);
        const where_t lane = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#else
        const compute_t divisor =
            divisor_override ? (compute_t)divisor_override
                             : (compute_t)counted(g, 0, d) * (compute_t)counted(g, 1, h) *
                                   (compute_t)counted(g, 2, 0);
#endif
        for (int next = 0; next < windows; next += LANES) {
          // The last vector overlaps the one before.
          const int w = min(next, windows - LANES);
#if MAXIMUM
          const lanes_t grad = LOAD_VECTOR(grads + w);
          const where_t where = NARROW_LANES(vload16(0, chosen + w));
          outside |= outside_plane(g, where);
          const where_t column = where - (where_t)(here + 2 * w) - lane;
          const lanes_t even = select((lanes_t)0, grad, column == (where_t)0);
          const lanes_t odd = select((lanes_t)0, grad, column == (where_t)1);
#else
          const lanes_t even = LOAD_VECTOR(grads + w) / divisor;
          const lanes_t odd = even;
#endif
          lanes_t low, high;
          low.even = even.lo;
          low.odd = odd.lo;
          high.even = even.hi;
          high.odd = odd.hi;
          store_full_lanes_nt(line + 2 * w, low);
          store_full_lanes_nt(line + 2 * w + LANES, high);
        }
        for (int x = 2 * windows; x < g->image[2]; ++x) STORE(line, x, 0);
      }
#if MAXIMUM
    report_positions(g, outside, plane_chosen, 1, record, op);
#endif
  }
}
