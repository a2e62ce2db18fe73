// Reflection and replication padding and their gradients on CPUs: a work-item makes
// `rows` rows of the last dimension, one after the other. A row has elements or, where
// channels are innermost (CHANNELS_LAST), pixels. What lies between its borders is one
// run of memory.

#include "pad.clh"
#include "lanes.clh"

#define INNER(g) (CHANNELS_LAST ? (g)->channels : 1)

inline void find_row(place_t *place, int row, const int *size, int channels) {
  place->at[2] = 0;
  place->at[1] = row % size[1];
  row /= size[1];
  place->at[0] = row % size[0];
  row /= size[0];
  place->channel = CHANNELS_LAST ? 0 : row % channels;
  place->batch = CHANNELS_LAST ? row : row / channels;
}

inline void next_row(place_t *place, const int *size, int channels) {
  if (++place->at[1] < size[1]) return;
  place->at[1] = 0;
  if (++place->at[0] < size[0]) return;
  place->at[0] = 0;
  if (!CHANNELS_LAST && ++place->channel < channels) return;
  place->channel = 0;
  ++place->batch;
}

// The last vector overlaps its neighbour.
inline void copy_elements(global storage_t *to, long to_stride,
                          const global storage_t *from, long from_stride, int count) {
  if (to_stride == 1 && from_stride == 1 && count >= 16) {
    for (int i = 0; i < count; i += 16) {
      const int at = min(i, count - 16);
      vstore16(vload16(0, from + at), 0, to + at);
    }
    return;
  }
  for (int i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void pad_forward_rows(
    const geometry_t geometry, TENSOR(storage_t, padded), CONST_TENSOR(storage_t, image),
    const int all_rows, const int rows) {
  const geometry_t *g = &geometry;
  const int inner = INNER(g);
  const long to_pixel = g->padded_strides[4], from_pixel = g->image_strides[4];
  // Between the elements of a pixel; one that is alone has no stride that counts.
  const long to_stride = CHANNELS_LAST ? g->padded_strides[1] : 1;
  const long from_stride = CHANNELS_LAST ? g->image_strides[1] : 1;
  const bool is_run = to_stride == 1 && from_stride == 1 && to_pixel == inner &&
                      from_pixel == inner;
  const int begin = clamp(g->left[2], 0, g->padded[2]);
  const int end = clamp(g->left[2] + g->image[2], begin, g->padded[2]);
  place_t place;
  const int first = get_global_id(0) * rows;
  find_row(&place, first, g->padded, g->channels);
  for (int row = first; row < min(first + rows, all_rows); ++row) {
    global storage_t *to = POINTER(padded) +
        offset_of(&place, g->padded_strides, place.at[0], place.at[1], 0);
    const global storage_t *from = POINTER(image) +
        offset_of(&place, g->image_strides, source_of(g, 0, place.at[0]),
                  source_of(g, 1, place.at[1]), 0);
    for (int x = 0; x < g->padded[2];) {
      const int next = is_run && x == begin && x < end ? end : x + 1;
      if (!CHANNELS_LAST && next == x + 1) {
        to[x * to_pixel] = from[source_of(g, 2, x) * from_pixel];
        x = next;
        continue;
      }
      copy_elements(to + x * to_pixel, to_stride, from + source_of(g, 2, x) * from_pixel,
                    from_stride, (next - x) * inner);
      x = next;
    }
    next_row(&place, g->padded, g->channels);
  }
}

// How many columns beside a border are cropped or shown by it too.
inline int special_columns(int padding) {
  return padding > 0 ? (REFLECT ? padding + 1 : 1) : -padding;
}

// BODY(from) for what shows the columns from x on, in a fixed order.
#define FOR_COPIES(BODY)                                                        \
  for (int i = ds.begin; i < ds.end; ++i) {                                     \
    const int d = copy_of(g, 0, place.at[0], i);                                \
    if (d < 0 || d >= g->padded[0]) continue;                                   \
    for (int j = hs.begin; j < hs.end; ++j) {                                   \
      const int h = copy_of(g, 1, place.at[1], j);                              \
      if (h < 0 || h >= g->padded[1]) continue;                                 \
      for (int k = ws.begin; k < ws.end; ++k) {                                 \
        const int w = copy_of(g, 2, x, k);                                      \
        if (w < 0 || w >= g->padded[2]) continue;                               \
        BODY(grad + d * g->padded_strides[2] + h * g->padded_strides[3] +       \
             (long)w * inner)                                                   \
      }                                                                         \
    }                                                                           \
  }

// Pixels follow each other in both tensors.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void pad_backward_rows(
    const geometry_t geometry, TENSOR(storage_t, image), CONST_TENSOR(storage_t, padded),
    const int all_rows, const int rows) {
  const geometry_t *g = &geometry;
  const int inner = INNER(g);
  const int begin = special_columns(g->left[2]);
  const int end =
      g->image[2] - special_columns(g->padded[2] - g->image[2] - g->left[2]);
  place_t place;
  const int first = get_global_id(0) * rows;
  find_row(&place, first, g->image, g->channels);
  for (int row = first; row < min(first + rows, all_rows); ++row) {
    const global storage_t *grad =
        POINTER(padded) + offset_of(&place, g->padded_strides, 0, 0, 0);
    global storage_t *result = POINTER(image) +
        offset_of(&place, g->image_strides, place.at[0], place.at[1], 0);
    const copies_t ds = copies_of(g, 0, place.at[0]);
    const copies_t hs = copies_of(g, 1, place.at[1]);
    const int one_d = copy_of(g, 0, place.at[0], ds.begin);
    const int one_h = copy_of(g, 1, place.at[1], hs.begin);
    const bool is_one = ds.end - ds.begin == 1 && hs.end - hs.begin == 1 && one_d >= 0 &&
                        one_d < g->padded[0] && one_h >= 0 && one_h < g->padded[1];
    const global storage_t *line =
        grad + one_d * g->padded_strides[2] + one_h * g->padded_strides[3];
    for (int x = 0; x < g->image[2];) {
      const int next = x == begin && x < end ? end : x + 1;
      const int count = (next - x) * inner;
      const copies_t ws = copies_of(g, 2, x);
      global storage_t *to = result + (long)x * inner;
      if (count >= LANES) {
        for (int e = 0; e < count; e += LANES) {
          const int at = min(e, count - LANES);
          lanes_t sum = 0;
#define ADD_LANES(from) sum += load_lanes(from + at, 0, 1, LANES);
          FOR_COPIES(ADD_LANES)
          store_lanes(to, at, 1, LANES, sum);
        }
      } else if (is_one) {
        // Most rows: three nested loops an element would cost more than its sum.
        for (int e = 0; e < count; ++e) {
          compute_t sum = 0;
          for (int k = ws.begin; k < ws.end; ++k) {
            const int w = copy_of(g, 2, x, k);
            if (w >= 0 && w < g->padded[2]) sum += LOAD(line, (long)w * inner + e);
          }
          STORE(to, e, sum);
        }
      } else {
        for (int e = 0; e < count; ++e) {
          compute_t sum = 0;
#define ADD_ELEMENT(from) sum += LOAD(from, e);
          FOR_COPIES(ADD_ELEMENT)
          STORE(to, e, sum);
        }
      }
      x = next;
    }
    next_row(&place, g->image, g->channels);
  }
}
