// PyTorch's errors for dtypes: one that an op has no kernel for, or two that
// differ.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace torch_opencl::ops {

inline void check_implemented(bool implemented,
                              const char* name,
                              at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(implemented,
                              "\"",
                              name,
                              "\" not implemented for '",
                              c10::toString(type),
                              "'");
}

inline void check_scalar_type(const at::Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type,
              "expected scalar type ",
              c10::toString(type),
              " but found ",
              c10::toString(tensor.scalar_type()));
}

// The same in a TensorIterator's words.
inline void check_same_dtype(const at::Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type,
              "Found dtype ",
              tensor.scalar_type(),
              " but expected ",
              type);
}

// `out` holds what has been computed in `type`.
inline void check_castable(at::ScalarType type, const at::Tensor& out) {
  TORCH_CHECK(at::canCast(type, out.scalar_type()),
              "result type ",
              type,
              " can't be cast to the desired output type ",
              out.scalar_type());
}

// Of what is added to a product, or of its first factor, and of the second.
inline void check_dtype_of_mat2(const char* name,
                                const at::Tensor& tensor,
                                const at::Tensor& mat2) {
  TORCH_CHECK(tensor.scalar_type() == mat2.scalar_type(),
              name,
              " and mat2 must have the same dtype, but got ",
              tensor.scalar_type(),
              " and ",
              mat2.scalar_type());
}

inline void check_floating(const char* name, const at::Tensor& tensor) {
  check_implemented(
      at::isFloatingType(tensor.scalar_type()), name, tensor.scalar_type());
}

// What AT_DISPATCH_ALL_TYPES takes, and the half types.
inline void check_number(const char* name, const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  check_implemented(at::isFloatingType(type) || type == at::kByte ||
                        type == at::kChar || type == at::kShort ||
                        type == at::kInt || type == at::kLong,
                    name,
                    type);
}

}  // namespace torch_opencl::ops
