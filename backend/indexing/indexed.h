// The indexing engine: a copy between two tensors, one of which is addressed
// through index tensors.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

namespace torch_opencl::ops {

enum class Indexed : uint8_t {
  kGet,  // operand 0 = operand 1[indices]
  kPut,  // operand 0[indices] = operand 1; of equal indices any may win
  kAdd,  // operand 0[indices] += alpha * operand 1, in the order of the indices
};

// Operands 2.. are int64 indices into dimensions of the given sizes and
// strides (bytes); negative ones count from the end. An index out of range
// reads zero and writes nothing: checking it here would wait for the device.
// The indexed tensor does not move along indexed dimensions by itself: ATen's
// advanced indexing prepares its iterators so, and indexed_along() below does.
void indexed(at::TensorIteratorBase& iter,
             Indexed mode,
             at::IntArrayRef sizes,
             at::IntArrayRef strides,
             const at::Scalar& alpha = 1);

// The same along one dimension: `plain` has the shape of `index`, and so has
// `table` but for its size along `dim`.
void indexed_along(const at::Tensor& table,
                   const at::Tensor& plain,
                   const at::Tensor& index,
                   int64_t dim,
                   Indexed mode,
                   const at::Scalar& alpha = 1);

}  // namespace torch_opencl::ops
