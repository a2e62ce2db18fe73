// Products of a sparse matrix, whose entries are sorted by row, with a dense one: each
// row of the result is a sum over the row's entries, in their order.
//
// sparse_rows (CPUs): a work-item makes 4 * LANES neighbouring columns of one row.
// sparse_rows_group (GPUs): 2^n work-items make SPAN columns of a row, PARTS of them
// each column, whose parts are added in a fixed order; rows of more than LONG entries
// are left to the whole work-group.
// sampled_entries: a work-item, or SPAN of them on GPUs, makes the dot product of one
// entry.
//
// Bad indices are reported and count for nothing.

#include "types.clh"
#include "lanes.clh"

#ifndef INDEX
#define INDEX int64
#endif
#ifndef WG_SIZE
#define WG_SIZE 128
#endif
#ifndef SPAN
#define SPAN 1
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef IS_GROUP
#define IS_GROUP 0
#endif
#ifndef LONG
#define LONG 1024
#endif

typedef CONCAT(storage_, INDEX) sparse_index_t;

typedef struct {
  long rows;
  long columns;  // of the dense matrix
  long inner;    // columns of the sparse matrix
  long nnz;
  long row_stride;     // of the dense matrix
  long column_stride;  // of the dense matrix
} problem_t;

inline void check_total(global report_t *record, int op,
                        const global sparse_index_t *crow, const problem_t *p) {
  const long total = crow[p->rows];
  if (total != p->nnz) write_report(record, op, REPORT_INDEX, total, p->nnz, 0);
}

#define ROW_BEGIN(r) clamp((long)POINTER(crow)[r], 0L, p.nnz)

#if LANES > 1
#define ADD_PRODUCT(sum, a, b) sum = fma((lanes_t)(a), b, sum)
#else
#define ADD_PRODUCT(sum, a, b) sum += (a) * (b)
#endif

// Sums of that many entries are added to a total: it bounds the rounding error.
#define BLOCK 256

// The sum of `parts` parts, which are `distance` items apart, for the item of the first.
inline compute_t add_parts(local compute_t *shared, compute_t sum, int item, int part,
                           int parts, int distance) {
  shared[item] = sum;
  for (int left = parts / 2; left > 0; left /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part < left) shared[item] += shared[item + left * distance];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return shared[item];
}

#if !IS_GROUP
kernel __attribute__((reqd_work_group_size(1, 16, 1)))
void sparse_rows(TENSOR(storage_t, out), CONST_TENSOR(sparse_index_t, crow),
                 CONST_TENSOR(sparse_index_t, col), CONST_TENSOR(storage_t, values),
                 CONST_TENSOR(storage_t, dense), const problem_t p,
                 global report_t *record, const int op) {
  const long row = get_global_id(1);
  const long column = get_global_id(0) * (long)(4 * LANES);
  if (row >= p.rows || column >= p.columns) return;
  if (row == 0 && column == 0) check_total(record, op, POINTER(crow), &p);
  const long begin = ROW_BEGIN(row);
  const long end = ROW_BEGIN(row + 1);
  const global storage_t *first = POINTER(dense) + column * p.column_stride;
  const long step = LANES * p.column_stride;
  const int left = (int)min(p.columns - column, 4L * LANES);
  lanes_t total0 = 0, total1 = 0, total2 = 0, total3 = 0;
  for (long block = begin; block < end; block += BLOCK) {
    lanes_t sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (long e = block; e < min(block + BLOCK, end); ++e) {
      const long k = POINTER(col)[e];
      if (!checked_index(record, op, k, 0, p.inner, 1)) continue;
      const compute_t value = LOAD(POINTER(values), e);
      const global storage_t *at = first + k * p.row_stride;
      ADD_PRODUCT(sum0, value, load_lanes(at, 0, p.column_stride, left));
      if (left > LANES)
        ADD_PRODUCT(sum1, value, load_lanes(at + step, 0, p.column_stride, left - LANES));
      if (left > 2 * LANES)
        ADD_PRODUCT(sum2, value, load_lanes(at + 2 * step, 0, p.column_stride, left - 2 * LANES));
      if (left > 3 * LANES)
        ADD_PRODUCT(sum3, value, load_lanes(at + 3 * step, 0, p.column_stride, left - 3 * LANES));
    }
    total0 += sum0;
    total1 += sum1;
    total2 += sum2;
    total3 += sum3;
  }
  global storage_t *to = POINTER(out) + row * p.columns + column;
  store_lanes(to, 0, 1, left, total0);
  if (left > LANES) store_lanes(to, LANES, 1, left - LANES, total1);
  if (left > 2 * LANES) store_lanes(to, 2 * LANES, 1, left - 2 * LANES, total2);
  if (left > 3 * LANES) store_lanes(to, 3 * LANES, 1, left - 3 * LANES, total3);
}
#endif

#if IS_GROUP
#define GROUP kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))

