// Reductions of rows by where they go, for GPUs, in the order of the source, so that the
// same input gives the same bits. The host sorts the targets, stably, and runs of one
// target are reduced:
// scatter_chunks, a work-item CHUNK sorted elements of a column, writes the runs that
// begin and end in its chunk. Of others it keeps its part, at the chunk's front or back;
// scatter_join, a work-item a run that goes on, joins the parts.

#include "types.clh"
#include "segments.clh"
#include "scatter_combine.clh"

#define WG_SIZE 64
#define CHUNK 64
#define AT_ONCE 4  // loads that are on their way together

// The rows that are scattered: element `column` of row i lies at
// column / inner * outer + i * inner + column % inner, each tensor with its `outer`.
// Single elements are rows of one column.
typedef struct {
  ulong columns;
  ulong inner;
  ulong self_outer;
  ulong source_outer;
  ulong shared;  // targets that take the same row of the source
} rows_t;

#define COLUMN_OF(outer) (column / rows.inner * outer + column % rows.inner)
#define SELF_AT(target) (self_column + (size_t)(target) * rows.inner)
#define SOURCE_AT(i) (source_column + POINTER(order)[i] / rows.shared * rows.inner)
#if HAS_WEIGHTS
#define VALUE(i) \
  (LOAD(POINTER(weights), POINTER(order)[i]) * LOAD(POINTER(source), SOURCE_AT(i)))
#else
#define VALUE(i) LOAD(POINTER(source), SOURCE_AT(i))
#endif
#define TARGET(i) POINTER(targets)[POINTER(order)[i]]

// Of `value`, which all of the source for a target makes.
#if INCLUDE_SELF
#define WRITE(target, value)                                              \
  if (target != NOWHERE)                                                  \
    STORE(POINTER(self), SELF_AT(target),                                 \
          combine(LOAD(POINTER(self), SELF_AT(target)), value));
#else
#define WRITE(target, value) \
  if (target != NOWHERE) STORE(POINTER(self), SELF_AT(target), value);
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_chunks(
    TENSOR(storage_t, self),
    TENSOR(storage_t, fronts),
    TENSOR(storage_t, backs),
    CONST_TENSOR(int, targets),
    CONST_TENSOR(int, order),
    CONST_TENSOR(storage_t, source),
    CONST_TENSOR(storage_t, weights),
    const rows_t rows,
    const long count) {
  const size_t part = get_global_id(0);
  const long first = part / rows.columns * CHUNK;
  if (first >= count) return;
  const size_t column = part % rows.columns;
  const size_t self_column = COLUMN_OF(rows.self_outer);
  const size_t source_column = COLUMN_OF(rows.source_outer);
  const long last = min(first + CHUNK, count);
  int target = TARGET(first);
  bool is_front = first > 0 && TARGET(first - 1) == target;
  compute_t value = VALUE(first);
  for (long i = first + 1; i < last; i += AT_ONCE) {
    int next[AT_ONCE];
    compute_t x[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const long at = min(i + k, last - 1);
      next[k] = TARGET(at);
      x[k] = VALUE(at);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      if (i + k >= last) continue;
      if (next[k] == target) {
        value = combine(value, x[k]);
        continue;
      }
      if (is_front) {
        STORE(POINTER(fronts), part, value);
      } else {
        WRITE(target, value)
      }
      is_front = false;
      target = next[k];
      value = x[k];
    }
  }
  if (is_front) {
    STORE(POINTER(fronts), part, value);
  } else if (last < count && TARGET(last) == target) {
    STORE(POINTER(backs), part, value);
  } else {
    WRITE(target, value)
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void scatter_join(
    TENSOR(storage_t, self),
    CONST_TENSOR(storage_t, fronts),
    CONST_TENSOR(storage_t, backs),
    CONST_TENSOR(int, targets),
    CONST_TENSOR(int, order),
    const rows_t rows,
    const long count) {
  const size_t part = get_global_id(0);
  const size_t column = part % rows.columns;
  const size_t self_column = COLUMN_OF(rows.self_outer);
  const long first = part / rows.columns * CHUNK;
  long last = first + CHUNK;  // of the parts joined so far
  if (last >= count) return;
  const int target = TARGET(last - 1);
  // Where the run began before this chunk, another work-item has it.
  const bool began_before = first > 0 && TARGET(first - 1) == target;
  if (TARGET(last) != target || began_before) return;
  compute_t value = LOAD(POINTER(backs), part);
  while (last < count && TARGET(last) == target) {
    value = combine(value, LOAD(POINTER(fronts), last / CHUNK * rows.columns + column));
    last += CHUNK;
    if (last < count && TARGET(last - 1) != target) break;
  }
  WRITE(target, value)
}
