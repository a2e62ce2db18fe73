// Sampling an image of two or three axes at the positions of a grid, and its
// gradients. Interpolation is separable: on each axis a position has TAPS source
// positions with a weight and the weight's slope.
//
// Forward and the gradient of the grid: a work-item takes one position of the
// grid for all channels. The gradient of the image: a work-item owns one plane
// and walks the grid in order, so nothing is added from two sides, or on GPUs
// says which pixels a position's gradient goes to, and segments.h adds it up.

#include "grid_sampler.clh"
#include "segments.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

typedef struct {
  int position[TAPS];  // -1: outside
  compute_t weight[TAPS];
  compute_t slope[TAPS];  // of the weight, by the grid's coordinate
} taps_t;

typedef struct {
  taps_t axis[3];
} place_t;

// Mirrors a coordinate into [low, high] (both given twice), and the sign that
// its derivative has then.
inline compute_t reflected(compute_t x, int twice_low, int twice_high, compute_t *sign) {
  *sign = 0;
  if (twice_low == twice_high) return 0;
  const compute_t low = twice_low * REAL(0.5);
  const compute_t span = (twice_high - twice_low) * REAL(0.5);
  const compute_t distance = fabs(x - low);
  const compute_t flips = floor(distance / span);
  const compute_t extra = fmod(distance, span);
  const int even = fmod(flips, (compute_t)2) == 0;
  *sign = (x < low) == even ? (compute_t)-1 : (compute_t)1;
  return even ? extra + low : span - extra + low;
}

// A coordinate as the padding moves it into the image; `slope` is multiplied by
// the derivative.
inline compute_t padded(compute_t x, int size, compute_t *slope) {
#if PADDING == REFLECTION
  compute_t sign;
  x = ALIGN_CORNERS ? reflected(x, 0, 2 * (size - 1), &sign)
                    : reflected(x, -1, 2 * size - 1, &sign);
  *slope *= sign;
#endif
#if PADDING != ZEROS
  // Comparisons that put NaN inside.
  if (!(x > 0)) {
    *slope = 0;
    return 0;
  }
  if (x >= size - 1) {
    *slope = 0;
    return size - 1;
  }
#endif
  return x;
}

inline int inside(compute_t x, int size) {
  return x >= 0 && x < size ? (int)x : -1;
}

inline taps_t taps_of(compute_t coordinate, int size) {
  taps_t taps;
#if ALIGN_CORNERS
  compute_t slope = (size - 1) * REAL(0.5);
  compute_t x = (coordinate + 1) * slope;
#else
  compute_t slope = size * REAL(0.5);
  compute_t x = ((coordinate + 1) * size - 1) * REAL(0.5);
#endif
#if INTERPOLATION == NEAREST
  taps.position[0] = inside(rint(padded(x, size, &slope)), size);
  taps.weight[0] = 1;
  taps.slope[0] = 0;
#elif INTERPOLATION == BILINEAR
  x = padded(x, size, &slope);
  const compute_t first = floor(x);
  const compute_t t = x - first;
  taps.position[0] = inside(first, size);
  taps.position[1] = inside(first + 1, size);
  taps.weight[0] = 1 - t;
  taps.weight[1] = t;
  taps.slope[0] = -slope;
  taps.slope[1] = slope;
#else
  // Keys's cubic convolution with a = -0.75: near is for distances up to 1, far
  // for those up to 2.
  const compute_t a = REAL(-0.75);
  const compute_t first = floor(x);
  const compute_t t = x - first;
  for (int k = 0; k < TAPS; ++k) {
    compute_t ignored = 1;
    taps.position[k] = inside(padded(first - 1 + k, size, &ignored), size);
    const compute_t signed_distance = t + 1 - k;
    const compute_t d = fabs(signed_distance);
    const compute_t sign = signed_distance < 0 ? (compute_t)-1 : (compute_t)1;
    const int near = k == 1 || k == 2;
    taps.weight[k] = near ? ((a + 2) * d - (a + 3)) * d * d + 1
                          : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    taps.slope[k] = slope * sign *
                    (near ? (3 * (a + 2) * d - 2 * (a + 3)) * d
                          : (3 * a * d - 10 * a) * d + 8 * a);
  }
#endif
  return taps;
}

