// PyTorch's error where tensors are on two devices.
#pragma once

#include <ATen/core/TensorBase.h>

namespace torch_opencl::aten {

[[noreturn]] void throw_not_opencl(c10::Device device);
inline void check_is_opencl(c10::Device device) {
  if (!device.is_privateuseone()) [[unlikely]] {
    throw_not_opencl(device);
  }
}

// A number on the CPU goes with tensors of any device.
inline bool is_number_on_cpu(const at::TensorBase& tensor) {
  return tensor.is_cpu() && tensor.dim() == 0;
}

}  // namespace torch_opencl::aten
