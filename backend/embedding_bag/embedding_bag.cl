// Sums, means and maxima of bags of rows of a table, and their gradients. A bag
// is a range of `indices` that begins where `offsets` says.
//
// embedding_bag_sum, _max: a work-item makes LANES neighbouring columns of one
// bag (one column in _max). embedding_bag_of: a work-item finds the bag of one
// index by bisecting the offsets.
// embedding_bag_gradient: `order` sorts the indices, stably. A work-item whose
// index begins a run of equal ones sums LANES columns of that row's gradient in
// the order of the indices: no two work-items write one row.
// embedding_bag_weights_gradient: a work-item makes one index's dot product.
//
// Indices outside the table and offsets outside the indices are reported, and count
// for nothing.

#include "types.clh"
#include "lanes.clh"

#ifndef INDEX
#define INDEX int64
#endif
#ifndef WG_X
#define WG_X 1
#endif
#ifndef WG_Y
#define WG_Y 16
#endif
#ifndef IS_MAX
#define IS_MAX 0
#endif

typedef CONCAT(storage_, INDEX) index_t;

typedef struct {
  long samples;
  long bags;
  long offsets;
  long rows;
  long columns;
  long row_stride;     // of the table
  long column_stride;  // of the table
  long grad_row_stride;
  long grad_column_stride;
  long padding;        // a row that counts for nothing; negative: none
  int is_mean;
  int is_weighted;  // by per_sample_weights
  int is_by_frequency;
} problem_t;

#define BOUNDED kernel __attribute__((reqd_work_group_size(WG_X, WG_Y, 1)))

#define BAG                                                            \
  const long column = get_global_id(0) * (long)LANES;                  \
  const long bag = get_global_id(1);                                   \
  if (column >= p.columns || bag >= p.bags) return;                    \
  const long begin = clamp((long)POINTER(offsets)[bag], 0L, p.samples); \
  const long end = bag + 1 < p.offsets                                 \
                       ? min((long)POINTER(offsets)[bag + 1], p.samples) \
                       : p.samples;

#define IS_PADDING(row) ((row) >= 0 && (row) == p.padding)

// Row `s` of the bag, but for padding and rows that are out of bounds.
#define ROW_OF_BAG                                                      \
  const long row = POINTER(indices)[s];                                 \
  if (IS_PADDING(row)) continue;                                        \
  ++size;                                                               \
  if (!checked_index(record, op, row, 0, p.rows, 0)) continue;

BOUNDED void embedding_bag_sum(TENSOR(storage_t, output),
                               TENSOR(index_t, bag_size),
                               CONST_TENSOR(storage_t, weight),
                               CONST_TENSOR(index_t, indices),
                               CONST_TENSOR(index_t, offsets),
                               CONST_TENSOR(storage_t, per_sample_weights),
                               const problem_t p, global report_t *record,
                               const int op) {
  BAG
  const int count = min((long)LANES, p.columns - column);
  lanes_t sum = 0;
  long size = 0;
  for (long s = begin; s < end; ++s) {
    ROW_OF_BAG
    const lanes_t value =
        load_lanes(POINTER(weight), row * p.row_stride + column * p.column_stride,
                   p.column_stride, count);
    sum += p.is_weighted ? LOAD(POINTER(per_sample_weights), s) * value : value;
  }
  if (p.is_mean && size > 0) sum /= (compute_t)size;
  store_lanes(POINTER(output), bag * p.columns + column, 1, count, sum);
  if (column == 0) POINTER(bag_size)[bag] = size;
}

#if LANES == 1
BOUNDED void embedding_bag_max(TENSOR(storage_t, output),
                               TENSOR(index_t, bag_size),
                               TENSOR(index_t, maximum_indices),
                               CONST_TENSOR(storage_t, weight),
                               CONST_TENSOR(index_t, indices),
                               CONST_TENSOR(index_t, offsets),
                               const problem_t p, global report_t *record,
                               const int op) {
  BAG
  compute_t greatest = 0;
  long at = 0;
  long size = 0;
  for (long s = begin; s < end; ++s) {
    ROW_OF_BAG
    const compute_t value =
        LOAD(POINTER(weight), row * p.row_stride + column * p.column_stride);
    if (size == 1 || value > greatest) {
      greatest = value;
      at = row;
    }
  }
  STORE(POINTER(output), bag * p.columns + column, greatest);
  POINTER(maximum_indices)[bag * p.columns + column] = at;
  if (column == 0) POINTER(bag_size)[bag] = size;
}
#endif

