// Resampling and its gradient, any strides. Forward: a work-item makes one output
// element. Backward: it makes one element of the gradient, as a sum over the outputs
// that may have read it, in order. The first dimension of the range runs along the
// innermost dimension in memory: width, or the channels (CHANNELS_LAST).

#include "upsample.clh"

#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef WG_SIZE
#define WG_SIZE 64
#endif

// Batch, channel, depth, height and width of what the work-item makes.
#if CHANNELS_LAST
#define PLACE(size)                                 \
  const int channel = get_global_id(0);             \
  int row = get_global_id(1);                       \
  if (channel >= g->channels) return;               \
  const int width = row % size[2];                  \
  row /= size[2];                                   \
  const int height = row % size[1];                 \
  const int depth = row / size[1];                  \
  const int batch = get_global_id(2);
#else
#define PLACE(size)                                 \
  const int width = get_global_id(0);               \
  int row = get_global_id(1);                       \
  if (width >= size[2]) return;                     \
  const int height = row % size[1];                 \
  const int depth = row / size[1];                  \
  const int channel = get_global_id(2) % g->channels; \
  const int batch = get_global_id(2) / g->channels;
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void upsample_forward(
    const geometry_t geometry, TENSOR(storage_t, out), CONST_TENSOR(storage_t, self)) {
  const geometry_t *g = &geometry;
  PLACE(g->large)
  const global storage_t *image =
      POINTER(self) + batch * g->small_strides[0] + channel * g->small_strides[1];
  const taps_t d = taps_of(g, 0, depth);
  const taps_t h = taps_of(g, 1, height);
  const taps_t w = taps_of(g, 2, width);
  const long at = batch * g->large_strides[0] + channel * g->large_strides[1] +
                  pixel(g->large_strides, depth, height, width);
#if TAPS == 1
  STORE(POINTER(out), at,
        LOAD(image, pixel(g->small_strides, d.position[0], h.position[0], w.position[0])));
#else
  // An axis of size 1 on both sides has one tap that counts.
  const int deep = g->small[0] == 1 && g->large[0] == 1;
  const int low = g->small[1] == 1 && g->large[1] == 1;
  real_t sum = 0;
  for (int i = deep ? TAPS - 1 : 0; i < TAPS; ++i) {
    real_t plane = 0;
    for (int j = low ? TAPS - 1 : 0; j < TAPS; ++j) {
      real_t line = 0;
      for (int k = 0; k < TAPS; ++k)
        line += w.weight[k] *
                LOAD(image,
                     pixel(g->small_strides, d.position[i], h.position[j], w.position[k]));
      plane += (low ? 1 : h.weight[j]) * line;
    }
    sum += (deep ? 1 : d.weight[i]) * plane;
  }
  STORE(POINTER(out), at, RESULT(sum));
#endif
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void upsample_backward(
    const geometry_t geometry,
    TENSOR(storage_t, grad_input),
    CONST_TENSOR(storage_t, grad_output)) {
  const geometry_t *g = &geometry;
  PLACE(g->small)
  const global storage_t *grad =
      POINTER(grad_output) + batch * g->large_strides[0] + channel * g->large_strides[1];
  const int d_end = end_of_readers(g, 0, depth);
  const int h_begin = first_reader(g, 1, height);
  const int h_end = end_of_readers(g, 1, height);
  const int w_begin = first_reader(g, 2, width);
  const int w_end = end_of_readers(g, 2, width);
  real_t sum = 0;
  for (int d = first_reader(g, 0, depth); d < d_end; ++d) {
    const real_t d_weight = weight_of(g, 0, d, depth);
    if (d_weight == 0) continue;
    for (int h = h_begin; h < h_end; ++h) {
      const real_t h_weight = weight_of(g, 1, h, height);
      if (h_weight == 0) continue;
      real_t line = 0;
      for (int w = w_begin; w < w_end; ++w) {
        const real_t w_weight = weight_of(g, 2, w, width);
        if (w_weight != 0)
          line += w_weight * LOAD(grad, pixel(g->large_strides, d, h, w));
      }
      sum += d_weight * h_weight * line;
    }
  }
  STORE(POINTER(grad_input),
        batch * g->small_strides[0] + channel * g->small_strides[1] +
            pixel(g->small_strides, depth, height, width),
        RESULT(sum));
}
