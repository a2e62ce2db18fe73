// Sampling an image whose columns follow each other, on CPUs: a work-item makes a block
// of pixels. Where they read is found once and serves all channels.

#include "grid_sampler_planes.clh"

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grid_sampler_forward_planes(
    const geometry_t geometry,
    const int channels_of_item,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, grid)) {
  BLOCK_OF_ITEM
  lanes_t weights[ROWS][GROUPS * TAPS];
  lanes_t used[ROWS][GROUPS * TAPS];
  find_block(g, g->image_strides + 2, places, first, pixels, starts, weights, used);
  global storage_t *y = POINTER(out) + batch * g->out_strides[0] + first;
  const int begin = get_global_id(2) * channels_of_item;
  const int end = min(begin + channels_of_item, g->channels);
  for (int c = begin; c < end; ++c) {
    const global storage_t *plane = planes + c * g->image_strides[1];
    for (int p = 0; p < pixels; p += LANES) {
      lanes_t sums[TAPS];
#pragma unroll
      for (int v = 0; v < TAPS; ++v) {
        const int at = p / LANES * TAPS + v;
        sums[v] = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          sums[v] += weights[r][at] *
                     MASKED(gather(plane + rows[r], starts + at * (LANES / TAPS)), used[r][at]);
      }
      by_slots(sums);
#pragma unroll
      for (int v = 1; v < TAPS; ++v) sums[0] += sums[v];
      store_lanes(y + c * g->out_strides[1], p, 1, pixels - p, sums[0]);
    }
  }
}
