// Max and average pooling on CPUs, by rows of outputs: a work-item makes `tile`
// of them. CHANNELS_LAST: a row is a line of pixels, or one part of its
// channels, and LANES channels are taken at once. Otherwise it is a line of one
// plane and LANES neighbouring outputs are taken at once, straight from the
// image where all their windows lie inside it, else element by element.
//
// As on PyTorch's CPU a NaN wins over everything and the last NaN over the
// others; of equal maxima the first in row-major order wins.

#define LANES 16
#include "types.clh"
#include "window.clh"
#include "average.clh"
#include "positions.clh"

#ifndef STRIDE
#define STRIDE 0  // of windows along a dense width: 1, 2, or 0 for all others
#endif

typedef struct {
  int batch;
  int channel;
  int end_channel;
  int depth;
  int height;
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
  return line;
}

#define FOR_EACH_LINE                                                      \
  const geometry_t *g = &geometry;                                         \
  const index_t first_row = (index_t)get_global_id(0) * g->tile;           \
  const index_t end_row = min(first_row + g->tile, g->blocks);             \
  for (index_t row = first_row; row < end_row; ++row)

#define LINE_OFFSET(strides)                                      \
  (line.batch * (strides)[0] + line.channel * (strides)[1] +      \
   pixel_offset(strides, line.depth, line.height, 0))

#if CHANNELS_LAST

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_rows(
    const geometry_t geometry,
    TENSOR(storage_t, out),
    TENSOR(long, indices),
    CONST_TENSOR(storage_t, self)) {
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) +
                                    line.batch * g->image_strides[0] +
                                    line.channel * g->image_strides[1];
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    global long *chosen = POINTER(indices) + LINE_OFFSET(g->indices_strides);
    const int d_begin = window_begin(g, 0, line.depth);
    const int d_end = window_end(g, 0, line.depth);
    const int h_begin = window_begin(g, 1, line.height);
    const int h_end = window_end(g, 1, line.height);
    for (int width = 0; width < g->pooled[2]; ++width) {
      const int w_begin = window_begin(g, 2, width);
      const int w_end = window_end(g, 2, width);
      for (int c = 0; c < line.end_channel - line.channel; c += LANES) {
        const int count = min(LANES, line.end_channel - line.channel - c);
        where_t where = (where_t)plane_position(g, d_begin, h_begin, w_begin);
        lanes_t best = (lanes_t)LOWEST;
        for (int d = d_begin; d < d_end; d += g->dilation[0])
          for (int h = h_begin; h < h_end; h += g->dilation[1]) {
            const index_t start = pixel_offset(g->image_strides, d, h, 0) +
                                  c * g->image_strides[1];
            for (int w = w_begin; w < w_end; w += g->dilation[2]) {
              const lanes_t value = load_lanes(
                  image, start + w * g->image_strides[4], g->image_strides[1], count);
              const where_t here = (where_t)plane_position(g, d, h, w);
              const where_t better = (value > best) | (value != value);
              best = select(best, value, better);
              where = select(where, here, better);
            }
          }
        store_lanes(y,
                    width * g->pooled_strides[4] + c * g->pooled_strides[1],
                    g->pooled_strides[1],
                    count,
                    best);
        store_indices(chosen,
                      width * g->indices_strides[4] + c * g->indices_strides[1],
                      g->indices_strides[1],
                      count,
                      where);
      }
    }
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_rows(
    const geometry_t geometry,
    const int divisor_override,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self)) {
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) +
                                    line.batch * g->image_strides[0] +
                                    line.channel * g->image_strides[1];
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    const int d_begin = window_begin(g, 0, line.depth);
    const int d_end = window_end(g, 0, line.depth);
    const int h_begin = window_begin(g, 1, line.height);
    const int h_end = window_end(g, 1, line.height);
    const long counted_plane =
        (long)counted(g, 0, line.depth) * counted(g, 1, line.height);
    for (int width = 0; width < g->pooled[2]; ++width) {
      const int w_begin = window_begin(g, 2, width);
      const int w_end = window_end(g, 2, width);
      const long divisor =
          divisor_override ? divisor_override : counted_plane * counted(g, 2, width);
      // A window that lies in the padding altogether averages nothing: 0.
      const int empty = d_begin >= d_end || h_begin >= h_end || w_begin >= w_end;
      const compute_t by = (compute_t)(empty ? 1 : divisor);
      for (int c = 0; c < line.end_channel - line.channel; c += LANES) {
        const int count = min(LANES, line.end_channel - line.channel - c);
        lanes_t sum = 0;
        for (int d = d_begin; d < d_end; ++d)
          for (int h = h_begin; h < h_end; ++h) {
            const index_t start = pixel_offset(g->image_strides, d, h, 0) +
                                  c * g->image_strides[1];
            for (int w = w_begin; w < w_end; ++w)
              sum += load_lanes(
                  image, start + w * g->image_strides[4], g->image_strides[1], count);
          }
        store_lanes(y,
                    width * g->pooled_strides[4] + c * g->pooled_strides[1],
                    g->pooled_strides[1],
                    count,
                    sum / by);
      }
    }
  }
}

