// delta[row] = sum of grad_out * out over the row: what backward subtracts from
// the gradient of each weight. One work-item sums one row.

#include "types.clh"
#include "philox.clh"
#include "attention.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void attention_delta(const attention_t a, const strides_t out_strides,
                     CONST_TENSOR(storage_t, out), CONST_TENSOR(storage_t, grad_out),
                     TENSOR(float, delta)) {
  const int i = get_global_id(0);
  const int h = get_global_id(1);
  const size_t b = get_global_id(2);
  if (i >= a.queries) return;
  const global storage_t *row =
      POINTER(out) + HEAD_OFFSET(out_strides, b, h) + i * out_strides.row;
  const global storage_t *grad_row =
      POINTER(grad_out) + HEAD_OFFSET(a.out, b, h) + i * a.out.row;
  float sum = 0;
  for (int d = 0; d < a.value_dim; ++d) {
    sum = fma(LOAD(row, d * out_strides.column), LOAD(grad_row, d * a.out.column), sum);
  }
  POINTER(delta)[(b * a.heads + h) * a.queries + i] = sum;
}
