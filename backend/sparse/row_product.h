// Products of sparse and dense matrices on the device.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// A matrix whose entries are sorted by row; a place may be there several times.
struct SparseRows {
  at::Tensor crow;  // [rows + 1]
  at::Tensor col;
  at::Tensor values;
  int64_t rows;
  int64_t columns;
};

// Of a matrix of any sparse layout.
SparseRows sparse_rows(const at::Tensor& matrix);

// `sparse` @ `dense`, contiguous. An index out of bounds is reported as one of
// `op`, a literal.
at::Tensor multiply_rows(const SparseRows& sparse,
                         const at::Tensor& dense,
                         const char* op);

// A product of two sparse matrices, sparse COO and coalesced.
at::Tensor multiply_sparse(const at::Tensor& left, const at::Tensor& right);

}  // namespace torch_opencl::ops
