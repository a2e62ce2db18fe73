// scatter with a reduction for GPUs, in the order of the source, so that the same input
// gives the same bits. scatter_targets says which element of the result each one of the
// source goes to; the host sorts them, stably, and runs of one target are reduced:
// scatter_chunks, a work-item CHUNK sorted elements, writes the runs that begin and end
// in its chunk. Of others it keeps its part, at the chunk's front or back;
// scatter_join, a work-item a run that goes on, joins the parts.

#include "types.clh"
#include "scatter_combine.clh"

#define WG_SIZE 64
#define CHUNK 64
#define NOWHERE INT_MAX  // of an index that is out of range, or skipped

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
  POINTER(targets)[i] =
      is_inside ? (int)(POINTER(lines)[line] + place * self_inner) : NOWHERE;
}

// Of `value`, which all of the source for a target makes.
#if INCLUDE_SELF
#define WRITE(target, value)                                                   \
  if (target != NOWHERE)                                                       \
    STORE(POINTER(self), target, combine(LOAD(POINTER(self), target), value));
#else
#define WRITE(target, value) \
  if (target != NOWHERE) STORE(POINTER(self), target, value);
#endif

#define TARGET(i) POINTER(targets)[i]

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_chunks(
    TENSOR(storage_t, self),
    TENSOR(storage_t, fronts),
    TENSOR(storage_t, backs),
    CONST_TENSOR(int, targets),
    CONST_TENSOR(long, order),
    CONST_TENSOR(storage_t, source),
    const long count) {
  const long chunk = get_global_id(0);
  const long first = chunk * CHUNK;
  if (first >= count) return;
  const long last = min(first + CHUNK, count);
  int target = TARGET(first);
  bool is_front = first > 0 && TARGET(first - 1) == target;
  compute_t value = LOAD(POINTER(source), POINTER(order)[first]);
  for (long i = first + 1; i < last; ++i) {
    const int next = TARGET(i);
    const compute_t x = LOAD(POINTER(source), POINTER(order)[i]);
    if (next == target) {
      value = combine(value, x);
      continue;
    }
    if (is_front) {
      STORE(POINTER(fronts), chunk, value);
    } else {
      WRITE(target, value)
    }
    is_front = false;
    target = next;
    value = x;
  }
  if (is_front) {
    STORE(POINTER(fronts), chunk, value);
  } else if (last < count && TARGET(last) == target) {
    STORE(POINTER(backs), chunk, value);
  } else {
    WRITE(target, value)
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_join(
    TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, fronts),
    CONST_TENSOR(storage_t, backs),
    CONST_TENSOR(int, targets),
    const long count) {
  const long chunk = get_global_id(0);
  const long first = chunk * CHUNK;
  long last = first + CHUNK;  // of the parts joined so far
  if (last >= count) return;
  const int target = TARGET(last - 1);
  // Where the run began before this chunk, another work-item has it.
  const bool began_before = first > 0 && TARGET(first - 1) == target;
  if (TARGET(last) != target || began_before) return;
  compute_t value = LOAD(POINTER(backs), chunk);
  while (last < count && TARGET(last) == target) {
    value = combine(value, LOAD(POINTER(fronts), last / CHUNK));
    last += CHUNK;
    if (last < count && TARGET(last - 1) != target) break;
  }
  WRITE(target, value)
}
