// searchsorted: a work-item bisects the boundaries of its row for one value.
// Comparisons that are false for NaN put it behind everything.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void search_sorted(
    TENSOR(long, out),
    CONST_TENSOR(storage_t, values),
    CONST_TENSOR(storage_t, boundaries),
    CONST_TENSOR(long, sorter),
    const ulong count,
    const ulong columns,      // values in a row
    const long length,        // boundaries in a row
    const ulong row_step,     // 0 where all rows share the boundaries
    const int is_sorted,      // or else by `sorter`
    const int right) {
  const size_t item = get_global_id(0);
  if (item >= count) return;
  const size_t row = item / columns * row_step;
  const compute_t value = LOAD(POINTER(values), item);
  long begin = 0;
  long end = length;
  while (begin < end) {
    const long middle = begin + (end - begin) / 2;
    const size_t at = is_sorted ? middle : POINTER(sorter)[row + middle];
    const compute_t boundary = LOAD(POINTER(boundaries), row + at);
    const int is_before = right ? !(boundary > value) : !(boundary >= value);
    if (is_before) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  POINTER(out)[item] = begin;
}
