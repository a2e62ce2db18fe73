// Sorting the rows of a matrix, stably.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// Refuses (rows, columns) with columns that kernels cannot number.
void check_columns(const at::Tensor& rows);

// Raises NotImplementedError under the name `op` for dtypes that have no order,
// or no kernels.
void check_sortable(const char* op, const at::Tensor& tensor);

// The first `kept` of the int64 column indices that put each row of a
// contiguous (rows, columns) tensor in order; equal elements keep theirs. NaN
// counts as the greatest value. The result is contiguous.
at::Tensor sorted_order(const at::Tensor& rows, bool descending, int64_t kept);

// The same as the kernels write it: int32, and contiguous where all are kept.
at::Tensor sorted_order_int32(const at::Tensor& rows,
                              bool descending,
                              int64_t kept);

// The tensor with `dim` last, contiguous, as (rows, columns).
at::Tensor as_rows(const at::Tensor& self, int64_t dim);

// A (rows, k) result of as_rows(self, dim) in the dimensions of self.
at::Tensor from_rows(const at::Tensor& rows,
                     const at::Tensor& self,
                     int64_t dim);

}  // namespace torch_opencl::ops
