// Resampling over up to three spatial axes, and its gradient. Every mode is
// separable: on each axis an output position has TAPS source positions with a
// weight each (PyTorch's area_pixel conventions).
//
// Forward: a work-item makes one output element. Backward: it makes one element
// of the gradient, as a sum over the outputs that may have read it, in order.
// The first dimension of the range runs along the innermost dimension in
// memory: width, or the channels (CHANNELS_LAST).

#include "types.clh"

#define NEAREST 0
#define NEAREST_EXACT 1
#define LINEAR 2
#define CUBIC 3

#ifndef MODE
#define MODE NEAREST
#endif
#ifndef ALIGN_CORNERS
#define ALIGN_CORNERS 0
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef ROUND
#define ROUND 0  // integers are computed in float and rounded
#endif
#ifndef WG_SIZE
#define WG_SIZE 64
#endif

#if ROUND
typedef float real_t;
#define RESULT(x) convert_uchar_sat_rte(x)
#undef REAL
#define REAL(literal) literal##f
#else
typedef compute_t real_t;
#define RESULT(x) (x)
#endif

#if MODE == NEAREST || MODE == NEAREST_EXACT
#define TAPS 1
typedef float scale_t;
#elif MODE == LINEAR
#define TAPS 2
typedef real_t scale_t;
#else
#define TAPS 4
typedef real_t scale_t;
#endif

// The host's Geometry; strides are those of batch, channel, depth, height and
// width. `large` is the side with output_size, `small` that with input_size.
typedef struct {
  long large_strides[5];
  long small_strides[5];
  scale_t scale[3];  // source positions per output position
  int channels;
  int large[3];
  int small[3];
} geometry_t;

typedef struct {
  int position[TAPS];
  real_t weight[TAPS];
} taps_t;

#if MODE == CUBIC
// Keys, Cubic convolution interpolation for digital image processing, 1981,
// with a = -0.75.
inline real_t near_cubic(real_t x) {
  const real_t a = REAL(-0.75);
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
inline real_t far_cubic(real_t x) {
  const real_t a = REAL(-0.75);
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
#endif

#if TAPS > 1
inline real_t source_position(const geometry_t *g, int axis, int output) {
#if ALIGN_CORNERS
  return g->scale[axis] * output;
#else
  const real_t position = g->scale[axis] * (output + REAL(0.5)) - REAL(0.5);
  return MODE == LINEAR ? fmax(position, (real_t)0) : position;
#endif
}
#endif

inline taps_t taps_of(const geometry_t *g, int axis, int output) {
  taps_t taps;
  const int last = g->small[axis] - 1;
#if MODE == NEAREST
  const int same = g->small[axis] == g->large[axis];
  const int twice = g->small[axis] * 2 == g->large[axis];
  const int scaled = (int)floor(output * g->scale[axis]);
  taps.position[0] = same ? output : twice ? output >> 1 : min(scaled, last);
  taps.weight[0] = 1;
#elif MODE == NEAREST_EXACT
  taps.position[0] = min((int)floor((output + 0.5f) * g->scale[axis]), last);
  taps.weight[0] = 1;
#else
  const real_t position = source_position(g, axis, output);
  const int first = min((int)floor(position), last);
  const real_t t = clamp(position - first, (real_t)0, (real_t)1);
#if MODE == LINEAR
  taps.position[0] = first;
  taps.position[1] = min(first + 1, last);
  taps.weight[0] = 1 - t;
  taps.weight[1] = t;
#else
  for (int k = 0; k < TAPS; ++k) taps.position[k] = clamp(first - 1 + k, 0, last);
  taps.weight[0] = far_cubic(t + 1);
  taps.weight[1] = near_cubic(t);
  taps.weight[2] = near_cubic(1 - t);
  taps.weight[3] = far_cubic(2 - t);
#endif
#endif
  return taps;
}

// Outputs that may read the source position: those of the positions up to
// TAPS / 2 away, and one more for rounding; all beyond at the borders.
inline int first_reader(const geometry_t *g, int axis, int source) {
  if (source == 0 || g->scale[axis] <= 0) return 0;
#if TAPS == 1
  const int far = (int)floor((source - 1) / g->scale[axis]) - 1;
#else
  const int far = (int)floor((source - TAPS / 2) / g->scale[axis]) - 2;
#endif
  return clamp(far, 0, g->large[axis]);
}

inline int end_of_readers(const geometry_t *g, int axis, int source) {
  if (source == g->small[axis] - 1 || g->scale[axis] <= 0) return g->large[axis];
#if TAPS == 1
  const scale_t far = (source + 1) / g->scale[axis] + 2;
#else
  const scale_t far = (source + TAPS / 2 + 1) / g->scale[axis] + 2;
#endif
  return far < g->large[axis] ? (int)far : g->large[axis];
}

// How much of the source position the output holds.
inline real_t weight_of(const geometry_t *g, int axis, int output, int source) {
  const taps_t taps = taps_of(g, axis, output);
  real_t weight = 0;
  for (int k = 0; k < TAPS; ++k) weight += taps.position[k] == source ? taps.weight[k] : 0;
  return weight;
}

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

inline long pixel(const long *strides, int d, int h, int w) {
  return d * strides[2] + h * strides[3] + w * strides[4];
}

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