// A sum over every `step`-th entry, of a column that begins at `dense`.
inline compute_t sum_part(const global sparse_index_t *col, const global storage_t *values,
                          const global storage_t *dense, long row_stride, long inner,
                          long begin, long end, int step, global report_t *record, int op) {
  compute_t sum = 0;
  for (long block = begin; block < end; block += BLOCK * (long)step) {
    compute_t part = 0;
    const long block_end = min(block + BLOCK * (long)step, end);
    for (long e = block; e < block_end; e += step) {
      const long k = col[e];
      if (checked_index(record, op, k, 0, inner, 1))
        part += LOAD(values, e) * LOAD(dense, k * row_stride);
    }
    sum += part;
  }
  return sum;
}

// The first of the group's rows, from `r` on, that has more than LONG entries.
inline int next_long(const global sparse_index_t *starts, int r, int rows, long nnz) {
  while (r < rows && clamp((long)starts[r + 1], 0L, nnz) -
                         clamp((long)starts[r], 0L, nnz) <= LONG)
    ++r;
  return r;
}

GROUP void sparse_rows_group(TENSOR(storage_t, out), CONST_TENSOR(sparse_index_t, crow),
                             CONST_TENSOR(sparse_index_t, col),
                             CONST_TENSOR(storage_t, values),
                             CONST_TENSOR(storage_t, dense), const problem_t p,
                             global report_t *record, const int op) {
  local compute_t shared[WG_SIZE];
  const int kRows = WG_SIZE / (SPAN * PARTS);
  const int item = get_local_id(0);
  const int x = item % SPAN;
  const int part = item / SPAN % PARTS;
  const long first_row = get_group_id(1) * (long)kRows;
  const long column = get_group_id(0) * (long)SPAN + x;
  const bool has_column = column < p.columns;
  const long row = first_row + item / (SPAN * PARTS);
  const bool has_row = has_column && row < p.rows;
  if (row == 0 && column == 0 && part == 0)
    check_total(record, op, POINTER(crow), &p);
  const long begin = has_row ? ROW_BEGIN(row) : 0;
  const long end = has_row ? ROW_BEGIN(row + 1) : 0;
  const global storage_t *at = POINTER(dense) + column * p.column_stride;
  compute_t sum = 0;
  if (end - begin <= LONG) {
    sum = sum_part(POINTER(col), POINTER(values), at, p.row_stride, p.inner, begin + part,
                   end, PARTS, record, op);
  }
  sum = add_parts(shared, sum, item, part, PARTS, SPAN);
  if (has_row && part == 0 && end - begin <= LONG)
    STORE(POINTER(out), row * p.columns + column, sum);
  // The same number of times in all items: they look at the same rows.
  const int rows = (int)min((long)kRows, p.rows - first_row);
  const global sparse_index_t *starts = POINTER(crow) + first_row;
  const int place = item / SPAN;
  for (int r = next_long(starts, 0, rows, p.nnz); r < rows;
       r = next_long(starts, r + 1, rows, p.nnz)) {
    barrier(CLK_LOCAL_MEM_FENCE);
    const long from = ROW_BEGIN(first_row + r);
    const long to = has_column ? ROW_BEGIN(first_row + r + 1) : from;
    compute_t whole = sum_part(POINTER(col), POINTER(values), at, p.row_stride, p.inner,
                               from + place, to, WG_SIZE / SPAN, record, op);
    whole = add_parts(shared, whole, item, place, WG_SIZE / SPAN, SPAN);
    if (has_column && place == 0)
      STORE(POINTER(out), (first_row + r) * p.columns + column, whole);
  }
}
#endif

// `right` is transposed: both are read along `inner`. `row` is the row of each entry.
typedef struct {
  long entries;
  long inner;
  long rows;
  long columns;
} sample_t;

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void sampled_entries(TENSOR(storage_t, out), CONST_TENSOR(sparse_index_t, row),
                     CONST_TENSOR(sparse_index_t, col), CONST_TENSOR(storage_t, left),
                     CONST_TENSOR(storage_t, right), const sample_t p,
                     global report_t *record, const int op) {
  const int item = get_local_id(0);
  const int along = item % SPAN;
  const long entry = get_group_id(0) * (long)(WG_SIZE / SPAN) + item / SPAN;
  compute_t total = 0;
  if (entry < p.entries) {
    const long i = POINTER(row)[entry];
    const long j = POINTER(col)[entry];
    if (i >= 0 && i < p.rows && checked_index(record, op, j, 0, p.columns, 1)) {
      const global storage_t *a = POINTER(left) + i * p.inner;
      const global storage_t *b = POINTER(right) + j * p.inner;
#if LANES > 1
      lanes_t sum = 0;
      long k = 0;
      for (; k + LANES <= p.inner; k += LANES)
        sum += load_lanes(a, k, 1, LANES) * load_lanes(b, k, 1, LANES);
      total = LANES_SUM(sum);
      for (; k < p.inner; ++k) total += LOAD(a, k) * LOAD(b, k);
#else
      for (long block = along; block < p.inner; block += BLOCK * SPAN) {
        compute_t sum = 0;
        for (long k = block; k < min(block + BLOCK * SPAN, p.inner); k += SPAN)
          sum += LOAD(a, k) * LOAD(b, k);
        total += sum;
      }
#endif
    }
  }
#if SPAN > 1
  local compute_t shared[WG_SIZE];
  total = add_parts(shared, total, item, along, SPAN, 1);
#endif
  if (entry < p.entries && along == 0) STORE(POINTER(out), entry, total);
}
