// Max and average pooling on CPUs, by rows of outputs: a work-item makes `tile`
// of them. CHANNELS_LAST: a row is a line of pixels, or one part of its
// channels, and LANES channels are taken at once. Otherwise it is a line of one
// plane and LANES neighbouring outputs are taken at once.
//
// As on PyTorch's CPU a NaN wins over everything and the last NaN over the
// others; of equal maxima the first in row-major order wins.

#define LANES 16
#include "types.clh"
#include "window.clh"
#include "average.clh"
#include "positions.clh"
#include "prefetch.clh"

#ifndef STRIDE
#define STRIDE 0  // of windows along a dense width: 1, 2, or 0 for all others
#endif
#ifndef TAPS
#define TAPS 0  // of a window's row, side by side: 2, 3, or 0 for all others
#endif
#include "non_temporal_maxima.clh"

#define AT_ONCE 2  // vectors of channels

typedef struct {
  int batch;
  int channel;
  int end_channel;
  int depth;
  int height;
  int d_begin;  // of its windows
  int d_end;
  int h_begin;
  int h_end;
  index_t image;  // offset of its batch and channel
} line_t;

inline line_t line_of(const geometry_t *g, index_t row) {
  line_t line;
#if CHANNELS_LAST
  const int part = (int)(row % g->parts);
  row /= g->parts;
  const int blocks = (g->channels + LANES - 1) / LANES;
  line.channel = (int)((long)blocks * part / g->parts) * LANES;
  line.end_channel =
      min((int)((long)blocks * (part + 1) / g->parts) * LANES, g->channels);
#endif
  line.height = (int)(row % g->pooled[1]);
  row /= g->pooled[1];
  line.depth = (int)(row % g->pooled[0]);
  row /= g->pooled[0];
#if !CHANNELS_LAST
  line.channel = (int)(row % g->channels);
  row /= g->channels;
#endif
  line.batch = (int)row;
  line.d_begin = window_begin(g, 0, line.depth);
  line.d_end = window_end(g, 0, line.depth);
  line.h_begin = window_begin(g, 1, line.height);
  line.h_end = window_end(g, 1, line.height);
  line.image = line.batch * g->image_strides[0] + line.channel * g->image_strides[1];
  return line;
}

#define FOR_EACH_LINE                                            \
  const geometry_t *g = &geometry;                               \
  const index_t first_row = (index_t)get_global_id(0) * g->tile; \
  const index_t end_row = min(first_row + g->tile, g->blocks);   \
  for (index_t row = first_row; row < end_row; ++row)

#define LINE_OFFSET(strides)                                 \
  (line.batch * (strides)[0] + line.channel * (strides)[1] + \
   pixel_offset(strides, line.depth, line.height, 0))

#if CHANNELS_LAST

// Runs `body` for the taps of a window, `at` a pixel of the image and `here` in
// its plane.
#define FOR_EACH_TAP(body)                                          \
  for (int d = line.d_begin; d < line.d_end; d += g->dilation[0])   \
    for (int h = line.h_begin; h < line.h_end; h += g->dilation[1]) \
      for (int w = w_begin; w < w_end; w += g->dilation[2]) {       \
        const index_t at = pixel_offset(g->image_strides, d, h, w); \
        const index_t here = plane_position(g, d, h, w);            \
        body                                                        \
      }

#include "full_vectors.clh"

#define TAKE_BEST(best, where, loaded)                        \
  {                                                           \
    const lanes_t value = loaded;                             \
    const where_t better = (value > best) | (value != value); \
    best = select(best, value, better);                       \
    where = select(where, (where_t)here, better);             \
  }
