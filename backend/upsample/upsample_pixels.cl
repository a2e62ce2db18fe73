// Resampling and its gradient on CPUs where the channels of a pixel follow each other:
// a work-item makes a row of pixels, of floating dtypes.

#include "upsample.clh"
#include "lanes.clh"

#ifndef MOST_READERS
#define MOST_READERS 1024  // of a row or column: no axis is longer
#endif

// BODY(c, vectors, count) for the channels of a pixel from `c` on: vectors of `count`.
// The last one overlaps its neighbour.
#define FOR_CHANNELS(BODY)                                                        \
  {                                                                               \
    int c = 0;                                                                    \
    for (; c + 4 * LANES <= g->channels; c += 4 * LANES) BODY(c, 4, LANES)        \
    for (; c + LANES <= g->channels; c += LANES) BODY(c, 1, LANES)                \
    if (c < g->channels && g->channels >= LANES)                                  \
      BODY(g->channels - LANES, 1, LANES)                                         \
    else if (c < g->channels)                                                     \
      BODY(0, 1, g->channels)                                                     \
  }
#define LOAD_CHANNELS(p, count)                           \
  ((count) == LANES ? CONCAT(load_lanes_, DTYPE)(p) : load_lanes(p, 0, 1, count))
#define STORE_CHANNELS(p, count, value)                   \
  {                                                       \
    if ((count) == LANES)                                 \
      CONCAT(store_lanes_, DTYPE)(p, value);              \
    else                                                  \
      store_lanes(p, 0, 1, count, value);                 \
  }

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
    const global storage_t *taps[TAPS][TAPS][TAPS];
    real_t weights[TAPS][TAPS][TAPS];
    for (int i = first; i < TAPS; ++i) {
#pragma unroll
      for (int j = 0; j < TAPS; ++j) {
#pragma unroll
        for (int k = 0; k < TAPS; ++k) {
          taps[i][j][k] =
              image + pixel(g->small_strides, d.position[i], h.position[j], w.position[k]);
          weights[i][j][k] = (first > 0 ? 1 : d.weight[i]) * h.weight[j] * w.weight[k];
        }
      }
    }
#define ADD_TAPS(c, vectors, count)                                                    \
  {                                                                                    \
    lanes_t sums[vectors];                                                             \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) sums[v] = 0;                   \
    for (int i = first; i < TAPS; ++i) {                                               \
      _Pragma("unroll") for (int j = 0; j < TAPS; ++j) {                               \
        _Pragma("unroll") for (int k = 0; k < TAPS; ++k) {                             \
          _Pragma("unroll") for (int v = 0; v < vectors; ++v)                          \
            sums[v] += weights[i][j][k] *                                              \
                       LOAD_CHANNELS(taps[i][j][k] + (c) + v * LANES, count);          \
        }                                                                              \
      }                                                                                \
    }                                                                                  \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v)                                \
      STORE_CHANNELS(y + (c) + v * LANES, count, sums[v])                              \
  }
    FOR_CHANNELS(ADD_TAPS)
  }
}

// The outputs of an axis that hold some of the source position, and how much: `readers`
// and `weights`, of which there are as many as is returned.
static inline int list_readers(const geometry_t *g, int axis, int source, int *readers,
                               real_t *weights) {
  const int end = end_of_readers(g, axis, source);
  int count = 0;
  for (int output = first_reader(g, axis, source); output < end; ++output) {
    const real_t weight = weight_of(g, axis, output, source);
    if (weight == 0) continue;
    readers[count] = output;
    weights[count] = weight;
    ++count;
  }
  return count;
}

// A pixel sums what outputs hold of it, line by line.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_backward_pixels(
    const geometry_t geometry,
    TENSOR(storage_t, grad_input),
    CONST_TENSOR(storage_t, grad_output)) {
  const geometry_t *g = &geometry;
  const int depth = get_global_id(0) / g->small[1];
  const int height = get_global_id(0) % g->small[1];
  const int batch = get_global_id(1);
  const int d_begin = first_reader(g, 0, depth);
  const int d_end = end_of_readers(g, 0, depth);
  int lines[MOST_READERS];
  int columns[MOST_READERS];
  real_t of_lines[MOST_READERS];
  real_t of_columns[MOST_READERS];
  const int line_count = list_readers(g, 1, height, lines, of_lines);
  const global storage_t *grad = POINTER(grad_output) + batch * g->large_strides[0];
  global storage_t *row = POINTER(grad_input) + batch * g->small_strides[0] +
                          pixel(g->small_strides, depth, height, 0);
  for (int width = 0; width < g->small[2]; ++width) {
    const int column_count = list_readers(g, 2, width, columns, of_columns);
    global storage_t *result = row + width * g->small_strides[4];
#define ADD_READERS(c, vectors, count)                                                 \
  {                                                                                    \
    lanes_t sums[vectors];                                                             \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) sums[v] = 0;                   \
    for (int d = d_begin; d < d_end; ++d) {                                            \
      const real_t d_weight = weight_of(g, 0, d, depth);                               \
      if (d_weight == 0) continue;                                                     \
      for (int j = 0; j < line_count; ++j) {                                           \
        const global storage_t *line = grad + pixel(g->large_strides, d, lines[j], 0) + (c); \
        lanes_t of_line[vectors];                                                      \
        _Pragma("unroll") for (int v = 0; v < vectors; ++v) of_line[v] = 0;            \
        for (int k = 0; k < column_count; ++k) {                                       \
          const global storage_t *at = line + columns[k] * g->large_strides[4];        \
          _Pragma("unroll") for (int v = 0; v < vectors; ++v)                          \
            of_line[v] += of_columns[k] * LOAD_CHANNELS(at + v * LANES, count);        \
        }                                                                              \
        const real_t weight = d_weight * of_lines[j];                                  \
        _Pragma("unroll") for (int v = 0; v < vectors; ++v) sums[v] += weight * of_line[v]; \
      }                                                                                \
    }                                                                                  \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v)                                \
      STORE_CHANNELS(result + (c) + v * LANES, count, sums[v])                         \
  }
    FOR_CHANNELS(ADD_READERS)
  }
}
