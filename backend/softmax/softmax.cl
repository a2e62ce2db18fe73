// Softmax and log-softmax (LOG) along one dimension, and their gradients, for CPUs
// (softmax_groups.cl is for GPUs).
//
// `contiguous`: rows are contiguous, a work-item makes one, 16 elements at a time, and
//   prefetches the next. Short ones keep their exponentials.
// `strided`: a work-item makes LANES neighbouring rows, one element of each at a
//   time; any strides.
// `short`: as `strided`, COLUMNS times as many rows of at most KEPT elements, which
//   are read once, and prefetched: where they are a power of two apart, caches
//   cannot hold them.
//
// The row's maximum is subtracted, found in a pass of its own, so a row of -inf
// gives NaN as PyTorch does. Sums are in blocks of BLOCK vectors.

#include "types.clh"
#include "lanes.clh"
#include "rows.clh"
#include "prefetch.clh"
#include "exponential.clh"

#ifndef LOG
#define LOG 0
#endif
#ifndef WG_SIZE
#define WG_SIZE 64
#endif
#ifndef BLOCK
#define BLOCK 64
#endif
#ifndef KEPT_ROW
#define KEPT_ROW 0  // elements of a row whose exponentials are kept; 0: of none
#endif
#define KEEPS (KEPT_ROW > 0)

// y from x less the maximum, and `normaliser`, which is the sum of exponentials
// or its logarithm. `exp` is that of numbers or of vectors.
#if LOG
#define NORMALISER(sum) log(sum)
#define FORWARD(exp, x, normaliser) ((x) - (normaliser))
#define SUMMAND(grad, y) (grad)
#define BACKWARD(exp, grad, y, sum) ((grad) - exp(y) * (sum))
#else
#define NORMALISER(sum) (sum)
#define FORWARD(exp, x, normaliser) (exp(x) / (normaliser))
#define SUMMAND(grad, y) ((grad) * (y))
#define BACKWARD(exp, grad, y, sum) (((grad) - (sum)) * (y))
#endif

#if LANES == 16
DEFINE_EXP_BELOW(exp_below_float32, float16, as_int16, as_float16)
#define exp_below_float16 exp_below_float32
#define exp_below_bfloat16 exp_below_float32
#define exp_below_float64 exp
#define exp_below CONCAT(exp_below_, DTYPE)
#else
#define exp_below exp
#endif

#define FORWARD_PARAMETERS \
  const rows_t rows, TENSOR(out_t, out), CONST_TENSOR(storage_t, self)