#define FOR_EACH_VECTOR(v) _Pragma("unroll") for (int v = 0; v < AT_ONCE; ++v)

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_rows(MAX_POOL_PARAMETERS) {
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) + line.image;
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    global long *chosen = POINTER(indices) + LINE_OFFSET(g->indices_strides);
    const int dense = g->image_strides[1] == 1 && g->pooled_strides[1] == 1 &&
                      g->indices_strides[1] == 1;
    for (int width = 0; width < g->pooled[2]; ++width) {
      const int w_begin = window_begin(g, 2, width);
      const int w_end = window_end(g, 2, width);
      const index_t first_here = plane_position(g, line.d_begin, line.h_begin, w_begin);
      const where_t origin = (where_t)first_here;
      const index_t window =
          pixel_offset(g->image_strides, line.d_begin, line.h_begin, w_begin);
      const index_t y_at = width * g->pooled_strides[4];
      const index_t chosen_at = width * g->indices_strides[4];
      const int channels = line.end_channel - line.channel;
      int c = 0;
      for (; dense && c + AT_ONCE * LANES <= channels; c += AT_ONCE * LANES) {
        lanes_t best[AT_ONCE];
        where_t where[AT_ONCE];
        FOR_EACH_VECTOR(v) {
          best[v] = (lanes_t)LOWEST;
          where[v] = origin;
        }
#define TAKE_VECTORS  \
  FOR_EACH_VECTOR(v)  \
  TAKE_BEST(best[v],  \
            where[v], \
            CONCAT(load_lanes_, DTYPE)(image + at + c + v * LANES))
        if (IS_WHOLE) {
          FOR_EACH_WHOLE_TAP(first_here, TAKE_VECTORS)
        } else {
          FOR_EACH_TAP(TAKE_VECTORS)
        }
        FOR_EACH_VECTOR(v) {
          STORE_MAXIMA_NT(y + y_at + c + v * LANES, best[v])
          STORE_INDICES_NT(chosen + chosen_at + c + v * LANES, convert_long16(where[v]))
        }
      }
      for (; c < channels; c += LANES) {
        const int count = min(LANES, channels - c);
        lanes_t best = (lanes_t)LOWEST;
        where_t where = origin;
        const index_t stride = g->image_strides[1];
        FOR_EACH_TAP(TAKE_BEST(
            best, where, load_lanes(image, at + c * stride, stride, count)))
        store_lanes(
            y, y_at + c * g->pooled_strides[1], g->pooled_strides[1], count, best);
        store_indices(chosen,
                      chosen_at + c * g->indices_strides[1],
                      g->indices_strides[1],
                      count,
                      where);
      }
    }
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_rows(AVG_POOL_PARAMETERS) {
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) + line.image;
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    const int dense = g->image_strides[1] == 1 && g->pooled_strides[1] == 1;
    const long counted_plane =
        (long)counted(g, 0, line.depth) * counted(g, 1, line.height);
    for (int width = 0; width < g->pooled[2]; ++width) {
      const int w_begin = window_begin(g, 2, width);
      const int w_end = window_end(g, 2, width);
      const long divisor =
          divisor_override ? divisor_override : counted_plane * counted(g, 2, width);
      // A window that lies in the padding altogether averages nothing: 0.
      const int empty = line.d_begin >= line.d_end || line.h_begin >= line.h_end ||
                        w_begin >= w_end;
      const compute_t by = (compute_t)(empty ? 1 : divisor);
      const index_t y_at = width * g->pooled_strides[4];
      const index_t window =
          pixel_offset(g->image_strides, line.d_begin, line.h_begin, w_begin);
      const int channels = line.end_channel - line.channel;
      for (int c = 0; c < channels; c += LANES) {
        const int count = min(LANES, channels - c);
        lanes_t sum = 0;
        if (dense && count == LANES) {
          if (IS_WHOLE) {
            FOR_EACH_WHOLE_TAP(0, sum += CONCAT(load_lanes_, DTYPE)(image + at + c);)
          } else {
            FOR_EACH_TAP(sum += CONCAT(load_lanes_, DTYPE)(image + at + c);)
          }
          CONCAT(store_lanes_, DTYPE)(y + y_at + c, sum / by);
          continue;
        }
        const index_t stride = g->image_strides[1];
        FOR_EACH_TAP(sum += load_lanes(image, at + c * stride, stride, count);)
        store_lanes(y, y_at + c * g->pooled_strides[1], g->pooled_strides[1], count, sum / by);
      }
    }
  }
}

