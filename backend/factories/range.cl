// Tensors that are a function of their indices, and arithmetic on indices.

#include "types.clh"

#ifndef RUN
#define RUN 1
#endif
#ifndef WG_SIZE
#define WG_SIZE 64
#endif
#ifndef IS_WIDE
#define IS_WIDE 0
#endif

// As on torch's CPU: float32 by double arithmetic, where the device has it.
#if IS_WIDE
typedef double sum_t;
#else
typedef compute_t sum_t;
#endif

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void arange(TENSOR(storage_t, out), const ulong count, const sum_t start,
            const sum_t step) {
  const size_t i = get_global_id(0);
  if (i < count) {
    STORE(POINTER(out), i, (compute_t)(start + step * (sum_t)i));
  }
}

// From both ends, so that the last element is exactly `end`.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void linspace(TENSOR(storage_t, out), const ulong count, const compute_t start,
              const compute_t end, const compute_t step) {
  const size_t i = get_global_id(0);
  if (i < count) {
    STORE(POINTER(out), i,
          i < count / 2 ? start + step * (compute_t)i
                        : end - step * (compute_t)(count - 1 - i));
  }
}

// Keeps what lies on one side of a diagonal of each matrix of a contiguous batch;
// one work-item RUN elements of a row.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void triangle(TENSOR(storage_t, out), CONST_TENSOR(storage_t, self),
              const long all_rows, const long rows, const long columns,
              const long row_stride, const long column_stride,
              const long batch_stride, const long diagonal, const int is_upper) {
  const long begin = get_global_id(0) * RUN;
  const long end = min(begin + RUN, columns);
  const long line = get_global_id(1);
  const long row = line % rows;
  if (begin >= end || line >= all_rows) {
    return;
  }
  const long kept_begin = is_upper ? clamp(row + diagonal, begin, end) : begin;
  const long kept_end = is_upper ? end : clamp(row + diagonal + 1, begin, end);
  const global storage_t *from =
      POINTER(self) + line / rows * batch_stride + row * row_stride;
  global storage_t *to = POINTER(out) + line * columns;
  for (long i = begin; i < kept_begin; ++i) {
    STORE(to, i, 0);
  }
  long i = kept_begin;
#if RUN > 1
  if (column_stride == 1) {
    for (; i + 16 <= kept_end; i += 16) {
      vstore16(vload16(0, from + i), 0, to + i);
    }
  }
#endif
  for (; i < kept_end; ++i) {
    STORE(to, i, LOAD(from, i * column_stride));
  }
  for (long i = kept_end; i < end; ++i) {
    STORE(to, i, 0);
  }
}

// How many of the first `rows` rows' elements lie left of the diagonal or on
// it: sums of 1, 2, 3 ... up to `columns`, which then repeats. Modulo 2^64, for
// the matrix may have more elements.
inline ulong sum_to(long last, long columns) {
  const ulong rising = clamp(last, 0L, columns);
  const ulong halves = rising % 2 == 0 ? rising / 2 * (rising + 1)
                                       : (rising + 1) / 2 * rising;
  return halves + (ulong)max(last - columns, 0L) * (ulong)columns;
}
inline ulong count_before(long row, long columns, long offset, int is_upper) {
  const ulong below = sum_to(offset + row, columns) - sum_to(offset, columns);
  return is_upper ? (ulong)row * (ulong)columns - below : below;
}

// Positions on one side of a diagonal, row by row; one work-item a position, which
// finds its row by bisection. `offset` is the last diagonal below.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void triangle_indices(TENSOR(storage_t, out), const ulong size,
                      const long rows, const long columns, const long offset,
                      const int is_upper) {
  const size_t i = get_global_id(0);
  if (i >= size) return;
  long row = 0;
  for (long end = rows; end - row > 1;) {
    const long middle = row + (end - row) / 2;
    if (count_before(middle, columns, offset, is_upper) <= i) {
      row = middle;
    } else {
      end = middle;
    }
  }
  const long first = is_upper ? clamp(row + offset + 1, 0L, columns) : 0;
  const long column = first + (long)(i - count_before(row, columns, offset, is_upper));
  STORE(POINTER(out), i, (compute_t)row);
  STORE(POINTER(out), size + i, (compute_t)column);
}

// Several indices as one: takes the index of one dimension into the linear index of the
// dimensions before it. Where one of them is bad, it is -1.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void linear_index(TENSOR(long, linear), CONST_TENSOR(long, index), const ulong count,
                  const long size, const int dimension, global report_t *record,
                  const int op) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  const long given = POINTER(index)[i];
  const long before = dimension == 0 ? 0 : POINTER(linear)[i];
  const bool is_good = checked_index(record, op, given, -size, size, dimension);
  POINTER(linear)[i] =
      is_good && before >= 0 ? before * size + given + (given < 0 ? size : 0) : -1;
}

// Whether repeats, whose running sum `ends` is, are counts and make up the size that the
// caller said.
kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void check_repeats(CONST_TENSOR(long, ends), const ulong count, const long size,
                   global report_t *record, const int op) {
  const size_t i = get_global_id(0);
  if (i >= count) return;
  const long end = POINTER(ends)[i];
  if (end < (i == 0 ? 0 : POINTER(ends)[i - 1])) {
    write_report(record, op, REPORT_NEGATIVE_REPEATS, 0, 0, 0);
  } else if (i == count - 1 && end != size) {
    write_report(record, op, REPORT_OUTPUT_SIZE, end, size, 0);
  }
}
