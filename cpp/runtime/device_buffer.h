// The memory objects that segments of the caching allocator are.
#pragma once

#include "device.h"

#include <cstdint>

namespace torch_opencl::runtime {

// A buffer of `bytes`, or null with the error in `code`. Where the device
// computes on the host's memory, huge pages back it: kernels that walk matrices
// by columns touch a page an element, and first uses fault once for 2 MiB.
cl_mem create_buffer(Device& device, uint64_t bytes, cl_int* code);

}  // namespace torch_opencl::runtime