#else

// Groups of LANES outputs that are made together: all of them read a line of the
// image before the next line is looked at, as prefetchers like it. The last group of
// a line makes some outputs of the one before again rather than fewer.
#define GROUPS 8
#define GROUP_WIDTH(i) min(first + (i) * LANES, max(g->pooled[2] - LANES, 0))
#define RAMP ((where_t)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

#define lanes_of_float32 convert_float16
#define lanes_of_float16 convert_float16
#define lanes_of_bfloat16 convert_float16
#define lanes_of_float64 convert_double16
#define LANES_OF(x) CONCAT(lanes_of_, DTYPE)(x)

// LANES elements of a line, windows' stride apart, from `first` on; `outside`
// where that is not in the image. `line` is the line's offset in the tensor.
inline lanes_t load_tap(const geometry_t *g,
                        const global storage_t *self,
                        index_t line,
                        int first,
                        int count,
                        compute_t outside) {
#if STRIDE
  const int last = first + (LANES - 1) * STRIDE;
  // What lies beside the line belongs to the tensor, except at its ends.
  if (line + first >= 0 && line + last < g->extent) {
    const global storage_t *p = self + (line + first);
#if STRIDE == 1
    const lanes_t value = CONCAT(load_lanes_, DTYPE)(p);
#else
    const lanes_t a = CONCAT(load_lanes_, DTYPE)(p);
    const lanes_t b = CONCAT(load_lanes_, DTYPE)(p + LANES - 1);
    const lanes_t value = (lanes_t)(a.even, b.odd);
#endif
    if (first >= 0 && last < g->image[2]) return value;
    const where_t x = (where_t)first + RAMP * (where_t)STRIDE;
    return select(
        (lanes_t)outside, value, (x >= (where_t)0) & (x < (where_t)g->image[2]));
  }
#endif
  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = outside;
  for (int l = 0; l < count; ++l) {
    const int x = first + l * g->stride[2];
    if (x >= 0 && x < g->image[2]) lane[l] = LOAD(self, line + x * g->image_strides[4]);
  }
  return vload16(0, lane);
}

// All of a row's TAPS by full vectors, where the tensor has them.
#if STRIDE && TAPS
#define REACH ((LANES - 1) * STRIDE + TAPS)  // columns
#define HAS_WHOLE_TAPS(at) ((at) >= 0 && (at) + REACH <= g->extent)
#define LOAD_VECTOR(p) CONCAT(load_lanes_, DTYPE)(p)
#if STRIDE == 1
#define LOAD_TAPS(taps, p) \
  _Pragma("unroll") for (int tap = 0; tap < TAPS; ++tap) taps[tap] = LOAD_VECTOR((p) + tap);
#else
#define LOAD_TAPS(taps, p)                               \
  {                                                      \
    const lanes_t low = LOAD_VECTOR(p);                  \
    const lanes_t high = LOAD_VECTOR((p) + LANES);       \
    taps[0] = (lanes_t)(low.even, high.even);            \
    taps[1] = (lanes_t)(low.odd, high.odd);              \
    if (TAPS == 3) {                                     \
      const lanes_t next = LOAD_VECTOR((p) + 2);         \
      const lanes_t last = LOAD_VECTOR((p) + LANES + 1); \
      taps[TAPS - 1] = (lanes_t)(next.even, last.odd);   \
    }                                                    \
  }
#endif
#else
#define REACH 1
#define HAS_WHOLE_TAPS(at) 0
#define LOAD_TAPS(taps, p) taps[0] = 0;
#endif
#define LARGEST(a, b) ((a) > (b) ? (a) : (b))

