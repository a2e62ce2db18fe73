// The memory objects that segments of the caching allocator are.
#pragma once

#include "device.h"

#include <cstdint>
#include <optional>

namespace torch_opencl::runtime {

// A buffer of `bytes`, or null with the error in `code`. Where the device
// computes on the host's memory, huge pages back it: kernels that walk matrices
// by columns touch a page an element, and first uses fault once for 2 MiB.
cl_mem create_buffer(Device& device, uint64_t bytes, cl_int* code);

// What new buffers of a device in the host's memory may take: what the host has
// available, less what earlier buffers were promised and have not touched yet,
// and a little for others. Nothing for other devices, and where the host does
// not tell.
std::optional<uint64_t> available_memory(const Device& device);
// False where a buffer of `bytes` would need more than that.
bool has_memory_for(const Device& device, uint64_t bytes);

}  // namespace torch_opencl::runtime
