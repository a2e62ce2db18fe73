// Tensors that a caller may leave out.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_opencl::ops {

using OptionalTensor = std::optional<at::Tensor>;

inline bool is_given(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined();
}

inline const at::Tensor& value_or_undefined(const OptionalTensor& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

}  // namespace torch_opencl::ops
