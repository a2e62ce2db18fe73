// Resampling and its gradient on CPUs where the channels of a pixel follow each other:
// a work-item makes some rows of up to COLUMNS pixels, of floating dtypes. What the
// columns read, or are read by, it finds once for all its rows.

#include "upsample.clh"
#include "lanes.clh"

#ifndef MOST_READERS
#define MOST_READERS 1024  // of a row or column: no axis is longer
#endif
#ifndef COLUMNS
#define COLUMNS 64
#endif
#ifndef HAS_DEPTH
#define HAS_DEPTH 1
#endif
// An axis of size 1 on both sides has one tap that counts.
#define DEPTH_TAPS (HAS_DEPTH ? TAPS : 1)

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

// The rows and columns of a work-item on the side that is written, and where a row is.
#define WALK(side)                                                                   \
  const geometry_t *g = &geometry;                                                   \
  const int plane = g->side[0] * g->side[1];                                         \
  const int first = get_global_id(1) * COLUMNS;                                      \
  const int end = min(first + COLUMNS, g->side[2]);                                  \
  const long begin_row = (long)get_global_id(0) * rows_of_item;                      \
  const long end_row = min(begin_row + rows_of_item, (long)batches * plane);
#define PLACE_OF(row, side)                           \
  const int batch = (row) / plane;                    \
  const int depth = (row) % plane / g->side[1];       \
  const int height = (row) % plane % g->side[1];

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_forward_pixels(
    const geometry_t geometry,
    const int batches,
    const int rows_of_item,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self)) {
  WALK(large)
  taps_t columns[COLUMNS];
  for (int x = first; x < end; ++x) columns[x - first] = taps_of(g, 2, x);
  for (long r = begin_row; r < end_row; ++r) {
    PLACE_OF(r, large)
    const taps_t d = taps_of(g, 0, depth);
    const taps_t h = taps_of(g, 1, height);
    const global storage_t *image = POINTER(self) + batch * g->small_strides[0];
    global storage_t *row = POINTER(out) + batch * g->large_strides[0] +
                            pixel(g->large_strides, depth, height, 0);
    for (int x = first; x < end; ++x) {
      const taps_t w = columns[x - first];
      global storage_t *y = row + x * g->large_strides[4];
      const global storage_t *taps[DEPTH_TAPS][TAPS][TAPS];
      real_t weights[DEPTH_TAPS][TAPS][TAPS];
#pragma unroll
      for (int i = 0; i < DEPTH_TAPS; ++i) {
#pragma unroll
        for (int j = 0; j < TAPS; ++j) {
#pragma unroll
          for (int k = 0; k < TAPS; ++k) {
            taps[i][j][k] =
                image + pixel(g->small_strides, d.position[i], h.position[j], w.position[k]);
            weights[i][j][k] = (HAS_DEPTH ? d.weight[i] : 1) * h.weight[j] * w.weight[k];
          }
        }
      }
#define ADD_TAPS(c, vectors, count)                                                    \
  {                                                                                    \
    lanes_t sums[vectors];                                                             \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) sums[v] = 0;                   \
    _Pragma("unroll") for (int i = 0; i < DEPTH_TAPS; ++i) {                            \
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

// The same of all columns from `first` to `end`: of column c the readers from
// ends[c - 1], if there is one, to ends[c].
static inline void list_readers_of_columns(const geometry_t *g, int first, int end,
                                           int *ends, int *readers, real_t *weights) {
  const int begin_reader = first_reader(g, 2, first);
  const int end_reader = end_of_readers(g, 2, end - 1);
  for (int c = 0; c < end - first; ++c) ends[c] = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int output = begin_reader; output < end_reader; ++output) {
      const taps_t taps = taps_of(g, 2, output);
      for (int k = 0; k < TAPS; ++k) {
        const int c = taps.position[k] - first;
        if (c < 0 || c >= end - first || taps.weight[k] == 0) continue;
        if (pass == 1) {
          readers[ends[c]] = output;
          weights[ends[c]] = taps.weight[k];
        }
        ++ends[c];
      }
    }
    if (pass == 1) return;
    // From how many there are to where they begin.
    int begin = 0;
    for (int c = 0; c < end - first; ++c) {
      const int count = ends[c];
      ends[c] = begin;
      begin += count;
    }
  }
}

// A pixel sums what outputs hold of it, line by line.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void upsample_backward_pixels(
    const geometry_t geometry,
    const int batches,
    const int rows_of_item,
    TENSOR(storage_t, grad_input),
    CONST_TENSOR(storage_t, grad_output)) {
  WALK(small)
  int lines[MOST_READERS];
  real_t of_lines[MOST_READERS];
  int ends[COLUMNS];
  int columns[TAPS * MOST_READERS];
  real_t of_columns[TAPS * MOST_READERS];
  list_readers_of_columns(g, first, end, ends, columns, of_columns);
  for (long r = begin_row; r < end_row; ++r) {
    PLACE_OF(r, small)
    const int d_begin = HAS_DEPTH ? first_reader(g, 0, depth) : 0;
    const int d_end = HAS_DEPTH ? end_of_readers(g, 0, depth) : 1;
    const int line_count = list_readers(g, 1, height, lines, of_lines);
    const global storage_t *grad = POINTER(grad_output) + batch * g->large_strides[0];
    global storage_t *row = POINTER(grad_input) + batch * g->small_strides[0] +
                            pixel(g->small_strides, depth, height, 0);
    for (int width = first; width < end; ++width) {
      const int begin_column = width > first ? ends[width - first - 1] : 0;
      const int end_column = ends[width - first];
      global storage_t *result = row + width * g->small_strides[4];
#define ADD_READERS(c, vectors, count)                                                 \
  {                                                                                    \
    lanes_t sums[vectors];                                                             \
    _Pragma("unroll") for (int v = 0; v < vectors; ++v) sums[v] = 0;                   \
    for (int d = d_begin; d < d_end; ++d) {                                            \
      const real_t d_weight = HAS_DEPTH ? weight_of(g, 0, d, depth) : 1;               \
      if (d_weight == 0) continue;                                                     \
      for (int j = 0; j < line_count; ++j) {                                           \
        const global storage_t *line = grad + pixel(g->large_strides, d, lines[j], 0) + (c); \
        lanes_t of_line[vectors];                                                      \
        _Pragma("unroll") for (int v = 0; v < vectors; ++v) of_line[v] = 0;            \
        for (int k = begin_column; k < end_column; ++k) {                              \
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
}
