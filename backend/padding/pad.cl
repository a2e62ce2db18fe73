// Reflection and replication padding of up to three dimensions, and their
// gradients.
//
// A work-item makes one element of what is written: x is its channel where
// channels are innermost (CHANNELS_LAST), else its width; y counts the other
// dimensions. Strides are any. Padding may be negative, which crops.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif
#ifndef REFLECT
#define REFLECT 0  // else the border is repeated
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif

// The host's Geometry; strides are those of batch, channel, depth, height and
// width, in elements.
typedef struct {
  long padded_strides[5];
  long image_strides[5];
  int padded[3];
  int image[3];
  int left[3];
  int channels;
} geometry_t;

typedef struct {
  int batch;
  int channel;
  int at[3];
} place_t;

inline void find_place(place_t *place, int x, int y, const int *size, int channels) {
#if CHANNELS_LAST
  place->channel = x;
  place->at[2] = y % size[2];
  y /= size[2];
#else
  place->at[2] = x;
#endif
  place->at[1] = y % size[1];
  y /= size[1];
  place->at[0] = y % size[0];
  y /= size[0];
#if CHANNELS_LAST
  place->batch = y;
#else
  place->channel = y % channels;
  place->batch = y / channels;
#endif
}

inline long offset_of(const place_t *place, const long *strides, int d, int h, int w) {
  return place->batch * strides[0] + place->channel * strides[1] + d * strides[2] +
         h * strides[3] + w * strides[4];
}

// The image's position that a padded position shows.
inline int source_of(const geometry_t *g, int axis, int position) {
  const int source = position - g->left[axis];
  const int last = g->image[axis] - 1;
#if REFLECT
  return source < 0 ? -source : source > last ? 2 * last - source : source;
#else
  return clamp(source, 0, last);
#endif
}

// The padded positions that show one of the image: copy_of(begin), ...,
// copy_of(end - 1), without those outside [0, padded).
typedef struct {
  int begin;
  int end;
} copies_t;

#if REFLECT
// 0 is the mirror image before the image, 1 the position itself, 2 the mirror
// image behind. The borders are not mirrored.
inline int copy_of(const geometry_t *g, int axis, int position, int copy) {
  const int left = g->left[axis];
  return copy == 0   ? left - position
         : copy == 1 ? left + position
                     : left + 2 * (g->image[axis] - 1) - position;
}

inline copies_t copies_of(const geometry_t *g, int axis, int position) {
  const copies_t copies = {
      position > 0 && copy_of(g, axis, position, 0) >= 0 ? 0 : 1,
      position < g->image[axis] - 1 &&
              copy_of(g, axis, position, 2) < g->padded[axis]
          ? 3
          : 2};
  return copies;
}
#else
inline int copy_of(const geometry_t *g, int axis, int position, int copy) { return copy; }

inline copies_t copies_of(const geometry_t *g, int axis, int position) {
  const int own = position + g->left[axis];
  const int padded = g->padded[axis];
  const copies_t copies = {
      position == 0 ? 0 : max(own, 0),
      position == g->image[axis] - 1 ? padded : min(own + 1, padded)};
  return copies;
}
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void pad_forward(
    const geometry_t geometry, TENSOR(storage_t, padded), CONST_TENSOR(storage_t, image)) {
  const geometry_t *g = &geometry;
  const int x = get_global_id(0);
  if (x >= (CHANNELS_LAST ? g->channels : g->padded[2])) return;
  place_t place;
  find_place(&place, x, get_global_id(1), g->padded, g->channels);
  const int d = source_of(g, 0, place.at[0]);
  const int h = source_of(g, 1, place.at[1]);
  const int w = source_of(g, 2, place.at[2]);
  STORE(POINTER(padded),
        offset_of(&place, g->padded_strides, place.at[0], place.at[1], place.at[2]),
        LOAD(POINTER(image), offset_of(&place, g->image_strides, d, h, w)));
}

// For cpu-class devices: `rows` rows of the innermost dimension a work-item.
// What lies between the borders of a row is one run of the image.
#define COPY_RUN(to, to_stride, from, from_stride, count)                  \
  {                                                                        \
    int i = 0;                                                             \
    if (to_stride == 1 && from_stride == 1) {                              \
      for (; i + 16 <= count; i += 16) {                                   \
        vstore16(vload16(0, (from) + i), 0, (to) + i);                     \
      }                                                                    \
    }                                                                      \
    for (; i < count; ++i) (to)[i * to_stride] = (from)[i * from_stride];  \
  }

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void pad_forward_rows(
    const geometry_t geometry, TENSOR(storage_t, padded), CONST_TENSOR(storage_t, image),
    const int all_rows, const int rows) {
  const geometry_t *g = &geometry;
  const int first = get_global_id(0) * rows;
  for (int row = first; row < min(first + rows, all_rows); ++row) {
    place_t place;
    find_place(&place, 0, row, g->padded, g->channels);
    const int d = source_of(g, 0, place.at[0]);
    const int h = source_of(g, 1, place.at[1]);
    global storage_t *to = POINTER(padded) +
        offset_of(&place, g->padded_strides, place.at[0], place.at[1], place.at[2]);
#if CHANNELS_LAST
    const global storage_t *from = POINTER(image) +
        offset_of(&place, g->image_strides, d, h, source_of(g, 2, place.at[2]));
    COPY_RUN(to, g->padded_strides[1], from, g->image_strides[1], g->channels)
#else
    const global storage_t *from =
        POINTER(image) + offset_of(&place, g->image_strides, d, h, 0);
    const long to_stride = g->padded_strides[4], from_stride = g->image_strides[4];
    const int begin = clamp(g->left[2], 0, g->padded[2]);
    const int end = clamp(g->left[2] + g->image[2], begin, g->padded[2]);
    for (int x = 0; x < begin; ++x) {
      to[x * to_stride] = from[source_of(g, 2, x) * from_stride];
    }
    COPY_RUN(to + begin * to_stride, to_stride,
             from + (begin - g->left[2]) * from_stride, from_stride, end - begin)
    for (int x = end; x < g->padded[2]; ++x) {
      to[x * to_stride] = from[source_of(g, 2, x) * from_stride];
    }
#endif
  }
}

// An element gathers what was copied from it, in a fixed order.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void pad_backward(
    const geometry_t geometry, TENSOR(storage_t, image), CONST_TENSOR(storage_t, padded)) {
  const geometry_t *g = &geometry;
  const int x = get_global_id(0);
  if (x >= (CHANNELS_LAST ? g->channels : g->image[2])) return;
  place_t place;
  find_place(&place, x, get_global_id(1), g->image, g->channels);
  const copies_t ds = copies_of(g, 0, place.at[0]);
  const copies_t hs = copies_of(g, 1, place.at[1]);
  const copies_t ws = copies_of(g, 2, place.at[2]);
  compute_t sum = 0;
  for (int i = ds.begin; i < ds.end; ++i) {
    const int d = copy_of(g, 0, place.at[0], i);
    if (d < 0 || d >= g->padded[0]) continue;
    for (int j = hs.begin; j < hs.end; ++j) {
      const int h = copy_of(g, 1, place.at[1], j);
      if (h < 0 || h >= g->padded[1]) continue;
      for (int k = ws.begin; k < ws.end; ++k) {
        const int w = copy_of(g, 2, place.at[2], k);
        if (w < 0 || w >= g->padded[2]) continue;
        sum += LOAD(POINTER(padded), offset_of(&place, g->padded_strides, d, h, w));
      }
    }
  }
  STORE(POINTER(image),
        offset_of(&place, g->image_strides, place.at[0], place.at[1], place.at[2]),
        sum);
}