inline void check_offsets(global report_t *record, int op, const global index_t *offsets,
                          const problem_t *p) {
  const long first = offsets[0];
  const long last = offsets[p->offsets - 1];
  if (first != 0) write_report(record, op, REPORT_FIRST_OFFSET, first, 0, 0);
  if (last > p->samples) write_report(record, op, REPORT_LAST_OFFSET, last, p->samples, 0);
}

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void embedding_bag_of(TENSOR(index_t, offset2bag), CONST_TENSOR(index_t, offsets),
                      const problem_t p, global report_t *record, const int op) {
  const long s = get_global_id(0);
  if (s == 0 && p.offsets > 0) check_offsets(record, op, POINTER(offsets), &p);
  if (s >= p.samples) return;
  long begin = 0;
  long end = p.offsets;
  while (begin < end) {
    const long middle = (begin + end) / 2;
    if (POINTER(offsets)[middle] <= s) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  POINTER(offset2bag)[s] = begin - 1;
}

BOUNDED void embedding_bag_gradient(TENSOR(storage_t, grad_weight),
                                    CONST_TENSOR(storage_t, grad),
                                    CONST_TENSOR(index_t, sorted),
                                    CONST_TENSOR(long, order),
                                    CONST_TENSOR(index_t, offset2bag),
                                    CONST_TENSOR(index_t, bag_size),
                                    CONST_TENSOR(index_t, maximum_indices),
                                    CONST_TENSOR(storage_t, per_sample_weights),
                                    const problem_t p, global report_t *record,
                                    const int op) {
  const long column = get_global_id(0) * (long)LANES;
  const long first = get_global_id(1);
  if (column >= p.columns || first >= p.samples) return;
  const long row = POINTER(sorted)[first];
  if (IS_PADDING(row) || (first > 0 && POINTER(sorted)[first - 1] == row)) return;
  if (!checked_index(record, op, row, 0, p.rows, 0)) return;
  const int count = min((long)LANES, p.columns - column);
  lanes_t sum = 0;
  long i = first;
  long last_bag = -1;
  for (; i < p.samples && POINTER(sorted)[i] == row; ++i) {
    const long s = POINTER(order)[i];
    const long bag = POINTER(offset2bag)[s];
    if (bag < 0 || bag >= p.bags) continue;
#if IS_MAX
    // A row counts once in a bag, however often it is there.
    if (bag == last_bag ||
        POINTER(maximum_indices)[bag * p.columns + column] != row) {
      continue;
    }
    last_bag = bag;
#endif
    lanes_t value = load_lanes(
        POINTER(grad), bag * p.grad_row_stride + column * p.grad_column_stride,
        p.grad_column_stride, count);
    if (p.is_mean) value /= (compute_t)POINTER(bag_size)[bag];
    if (p.is_weighted) value *= LOAD(POINTER(per_sample_weights), s);
    sum += value;
  }
  if (p.is_by_frequency) sum /= (compute_t)(i - first);
  store_lanes(POINTER(grad_weight), row * p.columns + column, 1, count, sum);
}

kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void embedding_bag_weights_gradient(TENSOR(storage_t, out),
                                    CONST_TENSOR(storage_t, grad),
                                    CONST_TENSOR(storage_t, weight),
                                    CONST_TENSOR(index_t, indices),
                                    CONST_TENSOR(index_t, offset2bag),
                                    const problem_t p, global report_t *record,
                                    const int op) {
  const long s = get_global_id(0);
  if (s >= p.samples) return;
  const long row = POINTER(indices)[s];
  const long bag = POINTER(offset2bag)[s];
  compute_t total = 0;
  if (!IS_PADDING(row) && checked_index(record, op, row, 0, p.rows, 0) && bag >= 0 &&
      bag < p.bags) {
    const global storage_t *table = POINTER(weight) + row * p.row_stride;
    const global storage_t *gradient = POINTER(grad) + bag * p.grad_row_stride;
    // Blocks bound the rounding error.
    for (long block = 0; block < p.columns; block += 32) {
      compute_t sum = 0;
      for (long c = block; c < min(block + 32, p.columns); ++c) {
        sum += LOAD(gradient, c * p.grad_column_stride) *
               LOAD(table, c * p.column_stride);
      }
      total += sum;
    }
  }
  STORE(POINTER(out), s, total);
}
