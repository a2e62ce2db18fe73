// Gradients of sampling an image whose columns follow each other, on CPUs. Where a block
// of pixels reads is found once and serves several channels.
//
// The gradient of the grid: a work-item takes a block of pixels. The gradient of the
// image: a work-item owns the planes of some channels and walks the grid in order, so
// nothing is added from two sides.

#include "grid_sampler_planes.clh"

#if TAPS > 1
// out_strides are those of the output's gradient.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grid_sampler_grid_backward_planes(
    const geometry_t geometry,
    TENSOR(storage_t, grad_grid),
    CONST_TENSOR(storage_t, grad_out),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, grid)) {
  BLOCK_OF_ITEM
  // Gradients by what slots hold, over all channels.
  lanes_t products[ROWS][GROUPS * TAPS];
  for (int p = 0; p < pixels; p += LANES) {
    const all_slots_t all = place_group(g, places, first + p, min(LANES, pixels - p));
    vstore16(first_slots(&all, g->image_strides + 2), 0, starts + p);
    for (int r = 0; r < ROWS; ++r)
      for (int v = 0; v < TAPS; ++v) products[r][p / LANES * TAPS + v] = 0;
  }
  const global storage_t *gradient = POINTER(grad_out) + batch * g->out_strides[0] + first;
  for (int c = 0; c < g->channels; ++c) {
    const global storage_t *plane = planes + c * g->image_strides[1];
    for (int p = 0; p < pixels; p += LANES) {
      lanes_t by[TAPS];
      by[0] = load_lanes(gradient + c * g->out_strides[1], p, 1, pixels - p);
#pragma unroll
      for (int v = 1; v < TAPS; ++v) by[v] = by[0];
      by_pixels(by);
#pragma unroll
      for (int v = 0; v < TAPS; ++v) {
        const int at = p / LANES * TAPS + v;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          products[r][at] += by[v] * gather(plane + rows[r], starts + at * (LANES / TAPS));
      }
    }
  }
  // contiguous
  global storage_t *result =
      POINTER(grad_grid) + ((size_t)batch * plane_size + first) * SPATIAL;
  for (int p = 0; p < pixels; p += LANES) {
    const all_slots_t all = place_group(g, places, first + p, min(LANES, pixels - p));
    lanes_t sums[SPATIAL];
    for (int axis = 0; axis < SPATIAL; ++axis) sums[axis] = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      lanes_t values[TAPS];
#pragma unroll
      for (int s = 0; s < TAPS; ++s) values[s] = products[r][p / LANES * TAPS + s];
      by_slots(values);
      const slots_t *x = &all.axis[2];
      const slots_t *y = &all.axis[1];
      lanes_t row_sum = 0;
      lanes_t row_slope = 0;
      lanes_t row_used = y->used[r % TAPS];
#if SPATIAL == 3
      row_used = MASKED(row_used, all.axis[0].used[r / TAPS]);
#endif
#pragma unroll
      for (int s = 0; s < TAPS; ++s) {
        const lanes_t value = MASKED(MASKED(values[s], x->used[s]), row_used);
        row_sum += value * x->weight[s];
        row_slope += value * x->slope[s];
      }
#if SPATIAL == 3
      const lanes_t wz = all.axis[0].weight[r / TAPS];
      sums[2] += row_sum * y->weight[r % TAPS] * all.axis[0].slope[r / TAPS];
#else
      const compute_t wz = 1;
#endif
      sums[0] += row_slope * y->weight[r % TAPS] * wz;
      sums[1] += row_sum * y->slope[r % TAPS] * wz;
    }
#pragma unroll
    for (int axis = 0; axis < SPATIAL; ++axis)
      store_lanes(result + axis, (size_t)p * SPATIAL, SPATIAL, pixels - p, sums[axis]);
  }
}
#endif

// One pixel's share of `count` planes.
#define ADD_PIXEL(count)                                                         \
  {                                                                              \
    compute_t value[count];                                                      \
    _Pragma("unroll") for (int i = 0; i < count; ++i)                            \
        value[i] = LOAD(gradient + (c + i) * g->out_strides[1], first + p);      \
    _Pragma("unroll") for (int r = 0; r < ROWS; ++r) {                           \
      const compute_t *w = (const compute_t *)weights[r] + p * TAPS;             \
      _Pragma("unroll") for (int s = 0; s < TAPS; ++s) {                         \
        if (!whole[p] && !((const compute_bits_t *)used[r])[p * TAPS + s]) continue; \
        _Pragma("unroll") for (int i = 0; i < count; ++i)                        \
            plane[i * size + starts[p] + rows[r] + s] += value[i] * w[s];        \
      }                                                                          \
    }                                                                            \
  }

// The gradient is contiguous, in compute_t.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grid_sampler_image_backward_planes(
    const geometry_t geometry,
    const int channels_of_item,
    TENSOR(compute_t, grad_image),
    CONST_TENSOR(storage_t, grad_out),
    CONST_TENSOR(storage_t, grid)) {
  const geometry_t *g = &geometry;
  const int plane_size = g->out[0] * g->out[1] * g->out[2];
  const int batch = get_global_id(1);
  const int begin = get_global_id(0) * channels_of_item;
  const int end = min(begin + channels_of_item, g->channels);
  const long size = (long)g->image[0] * g->image[1] * g->image[2];
  const long strides[3] = {(long)g->image[1] * g->image[2], g->image[2], 1};
  long rows[ROWS];
  find_rows(g, strides, rows);
  global compute_t *planes = POINTER(grad_image) + ((long)batch * g->channels + begin) * size;
  for (long i = 0; i < (end - begin) * size; ++i) planes[i] = 0;
  const global storage_t *places = POINTER(grid) + batch * g->grid_strides[0];
  const global storage_t *gradient = POINTER(grad_out) + batch * g->out_strides[0];
  for (int first = 0; first < plane_size; first += GROUPS * LANES) {
    const int pixels = min(GROUPS * LANES, plane_size - first);
    int starts[GROUPS * LANES];
    uchar whole[GROUPS * LANES];  // all slots are used
    lanes_t weights[ROWS][GROUPS * TAPS];
    lanes_t used[ROWS][GROUPS * TAPS];
    find_block(g, strides, places, first, pixels, starts, weights, used);
    for (int p = 0; p < pixels; ++p) {
      compute_bits_t all = ~(compute_bits_t)0;
      for (int r = 0; r < ROWS; ++r)
        for (int s = 0; s < TAPS; ++s) all &= ((const compute_bits_t *)used[r])[p * TAPS + s];
      whole[p] = all != 0;
    }
    int c = begin;
    for (; c + 4 <= end; c += 4) {
      global compute_t *plane = planes + (c - begin) * size;
      for (int p = 0; p < pixels; ++p) ADD_PIXEL(4)
    }
    for (; c < end; ++c) {
      global compute_t *plane = planes + (c - begin) * size;
      for (int p = 0; p < pixels; ++p) ADD_PIXEL(1)
    }
  }
}
