// Which element of the result of a scatter each one of the source goes to, or which row
// where the index is one for all columns.

#include "types.clh"
#include "segments.clh"

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_targets(
    CONST_TENSOR(long, index),
    CONST_TENSOR(long, lines),
    TENSOR(int, targets),
    const ulong count,
    const ulong inner,
    const long length,
    const long size,
    const ulong self_inner,
    const int dimension,
    const int names_rows,
    const int skips,
    const long skipped,
    global report_t *record,
    const int op) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  const size_t block = i / inner / length;
  const long place = POINTER(index)[i];
  const bool is_inside = !(skips && place == skipped) &&
                         checked_index(record, op, place, 0, size, dimension);
  const size_t line = block * inner + i % inner;
  const long begin = names_rows ? 0 : POINTER(lines)[line];
  POINTER(targets)[i] = is_inside ? (int)(begin + place * self_inner) : NOWHERE;
}