#else

// The outputs of a line whose windows lie wholly inside the image's line.
typedef struct {
  int begin;
  int end;
} inside_t;

inline inside_t inside_of(const geometry_t *g) {
  const int stride = g->stride[2];
  const int reach = (g->kernel_size[2] - 1) * g->dilation[2];
  const int room = g->image[2] - 1 - reach + g->padding[2];
  inside_t inside;
  inside.begin = min((g->padding[2] + stride - 1) / stride, g->pooled[2]);
  inside.end =
      max(inside.begin, room < 0 ? 0 : min(room / stride + 1, g->pooled[2]));
  return inside;
}

// Neighbouring outputs; their windows begin at `origin`, origin + stride, ...
typedef struct {
  int width;
  int count;
  int origin;
  int inside;  // all of them
} group_t;

inline group_t group_of(const geometry_t *g, const inside_t *inside, int width) {
  group_t group;
  group.width = width;
  group.count = LANES;
  group.inside = 1;
  if (width < inside->begin) {
    group.count = min(inside->begin - width, LANES);
    group.inside = 0;
  } else if (width < inside->end && inside->end - inside->begin >= LANES) {
    // The last group makes some outputs a second time.
    group.width = min(width, inside->end - LANES);
  } else {
    group.count = min(g->pooled[2] - width, LANES);
    group.inside = 0;
  }
  group.origin = group.width * g->stride[2] - g->padding[2];
  return group;
}

// LANES elements at the distance of the windows' stride.
inline lanes_t load_inside(const geometry_t *g, const global storage_t *line, int first) {
#if STRIDE == 1
  return CONCAT(load_lanes_, DTYPE)(line + first);
#elif STRIDE == 2
  const lanes_t a = CONCAT(load_lanes_, DTYPE)(line + first);
  const lanes_t b = CONCAT(load_lanes_, DTYPE)(line + first + LANES - 1);
  return (lanes_t)(a.even, b.odd);
#else
  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l)
    lane[l] = LOAD(line, (first + l * g->stride[2]) * g->image_strides[4]);
  return vload16(0, lane);
#endif
}

// The same of a few windows, `outside` where they reach into the padding.
inline lanes_t load_some(const geometry_t *g,
                         const global storage_t *line,
                         int first,
                         int count,
                         compute_t outside) {
  compute_t lane[LANES];
  for (int l = 0; l < LANES; ++l) lane[l] = outside;
  for (int l = 0; l < count; ++l) {
    const int x = first + l * g->stride[2];
    if (x >= 0 && x < g->image[2]) lane[l] = LOAD(line, x * g->image_strides[4]);
  }
  return vload16(0, lane);
}

