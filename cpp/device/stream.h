// The calling thread's current device and current streams.
#pragma once

#include "../runtime/queue.h"

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>

namespace torch_opencl::device {

// Both are thread-local and cheap: autograd's threads ask once a node.
int current_device() noexcept;
// Makes `index` current and returns the previous one; throws RuntimeError
// ("invalid device ordinal") for an index out of range.
int exchange_device(int index);

// The index of `device`, the current one where it has none (-1).
c10::DeviceIndex index_of(c10::Device device) noexcept;

// In all of these a negative index means the current device.
int64_t current_stream_id(int device_index) noexcept;
runtime::Queue& current_queue(int device_index);
c10::Stream current_stream(c10::DeviceIndex device_index);
c10::Stream default_stream(c10::DeviceIndex device_index);
// The next of the device's pool of queues, in turn.
c10::Stream stream_from_pool(c10::DeviceIndex device_index);
// Makes `stream` current for its device, returns the one that was.
c10::Stream exchange_stream(c10::Stream stream);

runtime::Queue& queue_of(const c10::Stream& stream);

}  // namespace torch_opencl::device