// Runs `body` for each tap of the windows of outputs [first, first + LANES *
// groups), lines of the image outermost, between `before` and `after` a line's of a
// group.
#define FOR_EACH_TAP(outside, before, body, after)                                     \
  for (int d = line.d_begin; d < line.d_end; d += g->dilation[0])                      \
    for (int h = line.h_begin; h < line.h_end; h += g->dilation[1]) {                  \
      const index_t at = line.image + pixel_offset(g->image_strides, d, h, 0);         \
      const index_t position = plane_position(g, d, h, 0);                             \
      for (int i = 0; i < groups; ++i) {                                               \
        const int width = GROUP_WIDTH(i);                                              \
        const int origin = width * g->stride[2] - g->padding[2];                       \
        before                                                                         \
        if (HAS_WHOLE_TAPS(at + origin)) {                                             \
          lanes_t taps[LARGEST(TAPS, 1)];                                              \
          LOAD_TAPS(taps, image + (at + origin))                                        \
          if (origin < 0 || origin + REACH > g->image[2]) {                            \
            const where_t column = (where_t)origin + RAMP * (where_t)STRIDE;           \
            _Pragma("unroll") for (int tap = 0; tap < TAPS; ++tap) taps[tap] = select( \
                (lanes_t)outside, taps[tap],                                           \
                (column >= (where_t)-tap) & (column < (where_t)(g->image[2] - tap)));  \
          }                                                                            \
          _Pragma("unroll") for (int x = 0; x < TAPS; ++x) {                           \
            const lanes_t value = taps[x];                                             \
            body                                                                       \
          }                                                                            \
        } else {                                                                       \
          const int count = min(LANES, g->pooled[2] - width);                          \
          for (int tap = 0; tap < g->kernel_size[2]; ++tap) {                          \
            const int x = tap * g->dilation[2];                                        \
            const lanes_t value = load_tap(g, image, at, origin + x, count, outside);   \
            body                                                                       \
          }                                                                            \
        }                                                                              \
        after                                                                          \
      }                                                                                \
    }

#include "whole_windows.clh"

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_rows(MAX_POOL_PARAMETERS) {
  const global storage_t *image = POINTER(self);
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    global long *chosen = POINTER(indices) + LINE_OFFSET(g->indices_strides);
    const index_t window =
        line.image + pixel_offset(g->image_strides, line.d_begin, line.h_begin, 0);
    if (HAS_WHOLE_WINDOWS(window)) {
      MAX_OF_WHOLE_WINDOWS(window)
      continue;
    }
    for (int first = 0; first < g->pooled[2]; first += GROUPS * LANES) {
      const int groups = min(GROUPS, (g->pooled[2] - first + LANES - 1) / LANES);
      lanes_t best[GROUPS];
      where_t where[GROUPS];  // less the position of the window's first column
      for (int i = 0; i < groups; ++i) {
        best[i] = (lanes_t)LOWEST;
        where[i] = (where_t)plane_position(g, line.d_begin, line.h_begin, 0);
        const int origin = GROUP_WIDTH(i) * g->stride[2] - g->padding[2];
        if (origin < 0) {
          const where_t missing = -((where_t)origin + RAMP * (where_t)g->stride[2]);
          const where_t dilation = (where_t)g->dilation[2];
          where[i] += g->dilation[2] == 1
                          ? max(missing, (where_t)0)
                          : (max(missing, (where_t)0) + dilation - (where_t)1) /
                                dilation * dilation;
        }
      }
      FOR_EACH_TAP(
          LOWEST, lanes_t largest = best[i]; where_t place = where[i];
          , {
            const where_t better = (value > largest) | (value != value);
            largest = select(largest, value, better);
            place = select(place, (where_t)(position + x), better);
          },
          best[i] = largest;
          where[i] = place;)
      for (int i = 0; i < groups; ++i) {
        const int width = GROUP_WIDTH(i);
        const int origin = width * g->stride[2] - g->padding[2];
        const int count = min(LANES, g->pooled[2] - width);
        store_lanes(
            y, width * g->pooled_strides[4], g->pooled_strides[4], count, best[i]);
        store_indices(chosen,
                      width * g->indices_strides[4],
                      g->indices_strides[4],
                      count,
                      where[i] + (where_t)origin + RAMP * (where_t)g->stride[2]);
      }
    }
  }
}

