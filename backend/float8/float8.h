// float8 tensors: bytes that no kernel computes with. They are converted to
// float32 and back, or moved as bytes.
#pragma once

#include "../pointwise/pointwise.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

inline bool is_float8(const at::TensorBase& tensor) {
  return at::isFloat8Type(tensor.scalar_type());
}

// The same memory as bytes; tensors of other dtypes stay themselves.
at::Tensor as_bytes(const at::Tensor& tensor);

// `tensor` in float32, in its own layout where it is dense.
at::Tensor float8_values(const at::Tensor& tensor);

// A copy on one device of which at least one side is float8, neither is complex
// and dtypes differ.
void copy_float8(const at::Tensor& destination, const at::Tensor& source);

// A pointwise op over float8 operands: in float32, as the CPU computes the few
// ops that it takes them for. Raises for others.
void pointwise_float8(at::TensorIteratorBase& iter,
                      const PointwiseOp& op,
                      c10::ArrayRef<at::Scalar> scalars);
inline bool has_float8(const at::TensorIteratorBase& iter) {
  for (int i = 0; i < iter.ntensors(); ++i) {
    if (at::isFloat8Type(iter.dtype(i))) {
      return true;
    }
  }
  return false;
}

}  // namespace torch_opencl::ops
