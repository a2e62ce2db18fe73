// Sampling an image whose channels follow each other, on CPUs: a work-item makes a
// block of pixels by squares of LANES pixels and channels, which are transposed for an
// output whose columns follow each other. Where the block reads is found once.

#include "grid_sampler_blocks.clh"

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grid_sampler_forward_pixels(
    const geometry_t geometry,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, grid)) {
  const geometry_t *g = &geometry;
  const int plane_size = g->out[0] * g->out[1] * g->out[2];
  const int first = get_global_id(0) * GROUPS * LANES;
  const int pixels = min(GROUPS * LANES, plane_size - first);
  const int batch = get_global_id(1);
  int starts[GROUPS * LANES];
  lanes_t weights[ROWS][GROUPS * TAPS];
  lanes_t used[ROWS][GROUPS * TAPS];
  long rows[ROWS];
  find_rows(g, g->image_strides + 2, rows);
  find_block(g, g->image_strides + 2, POINTER(grid) + batch * g->grid_strides[0], first,
             pixels, starts, weights, used);
  const global storage_t *x = POINTER(image) + batch * g->image_strides[0];
  global storage_t *y = POINTER(out) + batch * g->out_strides[0] + first;
  for (int p = 0; p < pixels; p += LANES)
    for (int channel = 0; channel < g->channels; channel += LANES) {
      // The last square overlaps its neighbour.
      const int c = min(channel, g->channels - LANES);
      lanes_t square[LANES];
      for (int i = 0; i < LANES; ++i) {
        const global storage_t *pixel = x + starts[p + i] + c;
        lanes_t sum = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int s = 0; s < TAPS; ++s) {
            const int at = (p + i) * TAPS + s;
            if (((const compute_bits_t *)used[r])[at])
              sum += ((const compute_t *)weights[r])[at] *
                     CONCAT(load_lanes_, DTYPE)(pixel + rows[r] + s * g->image_strides[4]);
          }
        square[i] = sum;
      }
      transpose(square);
      for (int i = 0; i < LANES; ++i)
        store_lanes(y + (c + i) * g->out_strides[1], p, 1, pixels - p, square[i]);
    }
}
