// Resampling and its gradient on CPUs where columns follow each other in memory: a
// work-item makes one row of several planes, first along the other axes, then along
// the width, whose taps all of its rows share.

#include "upsample.clh"

#ifndef MOST_COLUMNS
#define MOST_COLUMNS 1024
#endif

#define TAPS_OF_COLUMNS                                \
  int position[TAPS][MOST_COLUMNS];                    \
  real_t weight[TAPS][MOST_COLUMNS];                   \
  for (int x = 0; x < g->large[2]; ++x) {              \
    const taps_t w = taps_of(g, 2, x);                 \
    for (int k = 0; k < TAPS; ++k) {                   \
      position[k][x] = w.position[k];                  \
      weight[k][x] = w.weight[k];                      \
    }                                                  \
  }
#define FOR_PLANES(plane)                              \
  for (int plane = get_global_id(1) * planes_of_item;  \
       plane < min((int)(get_global_id(1) + 1) * planes_of_item, planes); ++plane)

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_forward_rows(
    const geometry_t geometry, const int planes, const int planes_of_item,
    TENSOR(storage_t, out), CONST_TENSOR(storage_t, self)) {
  const geometry_t *g = &geometry;
  const int depth = get_global_id(0) / g->large[1];
  const int height = get_global_id(0) % g->large[1];
  const taps_t d = taps_of(g, 0, depth);
  const taps_t h = taps_of(g, 1, height);
  TAPS_OF_COLUMNS
  FOR_PLANES(plane) {
    const int batch = plane / g->channels;
    const int channel = plane % g->channels;
    const global storage_t *image =
        POINTER(self) + batch * g->small_strides[0] + channel * g->small_strides[1];
    global storage_t *y = POINTER(out) + batch * g->large_strides[0] +
                          channel * g->large_strides[1] +
                          pixel(g->large_strides, depth, height, 0);
#if TAPS == 1
    const global storage_t *line =
        image + pixel(g->small_strides, d.position[0], h.position[0], 0);
    for (int x = 0; x < g->large[2]; ++x) STORE(y, x, LOAD(line, position[0][x]));
#else
    // An axis of size 1 on both sides has one tap that counts.
    const int deep = g->small[0] == 1 && g->large[0] == 1;
    const int low = g->small[1] == 1 && g->large[1] == 1;
    real_t line[MOST_COLUMNS];
    for (int x = 0; x < g->small[2]; ++x) line[x] = 0;
    for (int i = deep ? TAPS - 1 : 0; i < TAPS; ++i)
      for (int j = low ? TAPS - 1 : 0; j < TAPS; ++j) {
        const real_t by = (deep ? 1 : d.weight[i]) * (low ? 1 : h.weight[j]);
        const global storage_t *in =
            image + pixel(g->small_strides, d.position[i], h.position[j], 0);
        for (int x = 0; x < g->small[2]; ++x) line[x] += by * LOAD(in, x);
      }
    for (int x = 0; x < g->large[2]; ++x) {
      real_t sum = 0;
      for (int k = 0; k < TAPS; ++k) sum += weight[k][x] * line[position[k][x]];
      STORE(y, x, RESULT(sum));
    }
#endif
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_backward_rows(
    const geometry_t geometry, const int planes, const int planes_of_item,
    TENSOR(storage_t, grad_input), CONST_TENSOR(storage_t, grad_output)) {
  const geometry_t *g = &geometry;
  const int depth = get_global_id(0) / g->small[1];
  const int height = get_global_id(0) % g->small[1];
  const int d_end = end_of_readers(g, 0, depth);
  const int h_end = end_of_readers(g, 1, height);
  TAPS_OF_COLUMNS
  FOR_PLANES(plane) {
    const int batch = plane / g->channels;
    const int channel = plane % g->channels;
    const global storage_t *grad =
        POINTER(grad_output) + batch * g->large_strides[0] + channel * g->large_strides[1];
    global storage_t *result = POINTER(grad_input) + batch * g->small_strides[0] +
                               channel * g->small_strides[1] +
                               pixel(g->small_strides, depth, height, 0);
    real_t line[MOST_COLUMNS];
    real_t sums[MOST_COLUMNS];
    for (int x = 0; x < g->large[2]; ++x) line[x] = 0;
    for (int i = first_reader(g, 0, depth); i < d_end; ++i) {
      const real_t d_weight = weight_of(g, 0, i, depth);
      if (d_weight == 0) continue;
      for (int j = first_reader(g, 1, height); j < h_end; ++j) {
        const real_t by = d_weight * weight_of(g, 1, j, height);
        if (by == 0) continue;
        const global storage_t *in = grad + pixel(g->large_strides, i, j, 0);
        for (int x = 0; x < g->large[2]; ++x) line[x] += by * LOAD(in, x);
      }
    }
#if TAPS == 1
    // Readers follow each other.
    if (MODE == NEAREST && g->large[2] == 2 * g->small[2]) {
      for (int x = 0; x < g->small[2]; ++x) sums[x] = line[2 * x] + line[2 * x + 1];
    } else {
      for (int x = 0, next = 0; x < g->small[2]; ++x) {
        real_t sum = 0;
        for (; next < g->large[2] && position[0][next] == x; ++next) sum += line[next];
        sums[x] = sum;
      }
    }
#else
    for (int x = 0; x < g->small[2]; ++x) sums[x] = 0;
    for (int x = 0; x < g->large[2]; ++x)
      for (int k = 0; k < TAPS; ++k) sums[position[k][x]] += weight[k][x] * line[x];
#endif
    for (int x = 0; x < g->small[2]; ++x) STORE(result, x, RESULT(sums[x]));
  }
}
