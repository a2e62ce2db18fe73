// PyTorch's error where tensors are on two devices.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace torch_opencl::aten {

inline void check_is_opencl(c10::Device device) {
  TORCH_CHECK(device.is_privateuseone(),
              "Expected all tensors to be on the same device, but found at "
              "least two devices, opencl and ",
              device,
              "!");
}

}  // namespace torch_opencl::aten
