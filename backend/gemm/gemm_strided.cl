// Matrix multiplication of any dtype and strides, one output a work-item: for
// integers, whose products are rare.

#include "types.clh"
#include "panels.clh"

kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void gemm_strided(CONST_TENSOR(storage_t, left), CONST_TENSOR(storage_t, right),
                  TENSOR(storage_t, out), CONST_TENSOR(storage_t, self),
                  const int rows, const int columns, const int depth,
                  const index_t left_row_stride, const index_t left_depth_stride,
                  const index_t left_batch_stride, const index_t right_depth_stride,
                  const index_t right_column_stride, const index_t right_batch_stride,
                  const index_t row_stride, const index_t column_stride,
                  const index_t batch_stride, const index_t self_row_stride,
                  const index_t self_column_stride, const index_t self_batch_stride,
                  const compute_t alpha, const compute_t beta) {
  const int column = get_global_id(0);
  const int row = get_global_id(1);
  const size_t batch = get_global_id(2);
  if (column >= columns) {
    return;
  }
  const global storage_t *a =
      POINTER(left) + batch * left_batch_stride + row * left_row_stride;
  const global storage_t *b =
      POINTER(right) + batch * right_batch_stride + column * right_column_stride;
  global storage_t *target = POINTER(out) + batch * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;
  compute_t sum = 0;
  for (int k = 0; k < depth; ++k) {
    sum += LOAD(a, k * left_depth_stride) * LOAD(b, k * right_depth_stride);
  }
  WRITE(sum, row, column, row * row_stride + column * column_stride)
}