#define BACKWARD_PARAMETERS                     \
  const rows_t rows, TENSOR(out_t, grad_input), \
      CONST_TENSOR(storage_t, grad_output), CONST_TENSOR(storage_t, output)

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_strided(
    FORWARD_PARAMETERS) {
  const index_t id = (index_t)get_global_id(0);
  if (id >= rows.count) return;
  const row_t row = row_of(id, &rows, LANES);
  const global storage_t *x = POINTER(self) + row.offset[1];
  const index_t lane = rows.strides[ROWS_RANK];
  const index_t step = rows.row_strides[1];
  lanes_t largest = (lanes_t)-INFINITY;
  for (int i = 0; i < rows.row_size; ++i)
    largest = fmax(largest, load_lanes(x, i * step, lane, row.lanes));
  lanes_t sum = 0;
  for (int begin = 0; begin < rows.row_size; begin += BLOCK) {
    lanes_t part = 0;
    for (int i = begin; i < min(begin + BLOCK, rows.row_size); ++i)
      part += exp_below(load_lanes(x, i * step, lane, row.lanes) - largest);
    sum += part;
  }
  const lanes_t normaliser = NORMALISER(sum);
  global out_t *y = POINTER(out) + row.offset[0];
  for (int i = 0; i < rows.row_size; ++i)
    store_lanes(y,
                i * rows.row_strides[0],
                rows.strides[0],
                row.lanes,
                FORWARD(exp_below,
                        load_lanes(x, i * step, lane, row.lanes) - largest,
                        normaliser));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_strided_backward(
    BACKWARD_PARAMETERS) {
  const index_t id = (index_t)get_global_id(0);
  if (id >= rows.count) return;
  const row_t row = row_of(id, &rows, LANES);
  const global storage_t *grad = POINTER(grad_output) + row.offset[1];
  const global storage_t *y = POINTER(output) + row.offset[2];
  const index_t grad_lane = rows.strides[ROWS_RANK];
  const index_t y_lane = rows.strides[2 * ROWS_RANK];
  lanes_t sum = 0;
  for (int begin = 0; begin < rows.row_size; begin += BLOCK) {
    lanes_t part = 0;
    for (int i = begin; i < min(begin + BLOCK, rows.row_size); ++i)
      part += SUMMAND(load_lanes(grad, i * rows.row_strides[1], grad_lane, row.lanes),
                      load_lanes(y, i * rows.row_strides[2], y_lane, row.lanes));
    sum += part;
  }
  global out_t *result = POINTER(grad_input) + row.offset[0];
  for (int i = 0; i < rows.row_size; ++i)
    store_lanes(result,
                i * rows.row_strides[0],
                rows.strides[0],
                row.lanes,
                BACKWARD(exp_below,
                         load_lanes(grad, i * rows.row_strides[1], grad_lane, row.lanes),
                         load_lanes(y, i * rows.row_strides[2], y_lane, row.lanes),
                         sum));
}

#if LANES > 1

#define LOAD_LANES(p) CONCAT(load_lanes_, DTYPE)(p)
// One instruction; like fmax it takes no NaN, which the sum finds.
#define LARGER(x, than) ((x) > (than) ? (x) : (than))

#ifndef COLUMNS
#define COLUMNS 4  // vectors
#endif
#define KEPT (COLUMNS > 16 ? 32 : 64)

#define PLACE(t, i) ((i) * rows.row_strides[t] + v * LANES * rows.strides[t * ROWS_RANK])
#define PREFETCH_NEXT(p, t, i) PREFETCH(p + ((i) * rows.row_strides[t] + (v + COLUMNS) * LANES))
// One plane after the other, so that few streams are read at a time.
#define FETCH_NEXT_ELEMENT(p, t, i) \
  PREFETCH(p + ((i + 1) * rows.row_strides[t] + v * LANES))
#define LOAD_PART(p, t, i) \
  load_lanes(p, PLACE(t, i), rows.strides[t * ROWS_RANK], row.lanes - v * LANES)
#define STORE_PART(p, i, value) \
  store_lanes(p, PLACE(0, i), rows.strides[0], row.lanes - v * LANES, value)
// Of neighbouring full vectors: Intel's compiler makes scalars of the above.
#define LOAD_WHOLE(p, t, i) \
  LOAD_LANES(p + ((i) * rows.row_strides[t] + v * LANES))
#define STORE_WHOLE(p, i, value) \
  store_full_lanes_nt(p + ((i) * rows.row_strides[0] + v * LANES), value)

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void softmax_short(
    FORWARD_PARAMETERS) {
  const row_t row = row_of((index_t)get_global_id(0), &rows, COLUMNS * LANES);
  const global storage_t *x = POINTER(self) + row.offset[1];
  global out_t *y = POINTER(out) + row.offset[0];
  lanes_t kept[KEPT][COLUMNS];
#define SHORT(begin, end, LOAD_COLUMN, STORE_COLUMN)                           \
  {                                                                            \
    lanes_t largest[COLUMNS];                                                  \
    lanes_t sum[COLUMNS];                                                      \
    for (int v = begin; v < end; ++v) {                                        \
      largest[v] = (lanes_t)-INFINITY;                                         \
      sum[v] = 0;                                                              \
    }                                                                          \
    for (int i = 0; i < rows.row_size; ++i)                                    \
      for (int v = begin; v < end; ++v) {                                      \
        const lanes_t value = LOAD_COLUMN(x, 1, i);                            \
        kept[i][v] = value;                                                    \
        largest[v] = LARGER(value, largest[v]);                                \
      }                                                                        \
    for (int i = 0; i < rows.row_size; ++i)                                    \
      for (int v = begin; v < end; ++v) {                                      \
        const lanes_t less = kept[i][v] - largest[v];                          \
        PREFETCH_NEXT(x, 1, i);                                                \
        const lanes_t power = exp_below(less);                                 \
        kept[i][v] = LOG ? less : power;                                       \
        sum[v] += power;                                                       \
      }                                                                        \
    for (int v = begin; v < end; ++v) sum[v] = NORMALISER(sum[v]);             \
    for (int i = 0; i < rows.row_size; ++i)                                    \
      for (int v = begin; v < end; ++v) {                                      \
        const lanes_t value = LOG ? kept[i][v] - sum[v] : kept[i][v] / sum[v]; \
        STORE_COLUMN(y, i, value);                                             \
      }                                                                        \
  }
  const int is_dense = rows.strides[0] == 1 && rows.strides[ROWS_RANK] == 1;
  const int whole = is_dense ? row.lanes / LANES : 0;
  const int all = (row.lanes + LANES - 1) / LANES;
  // Intel's compiler makes twice as fast code of a constant number.
  if (whole == COLUMNS) {
    SHORT(0, COLUMNS, LOAD_WHOLE, STORE_WHOLE)
  } else {
    SHORT(0, whole, LOAD_WHOLE, STORE_WHOLE)
    SHORT(whole, all, LOAD_PART, STORE_PART)
  }
}
#undef SHORT

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void softmax_short_backward(
    BACKWARD_PARAMETERS) {
  const row_t row = row_of((index_t)get_global_id(0), &rows, COLUMNS * LANES);
  const global storage_t *grad = POINTER(grad_output) + row.offset[1];
  const global storage_t *y = POINTER(output) + row.offset[2];
  global out_t *result = POINTER(grad_input) + row.offset[0];
  lanes_t kept_grad[KEPT][COLUMNS];
  lanes_t kept_y[KEPT][COLUMNS];
#define SHORT(begin, end, LOAD_COLUMN, STORE_COLUMN)                    \
  {                                                                     \
    lanes_t sum[COLUMNS];                                               \
    for (int v = begin; v < end; ++v) sum[v] = 0;                       \
    for (int i = 0; i < rows.row_size; ++i)                             \
      for (int v = begin; v < end; ++v) {                               \
        FETCH_NEXT_ELEMENT(grad, 1, i);                                 \
        FETCH_NEXT_ELEMENT(y, 2, i);                                    \
        const lanes_t g = LOAD_COLUMN(grad, 1, i);                      \
        const lanes_t value = LOAD_COLUMN(y, 2, i);                     \
        kept_grad[i][v] = g;                                            \
        kept_y[i][v] = value;                                           \
        sum[v] += SUMMAND(g, value);                                    \
      }                                                                 \
    for (int i = 0; i < rows.row_size; ++i)                             \
      for (int v = begin; v < end; ++v) {                               \
        const lanes_t value =                                           \
            BACKWARD(exp_below, kept_grad[i][v], kept_y[i][v], sum[v]); \
        STORE_COLUMN(result, i, value);                                 \
      }                                                                 \
  }
  const int is_dense = rows.strides[0] == 1 && rows.strides[ROWS_RANK] == 1 &&
                       rows.strides[2 * ROWS_RANK] == 1;
  const int whole = is_dense ? row.lanes / LANES : 0;
  const int all = (row.lanes + LANES - 1) / LANES;
  SHORT(0, whole, LOAD_WHOLE, STORE_WHOLE)
  SHORT(whole, all, LOAD_PART, STORE_PART)
}
#undef SHORT

#define PARTS 4  // independent maxima: one would wait for its last

// Elements of a row ahead of the first that non-temporal stores may begin at.
inline int before_line(const global out_t *p, int size) {
#ifdef HAS_NON_TEMPORAL
  const size_t line = sizeof(lanes_t);
  return min(size, (int)((line - (ulong)p % line) % line / sizeof(out_t)));
#else
  return 0;
#endif
}

// What the last pass over a row makes of element i, and of LANES from i on.
#if KEEPS
#define RESULT(i) (kept[i] / normaliser)
#define RESULT_LANES(i) (vload16(0, kept + (i)) / normaliser)
#else
#define RESULT(i) FORWARD(exp, LOAD(x, i) - largest, normaliser)
#define RESULT_LANES(i) FORWARD(exp_below, LOAD_LANES(x + (i)) - largest, normaliser)
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_contiguous(
    FORWARD_PARAMETERS) {
  const index_t id = (index_t)get_global_id(0);
  if (id >= rows.count) return;
  const row_t row = row_of(id, &rows, 1);
  const global storage_t *x = POINTER(self) + row.offset[1];
  const global storage_t *next_x = x + rows.strides[ROWS_RANK];
  const int size = rows.row_size;
  const int whole = size / LANES * LANES;
  lanes_t parts[PARTS];
  for (int j = 0; j < PARTS; ++j) parts[j] = (lanes_t)-INFINITY;
  int next = 0;
  for (; next + PARTS * LANES <= whole; next += PARTS * LANES) {
#pragma unroll
    for (int j = 0; j < PARTS; ++j)
      parts[j] = LARGER(LOAD_LANES(x + next + j * LANES), parts[j]);
  }
  for (; next < whole; next += LANES)
    parts[0] = LARGER(LOAD_LANES(x + next), parts[0]);
  for (int j = 1; j < PARTS; ++j) parts[0] = LARGER(parts[j], parts[0]);
  compute_t largest = LANES_MAX(parts[0]);
  for (int i = whole; i < size; ++i) largest = fmax(largest, LOAD(x, i));

#if KEEPS
  compute_t kept[KEPT_ROW];
#endif
  compute_t sum = 0;
  for (int begin = 0; begin < whole; begin += BLOCK * LANES) {
    lanes_t part = 0;
    for (int i = begin; i < min(begin + BLOCK * LANES, whole); i += LANES) {
      PREFETCH(next_x + i);
      const lanes_t power = exp_below(LOAD_LANES(x + i) - largest);
#if KEEPS
      vstore16(power, 0, kept + i);
#endif
      part += power;
    }
    sum += LANES_SUM(part);
  }
  compute_t rest = 0;
  for (int i = whole; i < size; ++i) {
    const compute_t power = exp(LOAD(x, i) - largest);
#if KEEPS
    kept[i] = power;
#endif
    rest += power;
  }
  const compute_t normaliser = NORMALISER(sum + rest);

  global out_t *y = POINTER(out) + row.offset[0];
  const int head = before_line(y, size);
  const int end = head + (size - head) / LANES * LANES;
  for (int i = 0; i < head; ++i) STORE_OUT(y, i, RESULT(i));
  for (int i = head; i < end; i += LANES) {
    const lanes_t value = RESULT_LANES(i);
    store_full_lanes_nt(y + i, value);
  }
  for (int i = end; i < size; ++i) STORE_OUT(y, i, RESULT(i));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_contiguous_backward(
    BACKWARD_PARAMETERS) {
  const index_t id = (index_t)get_global_id(0);
  if (id >= rows.count) return;
  const row_t row = row_of(id, &rows, 1);
  const global storage_t *grad = POINTER(grad_output) + row.offset[1];
  const global storage_t *y = POINTER(output) + row.offset[2];
  const global storage_t *next_grad = grad + rows.strides[ROWS_RANK];
  const global storage_t *next_y = y + rows.strides[2 * ROWS_RANK];
  const int size = rows.row_size;
  const int whole = size / LANES * LANES;
  compute_t sum = 0;
  for (int begin = 0; begin < whole; begin += BLOCK * LANES) {
    lanes_t part = 0;
    for (int i = begin; i < min(begin + BLOCK * LANES, whole); i += LANES) {
      part += SUMMAND(LOAD_LANES(grad + i), LOAD_LANES(y + i));
    }
    sum += LANES_SUM(part);
  }
  compute_t rest = 0;
  for (int i = whole; i < size; ++i) rest += SUMMAND(LOAD(grad, i), LOAD(y, i));
  sum += rest;

  global out_t *result = POINTER(grad_input) + row.offset[0];
  const int head = before_line(result, size);
  const int end = head + (size - head) / LANES * LANES;
  for (int i = 0; i < head; ++i)
    STORE_OUT(result, i, BACKWARD(exp, LOAD(grad, i), LOAD(y, i), sum));
  for (int i = head; i < end; i += LANES) {
    PREFETCH(next_grad + i);
    if (LOG) PREFETCH(next_y + i);  // the first pass reads y otherwise
    const lanes_t value = BACKWARD(exp_below, LOAD_LANES(grad + i), LOAD_LANES(y + i), sum);
    store_full_lanes_nt(result + i, value);
  }
  for (int i = end; i < size; ++i)
    STORE_OUT(result, i, BACKWARD(exp, LOAD(grad, i), LOAD(y, i), sum));
}

#endif
