// PyTorch's error where tensors are on two devices.
#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/util/Exception.h>

namespace torch_opencl::aten {

inline void check_is_opencl(c10::Device device) {
  TORCH_CHECK(device.is_privateuseone(),
              "Expected all tensors to be on the same device, but found at "
              "least two devices, opencl and ",
              device,
              "!");
}

// A number on the CPU goes with tensors of any device.
inline bool is_number_on_cpu(const at::TensorBase& tensor) {
  return tensor.is_cpu() && tensor.dim() == 0;
}

}  // namespace torch_opencl::aten
