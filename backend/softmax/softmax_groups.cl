// Softmax and log-softmax (LOG) along one dimension, and their gradients, for GPUs.
//
// `span` work-items take a row, and as many rows as there is room for a group; which
// items are neighbours follows what lies side by side in memory. softmax_kept reads a
// row of at most ITEMS elements a work-item once and keeps it in registers.
// softmax_twice reads a longer one twice: the first time for the largest element and
// the sum of the exponentials, which is scaled whenever the largest so far grows.
//
// A row of -inf gives NaN, as PyTorch's does.

#include "types.clh"
#include "group_rows.clh"

#define ITEMS 8

typedef CONCAT(storage_, OUT_DTYPE) out_t;
#define STORE_OUT(p, i, value) CONCAT(store_, OUT_DTYPE)(p, i, value)

#if LOG
#define NORMALISER(sum) log(sum)
#define RESULT(x, power, largest, normaliser) ((x) - (largest) - (normaliser))
#define SUMMAND(grad, y) (grad)
#define GRADIENT(grad, y, sum) ((grad) - exp(y) * (sum))
#else
#define NORMALISER(sum) (sum)
#define RESULT(x, power, largest, normaliser) ((power) / (normaliser))
#define SUMMAND(grad, y) ((grad) * (y))
#define GRADIENT(grad, y, sum) (((grad) - (sum)) * (y))
#endif

#define ROWS                                                                    \
  const index_t count, const int size, const int span, const int is_along,      \
      const int rank, const int8 sizes
#define LAYOUT(name) const index_t name##_step, const index8_t name##_strides

#define FIND_ROW                                                                \
  GROUP_ROWS(span, is_along)                                                    \
  const index_t row = (index_t)get_group_id(0) * group_rows + r;                \
  const int end = row < count ? size : 0;                                       \
  const int8 digits = digits_of(min(row, count - 1), rank, sizes);
#define AT(name) (POINTER(name) + offset_of(digits, rank, name##_strides))

// What an item has of its row, from `begin` on: element number i at k.
#define FOR_OWN(k, i, begin)                                                    \
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k)                             \
    for (int i = (begin) + along + k * span, once = 1; once && i < end; once = 0)

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_kept(
    ROWS, LAYOUT(out), LAYOUT(self), TENSOR(out_t, out), CONST_TENSOR(storage_t, self)) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *x = AT(self);
  compute_t kept[ITEMS];
  compute_t largest = -INFINITY;
  FOR_OWN(k, i, 0) {
    kept[k] = LOAD(x, i * self_step);
    largest = fmax(largest, kept[k]);
  }
  ROW_MAX(largest, shared, span)
  compute_t sum = 0;
  FOR_OWN(k, i, 0) {
#if LOG
    sum += exp(kept[k] - largest);
#else
    kept[k] = exp(kept[k] - largest);
    sum += kept[k];
#endif
  }
  ROW_SUM(sum, shared, span)
  const compute_t normaliser = NORMALISER(sum);
  global out_t *y = AT(out);
  FOR_OWN(k, i, 0)
    STORE_OUT(y, i * out_step, RESULT(kept[k], kept[k], largest, normaliser));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_twice(
    ROWS, LAYOUT(out), LAYOUT(self), TENSOR(out_t, out), CONST_TENSOR(storage_t, self)) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *x = AT(self);
  const int width = span * ITEMS;
  compute_t own_largest = -INFINITY;
  compute_t own_sum = 0;
  for (int begin = 0; begin < end; begin += width) {
    compute_t kept[ITEMS];
    compute_t largest = own_largest;
    FOR_OWN(k, i, begin) {
      kept[k] = LOAD(x, i * self_step);
      largest = fmax(largest, kept[k]);
    }
    // Of -inf so far nothing is subtracted: the difference would be no number.
    const compute_t base = largest == -INFINITY ? 0 : largest;
    compute_t part = 0;
    FOR_OWN(k, i, begin) part += exp(kept[k] - base);
    own_sum = own_sum * exp(own_largest - base) + part;
    own_largest = largest;
  }
  compute_t largest = own_largest;
  ROW_MAX(largest, shared, span)
  const compute_t base = largest == -INFINITY ? 0 : largest;
  compute_t sum = own_sum * exp(own_largest - base);
  ROW_SUM(sum, shared, span)
  const compute_t normaliser = NORMALISER(sum);
  global out_t *y = AT(out);
#pragma unroll 4
  for (int i = along; i < end; i += span) {
    const compute_t value = LOAD(x, i * self_step);
    STORE_OUT(y, i * out_step,
              RESULT(value, exp(value - largest), largest, normaliser));
  }
}

#define BACKWARD_PARAMETERS                                                      \
  ROWS, LAYOUT(grad_input), LAYOUT(grad_output), LAYOUT(output),                 \
      TENSOR(out_t, grad_input), CONST_TENSOR(storage_t, grad_output),           \
      CONST_TENSOR(storage_t, output)

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_kept_backward(
    BACKWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *grad = AT(grad_output);
  const global storage_t *y = AT(output);
  compute_t grads[ITEMS], values[ITEMS];
  compute_t sum = 0;
  FOR_OWN(k, i, 0) {
    grads[k] = LOAD(grad, i * grad_output_step);
    values[k] = LOAD(y, i * output_step);
    sum += SUMMAND(grads[k], values[k]);
  }
  ROW_SUM(sum, shared, span)
  global out_t *result = AT(grad_input);
  FOR_OWN(k, i, 0)
    STORE_OUT(result, i * grad_input_step, GRADIENT(grads[k], values[k], sum));
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void softmax_twice_backward(
    BACKWARD_PARAMETERS) {
  local compute_t shared[WG_SIZE];
  FIND_ROW
  const global storage_t *grad = AT(grad_output);
  const global storage_t *y = AT(output);
  const int width = span * ITEMS;
  compute_t sum = 0;
  for (int begin = 0; begin < end; begin += width) {
    compute_t part = 0;
    FOR_OWN(k, i, begin)
      part += SUMMAND(LOAD(grad, i * grad_output_step), LOAD(y, i * output_step));
    sum += part;
  }
  ROW_SUM(sum, shared, span)
  global out_t *result = AT(grad_input);
#pragma unroll 4
  for (int i = along; i < end; i += span)
    STORE_OUT(result, i * grad_input_step,
              GRADIENT(LOAD(grad, i * grad_output_step), LOAD(y, i * output_step), sum));
}
