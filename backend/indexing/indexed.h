// The indexing engine: a copy between two tensors, one of which is addressed
// through index tensors.
#pragma once

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace torch_opencl::ops {

enum class Indexed : uint8_t {
  kGet,  // operand 0 = operand 1[indices]
  kPut,  // operand 0[indices] = operand 1; of equal indices any may win
  kAdd,  // operand 0[indices] += alpha * operand 1, in the order of the indices
};

// What is said of the indices of an op.
struct IndexedBy {
  const char* op;      // a literal, which reports of bad indices name
  int64_t dim = 0;     // the first indexed dimension, as reports name it
  bool wraps = false;  // negative indices count from the end
  // An index of which nothing is read or written, without a report.
  std::optional<int64_t> skipped = std::nullopt;
};

// Operands 2.. are int64 indices into dimensions of the given sizes and
// strides (bytes). An index out of range reads zero and writes nothing, and is
// reported. The indexed tensor does not move along indexed dimensions by
// itself: ATen's advanced indexing prepares its iterators so, and
// indexed_along() below does.
void indexed(at::TensorIteratorBase& iter,
             Indexed mode,
             at::IntArrayRef sizes,
             at::IntArrayRef strides,
             const IndexedBy& by,
             const at::Scalar& alpha = 1);

// The same along `by.dim`: `plain` has the shape of `index`, and so has
// `table` but for its size along it.
void indexed_along(const at::Tensor& table,
                   const at::Tensor& plain,
                   const at::Tensor& index,
                   Indexed mode,
                   IndexedBy by,
                   const at::Scalar& alpha = 1);

// out = self, then out[index] += alpha * source along `by.dim`, on GPUs where
// few work-items would walk long lines: sorted by what goes where, in a fixed
// order. False, and nothing done, elsewhere.
bool add_by_segments(const at::Tensor& self,
                     const at::Tensor& index,
                     const at::Tensor& source,
                     const at::Tensor& out,
                     const IndexedBy& by,
                     const at::Scalar& alpha);

// `index` repeated over the other dimensions of a tensor of these sizes.
at::Tensor spread(const at::Tensor& index, at::IntArrayRef sizes, int64_t dim);

// out = self, then out[index] = source or += alpha * source along `by.dim`.
void scatter_into(const at::Tensor& self,
                  const at::Tensor& index,
                  const at::Tensor& source,
                  const at::Tensor& out,
                  Indexed mode,
                  const IndexedBy& by,
                  const at::Scalar& alpha = 1);

}  // namespace torch_opencl::ops
