// Reflection and replication padding of up to three dimensions, and their
// gradients.
//
// A work-item makes one element of what is written: x is its channel where
// channels are innermost (CHANNELS_LAST), else its width; y counts the other
// dimensions. Strides are any.

#include "pad.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

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
