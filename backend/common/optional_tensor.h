// Tensors that a caller may leave out.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_opencl::ops {

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && tensor->defined();
}

}  // namespace torch_opencl::ops