// What the sums of outputs [width, width + LANES) are divided by.
inline lanes_t divisors_of(
    const geometry_t *g, int width, compute_t counted_plane, long divisor_override) {
  if (divisor_override) return (lanes_t)(compute_t)divisor_override;
  const where_t begin = (where_t)(width * g->stride[2] - g->padding[2]) +
                        RAMP * (where_t)g->stride[2];
#if COUNT_INCLUDE_PAD
  const where_t counted_begin = begin;
  const int limit = g->image[2] + g->padding[2];
#else
  const where_t counted_begin = max(begin, (where_t)0);
  const int limit = g->image[2];
#endif
  const where_t end = min(begin + (where_t)g->kernel_size[2], (where_t)limit);
  return LANES_OF(end - counted_begin) * counted_plane;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_rows(AVG_POOL_PARAMETERS) {
  const global storage_t *image = POINTER(self);
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    const compute_t counted_plane = (compute_t)counted(g, 0, line.depth) *
                                    (compute_t)counted(g, 1, line.height);
    const index_t window =
        line.image + pixel_offset(g->image_strides, line.d_begin, line.h_begin, 0);
    if (HAS_WHOLE_WINDOWS(window)) {
      AVERAGE_OF_WHOLE_WINDOWS(window)
      continue;
    }
    for (int first = 0; first < g->pooled[2]; first += GROUPS * LANES) {
      const int groups = min(GROUPS, (g->pooled[2] - first + LANES - 1) / LANES);
      lanes_t sum[GROUPS];
      for (int i = 0; i < groups; ++i) sum[i] = 0;
      FOR_EACH_TAP(0, lanes_t total = sum[i];, total += value;, sum[i] = total;)
      for (int i = 0; i < groups; ++i) {
        const int width = GROUP_WIDTH(i);
        const int count = min(LANES, g->pooled[2] - width);
        const lanes_t by = divisors_of(g, width, counted_plane, divisor_override);
        // A window that lies in the padding altogether averages nothing: 0.
        const where_t nothing = (sum[i] == (lanes_t)0) & (by <= (lanes_t)0);
        store_lanes(y,
                    width * g->pooled_strides[4],
                    g->pooled_strides[4],
                    count,
                    select(sum[i] / by, (lanes_t)0, nothing));
      }
    }
  }
}

// For windows of any widths: lines are added first, then the columns of each window.
// COLUMNS is at least the image's width.
#define COLUMNS 1024
#define LINES_SUM(sum, value)                                                      \
  for (int d = line.d_begin; d < line.d_end; ++d)                                  \
    for (int h = line.h_begin; h < line.h_end; ++h) {                              \
      const global storage_t *p = image + pixel_offset(g->image_strides, d, h, x); \
      sum += value;                                                                \
    }

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_columns(AVG_POOL_PARAMETERS) {
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) + line.image;
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    const compute_t counted_plane = (compute_t)counted(g, 0, line.depth) *
                                    (compute_t)counted(g, 1, line.height);
    const int has_lines = line.d_begin < line.d_end && line.h_begin < line.h_end;
    const int end = g->image[2];
    compute_t columns[COLUMNS];
    if (end < LANES) {
      for (int x = 0; x < end; ++x) {
        compute_t sum = 0;
        LINES_SUM(sum, LOAD(p, 0))
        columns[x] = sum;
      }
    } else {
      for (int next = 0; next < end; next += LANES) {
        const int x = min(next, end - LANES);
        lanes_t sum = 0;
        LINES_SUM(sum, CONCAT(load_lanes_, DTYPE)(p))
        vstore16(sum, 0, columns + x);
      }
    }
    for (int width = 0; width < g->pooled[2]; ++width) {
      const int w_begin = window_begin(g, 2, width);
      const int w_end = window_end(g, 2, width);
      compute_t sum = 0;
      for (int w = w_begin; w < w_end; ++w) sum += columns[w];
      const compute_t by = divisor_override ? (compute_t)divisor_override
                                            : counted_plane * counted(g, 2, width);
      // A window that lies in the padding altogether averages nothing: 0.
      STORE(y, width * g->pooled_strides[4], has_lines && w_begin < w_end ? sum / by : 0);
    }
  }
}

#endif
