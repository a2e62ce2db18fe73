// scatter with a reduction: a work-item walks the indices of one line (all that
// differs along `dim` only), in order, so the same input gives the same bits.
// All tensors but the result are contiguous in the shape of the index.

#include "types.clh"

#include "scatter_combine.clh"

#ifndef WG_SIZE
#define WG_SIZE 16
#endif

// `self` is contiguous too, (outer, size, inner) with the lines' places in it
// at `lines`.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_reduce_lines(
    TENSOR(storage_t, self),
    CONST_TENSOR(long, index),
    CONST_TENSOR(storage_t, source),
    CONST_TENSOR(long, lines),
    TENSOR(uchar, touched),
    const ulong count,
    const ulong inner,         // of the index
    const long length,         // of the index along dim
    const long size,           // of self along dim
    const ulong self_inner,
    const int dimension,
    global report_t *record,
    const int op) {
  const size_t line = get_global_id(0);
  if (line >= count) return;
  const size_t first = line / inner * length * inner + line % inner;
  const size_t base = POINTER(lines)[line];
  for (long i = 0; i < length; ++i) {
    const size_t from = first + i * inner;
    const long place = POINTER(index)[from];
    if (!checked_index(record, op, place, 0, size, dimension)) continue;
    const size_t to = base + place * self_inner;
    const compute_t value = LOAD(POINTER(source), from);
#if INCLUDE_SELF
    STORE(POINTER(self), to, combine(LOAD(POINTER(self), to), value));
#else
    const int is_first = !POINTER(touched)[to];
    POINTER(touched)[to] = 1;
    STORE(POINTER(self), to, is_first ? value : combine(LOAD(POINTER(self), to), value));
#endif
  }
}
