// Layer normalisation of contiguous rows, and its gradients, for CPUs
// (layer_norm_groups.cl is for GPUs).
//
// A row is made by one work-item, 16 elements at a time. Variance is taken from
// residuals about the mean. Sums along rows are made in blocks, so that those of long
// rows are precise. The gradients of weight and bias are sums over rows: those of a job
// are added up while the rows' own gradients are computed, and a second pass adds up
// the jobs of a column, all in a fixed order.

#include "types.clh"
#include "lanes.clh"
#include "prefetch.clh"
#include "params.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

inline compute_t param_or(const global param_t *p, long i, compute_t missing) {
  return p ? LOAD_PARAM(p, i) : missing;
}

#define ROW ((long)get_global_id(0))
#define FIRST_ITEM 1
#define ROW_SUM(value) (value)
inline lanes_t params_or(const global param_t *p, long i, compute_t missing) {
  return p ? CONCAT(load_lanes_, PARAM_DTYPE)(p + i) : (lanes_t)missing;
}
// FOR_LANES takes full vectors, FOR_REST what they leave.
#define FOR_LANES(i) for (int i = 0; i < size / LANES * LANES; i += LANES)
#define FOR_LANES_OF(block, i) for (int i = block; i < block##_end; i += LANES)
#define FOR_REST(i) for (int i = size / LANES * LANES; i < size; ++i)
// A statement; see store_full_lanes_nt.
#define STORE_LANES(p, i, value)            \
  {                                         \
    const lanes_t stored = value;           \
    store_full_lanes_nt((p) + (i), stored); \
  }
inline lanes_t sum_or(const global compute_t *p, bool is_first) {
  return is_first ? (lanes_t)0 : vload16(0, p);
}
#define STORE_SUM(p, value) vstore16(value, 0, p)
#define PREFETCH_NEXT(p) PREFETCH(p)
#define FIRST 0
#define STEP LANES
#define PARTS 4  // sums in turn: an addition waits for the last one of its own

