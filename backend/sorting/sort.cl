// Stable merge sort of the rows of a matrix: keys that are unsigned integers in
// the order of the values, each with the column it came from.
//
// sort_runs: a work-item sorts `width` neighbouring elements by insertion and
// keeps the first `kept` of them, at most RUN.
// merge_runs: sorted runs of `width` elements merge in pairs; a work-item makes
// `chunk` outputs, whose inputs it finds by bisecting the merge's diagonal
// (Odeh, Green, Mwassi, Shmueli, Birk, Merge Path, 2012). Where only the first
// `kept` elements are wanted, no run is read or written beyond them.

#include "types.clh"

#ifndef RUN
#define RUN 16
#endif
#ifndef WG_SIZE
#define WG_SIZE 16
#endif
#ifndef DESCENDING
#define DESCENDING 0
#endif

#include "sort_key.clh"

#ifdef DTYPE
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void sort_runs(
    CONST_TENSOR(storage_t, self),
    TENSOR(sort_key_t, keys),
    TENSOR(int, order),
    const int columns,
    const int width,
    const int kept) {
  const long begin = (long)get_global_id(0) * width;
  if (begin >= columns) return;
  const size_t row = get_global_id(1) * (size_t)columns;
  const int count = min((long)width, columns - begin);
  const int limit = min(RUN, kept);
  int size = 0;
  sort_key_t key[RUN];
  int from[RUN];
  for (int i = 0; i < count; ++i) {
    const sort_key_t plain = ascending_key(LOAD(POINTER(self), row + begin + i));
    const sort_key_t mine = DESCENDING ? ~plain : plain;
    if (size == limit && mine >= key[limit - 1]) continue;
    size = min(size + 1, limit);
    int at = size - 1;
    while (at > 0 && key[at - 1] > mine) {
      key[at] = key[at - 1];
      from[at] = from[at - 1];
      --at;
    }
    key[at] = mine;
    from[at] = (int)begin + i;
  }
  for (int i = 0; i < size; ++i) {
    POINTER(keys)[row + begin + i] = key[i];
    POINTER(order)[row + begin + i] = from[i];
  }
}
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void merge_runs(
    CONST_TENSOR(sort_key_t, keys),
    CONST_TENSOR(int, order),
    TENSOR(sort_key_t, merged_keys),
    TENSOR(int, merged_order),
    const int columns,
    const int width,
    const int chunk,
    const int kept) {
  const int chunks = (min(2L * width, (long)kept) + chunk - 1) / chunk;
  const long pair = get_global_id(0) / chunks * 2L * width;
  if (pair >= columns) return;
  const size_t row = get_global_id(1) * (size_t)columns;
  const int left_size = (int)min(min((long)width, columns - pair), (long)kept);
  const int right_size =
      (int)min(clamp(columns - pair - width, 0L, (long)width), (long)kept);
  const int begin = get_global_id(0) % chunks * chunk;
  const int end = min(min(begin + chunk, left_size + right_size), kept);
  const global sort_key_t *left = POINTER(keys) + row + pair;
  const global sort_key_t *right = left + width;
  const global int *left_order = POINTER(order) + row + pair;
  const global int *right_order = left_order + width;
  int low = max(0, begin - right_size);
  int high = min(begin, left_size);
  while (low < high) {
    const int middle = (low + high) / 2;
    if (left[middle] <= right[begin - 1 - middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  int i = low;
  int j = begin - low;
  for (int at = begin; at < end; ++at) {
    const int takes_left = j >= right_size || (i < left_size && left[i] <= right[j]);
    POINTER(merged_keys)[row + pair + at] = takes_left ? left[i] : right[j];
    POINTER(merged_order)[row + pair + at] = takes_left ? left_order[i] : right_order[j];
    i += takes_left;
    j += !takes_left;
  }
}
