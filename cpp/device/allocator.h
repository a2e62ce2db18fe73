// The allocator of opencl tensors as c10 sees it.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace torch_opencl::device {

// Allocates on the current device and stream; never destroyed, because
// tensors may outlive static destructors.
c10::DeviceAllocator* allocator();

// Tensor.record_stream: the block is also used on `stream`.
inline void record_data_ptr_on_stream(const c10::DataPtr& data,
                                      const c10::Stream& stream) {
  allocator()->recordStream(data, stream);
}

}  // namespace torch_opencl::device
