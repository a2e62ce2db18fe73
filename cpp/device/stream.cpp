#include "stream.h"

#include "fork.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <limits>

namespace torch_opencl::device {

namespace {

constexpr size_t kMaxDevices = std::numeric_limits<c10::DeviceIndex>::max() + 1;

thread_local int thread_device = 0;
thread_local std::array<int64_t, kMaxDevices> thread_streams{};

std::array<std::atomic<uint32_t>, kMaxDevices> pool_positions{};

c10::DeviceIndex or_current(int device_index) noexcept {
  return static_cast<c10::DeviceIndex>(device_index < 0 ? thread_device
                                                        : device_index);
}

c10::Stream make_stream(c10::DeviceIndex device_index, int64_t stream_id) {
  return c10::Stream(c10::Stream::UNSAFE,
                     c10::Device(c10::DeviceType::PrivateUse1, device_index),
                     stream_id);
}

}  // namespace

int current_device() noexcept {
  return thread_device;
}

int exchange_device(int index) {
  const int previous = thread_device;
  if (index != previous) {
    thread_device = runtime::device(index).index();
  }
  return previous;
}

c10::DeviceIndex index_of(c10::Device device) noexcept {
  return or_current(device.index());
}

int64_t current_stream_id(int device_index) noexcept {
  return thread_streams[or_current(device_index)];
}

runtime::Queue& current_queue(int device_index) {
  check_not_forked();
  const int index = or_current(device_index);
  return runtime::queue(index, thread_streams[index]);
}

c10::Stream current_stream(c10::DeviceIndex device_index) {
  const auto index = or_current(device_index);
  return make_stream(index, thread_streams[index]);
}

c10::Stream default_stream(c10::DeviceIndex device_index) {
  return make_stream(or_current(device_index), 0);
}

c10::Stream stream_from_pool(c10::DeviceIndex device_index) {
  const auto index = or_current(device_index);
  runtime::device(index);  // throws for an index out of range
  const uint32_t turn = pool_positions[index].fetch_add(1);
  return make_stream(index, 1 + turn % runtime::kStreamsPerPool);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const auto index = index_of(stream.device());
  const c10::Stream previous = make_stream(index, thread_streams[index]);
  TORCH_CHECK(stream.id() >= 0 && stream.id() <= runtime::kStreamsPerPool,
              "opencl: ",
              stream.id(),
              " is not the id of an opencl stream");
  thread_streams[index] = stream.id();
  return previous;
}

runtime::Queue& queue_of(const c10::Stream& stream) {
  check_not_forked();
  return runtime::queue(index_of(stream.device()), stream.id());
}

}  // namespace torch_opencl::device
