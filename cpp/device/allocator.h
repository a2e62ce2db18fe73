// The allocator of opencl tensors as c10 sees it.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace torch_opencl::device {

// Allocates on the current device and stream; never destroyed, because
// tensors may outlive static destructors.
c10::DeviceAllocator* allocator();

}  // namespace torch_opencl::device
