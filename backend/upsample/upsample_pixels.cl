// Resampling on CPUs where the channels of a pixel follow each other: a work-item
// makes a row of pixels, of floating dtypes.

#include "upsample.clh"
#include "lanes.clh"

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_forward_pixels(
    const geometry_t geometry, TENSOR(storage_t, out), CONST_TENSOR(storage_t, self)) {
  const geometry_t *g = &geometry;
  const int depth = get_global_id(0) / g->large[1];
  const int height = get_global_id(0) % g->large[1];
  const int batch = get_global_id(1);
  const taps_t d = taps_of(g, 0, depth);
  const taps_t h = taps_of(g, 1, height);
  const global storage_t *image = POINTER(self) + batch * g->small_strides[0];
  global storage_t *row = POINTER(out) + batch * g->large_strides[0] +
                          pixel(g->large_strides, depth, height, 0);
  // An axis of size 1 on both sides has one tap that counts.
  const int first = g->small[0] == 1 && g->large[0] == 1 ? TAPS - 1 : 0;
  for (int x = 0; x < g->large[2]; ++x) {
    const taps_t w = taps_of(g, 2, x);
    global storage_t *y = row + x * g->large_strides[4];
    for (int c = 0; c < g->channels; c += LANES) {
      const int count = min(LANES, g->channels - c);
      lanes_t sum = 0;
      for (int i = first; i < TAPS; ++i)
        for (int j = 0; j < TAPS; ++j)
          for (int k = 0; k < TAPS; ++k) {
            const global storage_t *in =
                image + pixel(g->small_strides, d.position[i], h.position[j], w.position[k]);
            const real_t weight =
                (first > 0 ? 1 : d.weight[i]) * h.weight[j] * w.weight[k];
            sum += weight * (count == LANES ? CONCAT(load_lanes_, DTYPE)(in + c)
                                            : load_lanes(in, c, 1, count));
          }
      if (count == LANES)
        CONCAT(store_lanes_, DTYPE)(y + c, sum);
      else
        store_lanes(y, c, 1, count, sum);
    }
  }
}
