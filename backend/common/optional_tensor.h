// Tensors that a caller may leave out.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_opencl::ops {

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

inline const at::Tensor& value_or_undefined(
    const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

}  // namespace torch_opencl::ops