inline taps_t no_axis(void) {
  taps_t taps;
  for (int k = 0; k < TAPS; ++k) {
    taps.position[k] = k == 0 ? 0 : -1;
    taps.weight[k] = 1;
    taps.slope[k] = 0;
  }
  return taps;
}

inline long offset_of(const long *strides, int d, int h, int w) {
  return d * strides[2] + h * strides[3] + w * strides[4];
}

typedef struct {
  int depth;
  int height;
  int width;
} position_t;

inline position_t position_of(const geometry_t *g, int index) {
  position_t at;
  at.width = index % g->out[2];
  index /= g->out[2];
  at.height = index % g->out[1];
  at.depth = index / g->out[1];
  return at;
}

// The grid's strides are those of batch, depth, height, width and coordinate.
inline long grid_position(const geometry_t *g, int batch, position_t at) {
  return batch * g->grid_strides[0] + at.depth * g->grid_strides[1] +
         at.height * g->grid_strides[2] + at.width * g->grid_strides[3];
}

inline place_t place_of(
    const geometry_t *g, const global storage_t *grid, int batch, position_t at) {
  place_t place;
  const long offset = grid_position(g, batch, at);
  const long step = g->grid_strides[4];
  place.axis[2] = taps_of(LOAD(grid, offset), g->image[2]);
  place.axis[1] = taps_of(LOAD(grid, offset + step), g->image[1]);
#if SPATIAL == 3
  place.axis[0] = taps_of(LOAD(grid, offset + 2 * step), g->image[0]);
#else
  place.axis[0] = no_axis();
#endif
  return place;
}

// Body for every source element of the place.
#define FOR_EACH_TAP(place, i, j, k)             \
  for (int i = 0; i < TAPS; ++i)                 \
    for (int j = 0; j < TAPS; ++j)               \
      for (int k = 0; k < TAPS; ++k)             \
        if (place.axis[0].position[i] >= 0 &&    \
            place.axis[1].position[j] >= 0 &&    \
            place.axis[2].position[k] >= 0)

#define TAP_OFFSET(place, strides, i, j, k)                         \
  offset_of(strides, place.axis[0].position[i], place.axis[1].position[j], \
            place.axis[2].position[k])

#define POSITION                                                   \
  const geometry_t *g = &geometry;                                 \
  const int index = get_global_id(0);                              \
  const int batch = get_global_id(1);                              \
  if (index >= g->out[0] * g->out[1] * g->out[2]) return;          \
  const position_t at = position_of(g, index);                     \
  const place_t place = place_of(g, POINTER(grid), batch, at);

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void grid_sampler_forward(
    const geometry_t geometry,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, grid)) {
  POSITION
  const long out_at =
      batch * g->out_strides[0] + offset_of(g->out_strides, at.depth, at.height, at.width);
  for (int c = 0; c < g->channels; ++c) {
    const global storage_t *plane =
        POINTER(image) + batch * g->image_strides[0] + c * g->image_strides[1];
    compute_t sum = 0;
    FOR_EACH_TAP(place, i, j, k) {
      sum += place.axis[0].weight[i] * place.axis[1].weight[j] * place.axis[2].weight[k] *
             LOAD(plane, TAP_OFFSET(place, g->image_strides, i, j, k));
    }
    STORE(POINTER(out), out_at + c * g->out_strides[1], sum);
  }
}

