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

// Raises where two matrices have no product; `prefix` begins the message.
void check_product_shapes(const at::Tensor& mat1,
                          const at::Tensor& mat2,
                          const char* prefix = "");

// Runs of `counts` numbers from `firsts` on, one after the other, and which run
// each of them is of.
struct Runs {
  at::Tensor places;
  at::Tensor run;
};
Runs expand_runs(const at::Tensor& firsts, const at::Tensor& counts);

// A product of two sparse matrices, sparse COO and coalesced.
at::Tensor multiply_sparse(const at::Tensor& left, const at::Tensor& right);

}  // namespace torch_opencl::ops
