// The most frequent value of each sorted row: one work-item walks one row.

#include "types.clh"

kernel __attribute__((reqd_work_group_size(16, 1, 1))) void mode_of_rows(
    CONST_TENSOR(storage_t, sorted),
    TENSOR(long, position),
    const ulong rows,
    const long columns) {
  const size_t row = get_global_id(0);
  if (row >= rows) return;
  const size_t start = row * columns;
  long best = 0;
  long best_count = 0;
  long count = 0;
  for (long i = 0; i < columns; ++i) {
    const int same = i > 0 && LOAD(POINTER(sorted), start + i) ==
                                  LOAD(POINTER(sorted), start + i - 1);
    count = same ? count + 1 : 1;
    if (count > best_count) {
      best_count = count;
      best = i;
    }
  }
  POINTER(position)[row] = best;
}
