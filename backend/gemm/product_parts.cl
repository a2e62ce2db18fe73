// Adds the parts of a product whose depth was split among work-groups, in order:
// out = alpha * (part 0 + part 1 + ...) + beta * self. Parts are dense matrices of
// all batches, one part after the other. A work-item computes one output.

#include "types.clh"
#include "loads_ahead.clh"
#include "panels.clh"
#include "product_vectors.clh"
#include "product_image.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void product_parts(TENSOR(out_t, out), CONST_TENSOR(compute_t, parts),
                   CONST_TENSOR(storage_t, self), const int rows, const int columns,
                   const int batches, const int count, OUT_PARAMETERS IMAGE_PARAMETERS EPILOGUE_PARAMETERS) {
  const index_t i = get_global_id(0);
  const size_t batch = get_global_id(1);
  const size_t size = (size_t)rows * columns;
  if (get_global_id(0) >= size) return;
  const global compute_t *at = POINTER(parts) + batch * size + i;
  compute_t total = 0;
  FOR_LOADS_AHEAD(int, part, 0, count, 1, total += at[part * batches * size];)
  const int row = (int)(i / columns);
  const int column = (int)(i - (index_t)row * columns);
  const size_t out_from = batch * batch_stride;
  const global storage_t *base = POINTER(self) + batch * self_batch_stride;
  WRITE_ONE(row, column, total)
}
