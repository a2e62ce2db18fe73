// Page-locked host memory as ATen sees it (Tensor.pin_memory, DataLoader).
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace torch_opencl::device {

at::HostAllocator* host_allocator();

}  // namespace torch_opencl::device