// out_strides are those of the output's gradient.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void grid_sampler_grid_backward(
    const geometry_t geometry,
    TENSOR(storage_t, grad_grid),
    CONST_TENSOR(storage_t, grad_out),
    CONST_TENSOR(storage_t, image),
    CONST_TENSOR(storage_t, grid)) {
  POSITION
  const long grad_at =
      batch * g->out_strides[0] + offset_of(g->out_strides, at.depth, at.height, at.width);
  compute_t sum[3] = {0, 0, 0};
  for (int c = 0; c < g->channels; ++c) {
    const global storage_t *plane =
        POINTER(image) + batch * g->image_strides[0] + c * g->image_strides[1];
    const compute_t gradient = LOAD(POINTER(grad_out), grad_at + c * g->out_strides[1]);
    FOR_EACH_TAP(place, i, j, k) {
      const compute_t value =
          gradient * LOAD(plane, TAP_OFFSET(place, g->image_strides, i, j, k));
      const compute_t wz = place.axis[0].weight[i];
      const compute_t wy = place.axis[1].weight[j];
      const compute_t wx = place.axis[2].weight[k];
      sum[0] += value * wz * wy * place.axis[2].slope[k];
      sum[1] += value * wz * wx * place.axis[1].slope[j];
      sum[2] += value * wy * wx * place.axis[0].slope[i];
    }
  }
  // contiguous
  const size_t result =
      ((size_t)batch * g->out[0] * g->out[1] * g->out[2] + index) * SPATIAL;
  for (int axis = 0; axis < SPATIAL; ++axis)
    STORE(POINTER(grad_grid), result + axis, sum[axis]);
}

// The gradient is contiguous, in compute_t.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void grid_sampler_image_backward(
    const geometry_t geometry,
    TENSOR(compute_t, grad_image),
    CONST_TENSOR(storage_t, grad_out),
    CONST_TENSOR(storage_t, grid)) {
  const geometry_t *g = &geometry;
  const size_t item = get_global_id(0);
  if (item >= (size_t)g->images * g->channels) return;
  const int batch = item / g->channels;
  const int channel = item % g->channels;
  const size_t size = (size_t)g->image[0] * g->image[1] * g->image[2];
  global compute_t *plane = POINTER(grad_image) + item * size;
  for (size_t i = 0; i < size; ++i) plane[i] = 0;
  const global storage_t *gradient =
      POINTER(grad_out) + batch * g->out_strides[0] + channel * g->out_strides[1];
  for (int d = 0; d < g->out[0]; ++d)
    for (int h = 0; h < g->out[1]; ++h)
      for (int w = 0; w < g->out[2]; ++w) {
        const position_t at = {d, h, w};
        const place_t place = place_of(g, POINTER(grid), batch, at);
        const compute_t value = LOAD(gradient, offset_of(g->out_strides, d, h, w));
        FOR_EACH_TAP(place, i, j, k) {
          const size_t to = ((size_t)place.axis[0].position[i] * g->image[1] +
                             place.axis[1].position[j]) *
                                g->image[2] +
                            place.axis[2].position[k];
          plane[to] += value * place.axis[0].weight[i] * place.axis[1].weight[j] *
                       place.axis[2].weight[k];
        }
      }
}

#if SPATIAL == 3
#define DEPTH_TAPS TAPS
#else
#define DEPTH_TAPS 1
#endif

// Of every position of the grid, the pixels it was made of, as rows of all images'
// pixels, and their weights.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void grid_sampler_targets(
    const geometry_t geometry,
    TENSOR(int, targets),
    TENSOR(compute_t, weights),
    CONST_TENSOR(storage_t, grid)) {
  POSITION
  const size_t positions = (size_t)g->out[0] * g->out[1] * g->out[2];
  const int pixels = g->image[0] * g->image[1] * g->image[2];
  size_t to = ((size_t)batch * positions + index) * (DEPTH_TAPS * TAPS * TAPS);
  for (int i = 0; i < DEPTH_TAPS; ++i)
    for (int j = 0; j < TAPS; ++j)
      for (int k = 0; k < TAPS; ++k, ++to) {
        const int z = place.axis[0].position[i];
        const int y = place.axis[1].position[j];
        const int x = place.axis[2].position[k];
        POINTER(targets)[to] = z >= 0 && y >= 0 && x >= 0
            ? batch * pixels + (z * g->image[1] + y) * g->image[2] + x
            : NOWHERE;
        POINTER(weights)[to] = place.axis[0].weight[i] * place.axis[1].weight[j] *
                               place.axis[2].weight[k];
      }
}