#define FOR_EACH_TAP(load)                                                             \
  for (int d = d_begin; d < d_end; d += g->dilation[0])                                \
    for (int h = h_begin; h < h_end; h += g->dilation[1]) {                            \
      const global storage_t *from = image + pixel_offset(g->image_strides, d, h, 0);  \
      const index_t start = plane_position(g, d, h, 0);                                \
      for (int tap = 0; tap < g->kernel_size[2]; ++tap) {                              \
        const int x = group.origin + tap * g->dilation[2];                             \
        const lanes_t value = load;                                                    \
        const where_t here = (where_t)(start + tap * g->dilation[2]);                  \
        const where_t better = (value > best) | (value != value);                      \
        best = select(best, value, better);                                            \
        where = select(where, here, better);                                           \
      }                                                                                \
    }

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void max_pool_rows(
    const geometry_t geometry,
    TENSOR(storage_t, out),
    TENSOR(long, indices),
    CONST_TENSOR(storage_t, self)) {
  const where_t ramp =
      (where_t)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) *
      (where_t)geometry.stride[2];
  const inside_t inside = inside_of(&geometry);
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) +
                                    line.batch * g->image_strides[0] +
                                    line.channel * g->image_strides[1];
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    global long *chosen = POINTER(indices) + LINE_OFFSET(g->indices_strides);
    const int d_begin = window_begin(g, 0, line.depth);
    const int d_end = window_end(g, 0, line.depth);
    const int h_begin = window_begin(g, 1, line.height);
    const int h_end = window_end(g, 1, line.height);
    for (int width = 0; width < g->pooled[2];) {
      const group_t group = group_of(g, &inside, width);
      // Positions less that of the window's first column.
      where_t where = (where_t)plane_position(g, d_begin, h_begin, 0);
      if (!group.inside) {
        POSITION lane[LANES];
        for (int l = 0; l < LANES; ++l)
          lane[l] = window_begin(g, 2, group.width + min(l, group.count - 1)) -
                    group.origin - l * g->stride[2];
        where += vload16(0, lane);
      }
      lanes_t best = (lanes_t)LOWEST;
      if (group.inside)
        FOR_EACH_TAP(load_inside(g, from, x))
      else
        FOR_EACH_TAP(load_some(g, from, x, group.count, LOWEST))
      store_lanes(y,
                  group.width * g->pooled_strides[4],
                  g->pooled_strides[4],
                  group.count,
                  best);
      store_indices(chosen,
                    group.width * g->indices_strides[4],
                    g->indices_strides[4],
                    group.count,
                    where + ramp + (where_t)group.origin);
      width = group.width + group.count;
    }
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void avg_pool_rows(
    const geometry_t geometry,
    const int divisor_override,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self)) {
  const inside_t inside = inside_of(&geometry);
  FOR_EACH_LINE {
    const line_t line = line_of(g, row);
    const global storage_t *image = POINTER(self) +
                                    line.batch * g->image_strides[0] +
                                    line.channel * g->image_strides[1];
    global storage_t *y = POINTER(out) + LINE_OFFSET(g->pooled_strides);
    const int d_begin = window_begin(g, 0, line.depth);
    const int d_end = window_end(g, 0, line.depth);
    const int h_begin = window_begin(g, 1, line.height);
    const int h_end = window_end(g, 1, line.height);
    const compute_t counted_plane = (compute_t)counted(g, 0, line.depth) *
                                    (compute_t)counted(g, 1, line.height);
    for (int width = 0; width < g->pooled[2];) {
      const group_t group = group_of(g, &inside, width);
      lanes_t sum = 0;
      for (int d = d_begin; d < d_end; ++d)
        for (int h = h_begin; h < h_end; ++h) {
          const global storage_t *from = image + pixel_offset(g->image_strides, d, h, 0);
          for (int tap = 0; tap < g->kernel_size[2]; ++tap) {
            const int x = group.origin + tap;
            sum += group.inside ? load_inside(g, from, x)
                                : load_some(g, from, x, group.count, 0);
          }
        }
      lanes_t by = (lanes_t)(compute_t)divisor_override;
      if (!divisor_override) {
        by = (lanes_t)(counted_plane * (compute_t)g->kernel_size[2]);
        if (!group.inside) {
          compute_t lane[LANES];
          for (int l = 0; l < LANES; ++l)
            lane[l] = counted_plane *
                      (compute_t)counted(g, 2, group.width + min(l, group.count - 1));
          by = vload16(0, lane);
        }
      }
      // A window that lies in the padding altogether averages nothing: 0, also
      // where it counts no element.
      store_lanes(y,
                  group.width * g->pooled_strides[4],
                  g->pooled_strides[4],
                  group.count,
                  select(sum / by, (lanes_t)0, by <= (lanes_t)0 & sum == (lanes_t)0));
      width = group.width + group.count;
    }
  }
}

#endif