// Blocks of the full vectors: sums of many numbers are sums of sums, so that the
// rounding errors of long rows stay small.
#define BLOCK (256 * PARTS * STEP)
#define FOR_BLOCKS(block)                                                             \
  for (int block = 0, block##_end; block < size / LANES * LANES; block = block##_end) \
    if ((block##_end = block + min(BLOCK, size / LANES * LANES - block)) > 0)

// As FOR_LANES_OF, of PARTS neighbours: part j is of the lanes at i.
#define FOR_PARTS_OF(block, body)                                         \
  {                                                                       \
    int next = block + FIRST;                                             \
    for (; next + (PARTS - 1) * STEP < block##_end; next += PARTS * STEP) \
      _Pragma("unroll") for (int j = 0; j < PARTS; ++j) {                 \
        body(next + j * STEP, j)                                          \
      }                                                                   \
    for (; next < block##_end; next += STEP) {                            \
      body(next, 0)                                                       \
    }                                                                     \
  }
#define ADD_LANES(i, j) sums[j] += load_lanes(x, i, 1, LANES);
#define ADD_DEVIATIONS(i, j)                                \
  {                                                         \
    PREFETCH_NEXT(x + size + (i));                          \
    const lanes_t d = load_lanes(x, i, 1, LANES) - mean;    \
    residuals[j] += d;                                      \
    squares[j] += d * d;                                    \
  }
#define SUM_OF_PARTS(parts) ((parts[0] + parts[1]) + (parts[2] + parts[3]))

inline compute_t sum_of_one_or(const global compute_t *p, bool is_first) {
  return is_first ? 0 : *p;
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm(
    const int size,
    const compute_t epsilon,
    TENSOR(storage_t, out),
    TENSOR(compute_t, means),
    TENSOR(compute_t, inverse_deviations),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(param_t, weight),
    CONST_TENSOR(param_t, bias)) {
  const long row = ROW;
  const global storage_t *x = POINTER(self) + row * size;
  const global param_t *w = weight_memory ? POINTER(weight) : 0;
  const global param_t *b = bias_memory ? POINTER(bias) : 0;

  lanes_t all_sums = 0;
  compute_t sum = 0;
  FOR_BLOCKS(block) {
    lanes_t sums[PARTS] = {0};
    FOR_PARTS_OF(block, ADD_LANES)
    all_sums += SUM_OF_PARTS(sums);
  }
  FOR_REST(i) sum += LOAD(x, i);
  sum = ROW_SUM(sum + LANES_SUM(all_sums));
  compute_t mean = sum / size;

  lanes_t all_residuals = 0;
  lanes_t all_squares = 0;
  compute_t residual = 0;
  compute_t square = 0;
  FOR_BLOCKS(block) {
    lanes_t residuals[PARTS] = {0};
    lanes_t squares[PARTS] = {0};
    FOR_PARTS_OF(block, ADD_DEVIATIONS)
    all_residuals += SUM_OF_PARTS(residuals);
    all_squares += SUM_OF_PARTS(squares);
  }
  FOR_REST(i) {
    const compute_t d = LOAD(x, i) - mean;
    residual += d;
    square += d * d;
  }
  residual = ROW_SUM(residual + LANES_SUM(all_residuals));
  square = ROW_SUM(square + LANES_SUM(all_squares));
  const compute_t correction = residual / size;
  mean += correction;
  const compute_t inverse =
      (compute_t)1 / sqrt((square - residual * correction) / size + epsilon);

  global storage_t *y = POINTER(out) + row * size;
  FOR_LANES(i)
    STORE_LANES(y, i,
                (load_lanes(x, i, 1, LANES) - mean) * inverse * params_or(w, i, 1) +
                    params_or(b, i, 0))
  FOR_REST(i)
    STORE(y, i, (LOAD(x, i) - mean) * inverse * param_or(w, i, 1) + param_or(b, i, 0));
  if (FIRST_ITEM) {
    POINTER(means)[row] = mean;
    POINTER(inverse_deviations)[row] = inverse;
  }
}

// A job is `chunk` rows. Its sums lie as [job][column]; none are wanted without
// memory.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm_backward(
    const int size,
    const long rows,
    const long chunk,
    TENSOR(storage_t, grad_input),
    TENSOR(compute_t, weight_sums),
    TENSOR(compute_t, bias_sums),
    CONST_TENSOR(storage_t, grad_output),
    CONST_TENSOR(storage_t, self),
    CONST_TENSOR(compute_t, means),
    CONST_TENSOR(compute_t, inverse_deviations),
    CONST_TENSOR(param_t, weight)) {
  const global param_t *w = weight_memory ? POINTER(weight) : 0;
  global compute_t *weight_sum = POINTER(weight_sums) + ROW * size;
  global compute_t *bias_sum = POINTER(bias_sums) + ROW * size;
  const bool has_sums = weight_sums_memory != 0;
  const bool has_gradient = grad_input_memory != 0;
  const long first = ROW * chunk;
  for (long row = first; row < min(first + chunk, rows); ++row) {
    const global storage_t *x = POINTER(self) + row * size;
    const global storage_t *grad = POINTER(grad_output) + row * size;
    const compute_t mean = POINTER(means)[row];
    const compute_t inverse = POINTER(inverse_deviations)[row];

    compute_t shift = 0;
    compute_t slope = 0;
    if (has_gradient) {
      lanes_t all_sums = 0;
      lanes_t all_products = 0;
      compute_t sum = 0;
      compute_t product = 0;
      FOR_BLOCKS(block) {
        lanes_t sums = 0;
        lanes_t products = 0;
        FOR_LANES_OF(block, i) {
          const lanes_t g = load_lanes(grad, i, 1, LANES) * params_or(w, i, 1);
          sums += g;
          products += g * (load_lanes(x, i, 1, LANES) - mean);
        }
        all_sums += sums;
        all_products += products;
      }
      FOR_REST(i) {
        const compute_t g = LOAD(grad, i) * param_or(w, i, 1);
        sum += g;
        product += g * (LOAD(x, i) - mean);
      }
      shift = ROW_SUM(sum + LANES_SUM(all_sums)) / size;
      slope = ROW_SUM(product + LANES_SUM(all_products)) / size * inverse * inverse;
    }

    const bool is_first = row == first;
    global storage_t *result = POINTER(grad_input) + row * size;
    FOR_LANES(i) {
      PREFETCH_NEXT(grad + size + i);
      PREFETCH_NEXT(x + size + i);
      const lanes_t g = load_lanes(grad, i, 1, LANES);
      const lanes_t d = load_lanes(x, i, 1, LANES) - mean;
      if (has_sums) {
        STORE_SUM(weight_sum + i, sum_or(weight_sum + i, is_first) + g * d * inverse);
        STORE_SUM(bias_sum + i, sum_or(bias_sum + i, is_first) + g);
      }
      if (has_gradient)
        STORE_LANES(result, i, (g * params_or(w, i, 1) - shift - d * slope) * inverse)
    }
    FOR_REST(i) {
      const compute_t g = LOAD(grad, i);
      const compute_t d = LOAD(x, i) - mean;
      if (has_sums) {
        weight_sum[i] = sum_of_one_or(weight_sum + i, is_first) + g * d * inverse;
        bias_sum[i] = sum_of_one_or(bias_sum + i, is_first) + g;
      }
      if (has_gradient)
        STORE(result, i, (g * param_or(w, i, 1) - shift - d * slope) * inverse);
    }
  }
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void layer_norm_params_finish(
    const int size,
    const int jobs,
    TENSOR(param_t, grad_weight),
    TENSOR(param_t, grad_bias),
    CONST_TENSOR(compute_t, weight_sums),
    CONST_TENSOR(compute_t, bias_sums)) {
  const int column = (int)get_global_id(0);
  if (column >= size) return;
  compute_t weight_sum = 0;
  compute_t bias_sum = 0;
  for (long i = 0; i < jobs; ++i) {
    weight_sum += POINTER(weight_sums)[i * size + column];
    bias_sum += POINTER(bias_sums)[i * size + column];
  }
  if (grad_weight_memory) STORE_PARAM(POINTER(grad_weight), column, weight_sum);
  if (grad_bias_memory) STORE_PARAM(POINTER(grad_bias), column, bias_sum);
}
