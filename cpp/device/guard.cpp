#include "guard.h"

#include "allocator.h"
#include "fork.h"
#include "stream.h"

#include "../runtime/command_graph.h"
#include "../runtime/error_record.h"

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

namespace torch_opencl::device {

namespace {

// What a c10::Event points to.
struct RecordedEvent {
  runtime::Event marker;
  runtime::Event time;  // where it is asked for
  runtime::Queue* queue = nullptr;
  uint64_t number = 0;  // in the order of recording
  runtime::Look look;
  c10::DeviceIndex device_index = -1;
  bool has_timing = false;
  // Recorded in a capture: of its graph, and without a marker.
  bool is_captured = false;
  std::weak_ptr<runtime::CommandGraph> graph;

  bool query() {
    check_not_captured();
    const bool is_complete = marker.query();
    if (is_complete) {
      raise();
    }
    return is_complete;
  }
  void synchronize() {
    check_not_captured();
    marker.synchronize();
    raise();
  }

 private:
  void check_not_captured() const {
    TORCH_CHECK(!is_captured,
                "opencl: an event that was recorded in a capture never runs");
  }
  void raise() {
    if (queue != nullptr) {
      runtime::raise_reported(*queue, look);
    }
  }
};

std::atomic<uint64_t> recordings{0};

RecordedEvent* recorded(void* event) {
  return static_cast<RecordedEvent*>(event);
}

c10::Device make_device(int index) {
  return c10::Device(GuardImpl::static_type,
                     static_cast<c10::DeviceIndex>(index));
}

}  // namespace

c10::Device GuardImpl::exchangeDevice(c10::Device device) const {
  return make_device(exchange_device(index_of(device)));
}

c10::Device GuardImpl::getDevice() const {
  return make_device(current_device());
}

void GuardImpl::setDevice(c10::Device device) const {
  exchange_device(index_of(device));
}

void GuardImpl::uncheckedSetDevice(c10::Device device) const noexcept {
  try {
    exchange_device(index_of(device));
  } catch (const std::exception& error) {
    TORCH_WARN(error.what());
  }
}

c10::DeviceIndex GuardImpl::deviceCount() const noexcept {
  return static_cast<c10::DeviceIndex>(std::min<int>(
      runtime::device_count(), std::numeric_limits<c10::DeviceIndex>::max()));
}

c10::DeviceCapability GuardImpl::getDeviceCapability(c10::Device device) const {
  c10::DeviceCapability capability;
  auto& types = capability.capability_data.supported_scalar_types;
  types.has_QInt8 = types.has_QUInt8 = types.has_QInt32 = false;
  types.has_QUInt4x2 = types.has_QUInt2x4 = false;
  types.has_Double = types.has_ComplexDouble =
      runtime::device(index_of(device)).info().has_fp64;
  return capability;
}

c10::Stream GuardImpl::getStream(c10::Device device) const {
  return current_stream(device.index());
}

c10::Stream GuardImpl::getDefaultStream(c10::Device device) const {
  return default_stream(device.index());
}

c10::Stream GuardImpl::getNewStream(c10::Device device,
                                    int /*priority*/) const {
  return stream_from_pool(device.index());
}

c10::Stream GuardImpl::getStreamFromGlobalPool(
    c10::Device device, bool /*is_high_priority*/) const {
  return stream_from_pool(device.index());
}

c10::Stream GuardImpl::exchangeStream(c10::Stream stream) const {
  return exchange_stream(stream);
}

void* GuardImpl::getStreamNativeHandle(const c10::Stream stream) const {
  return queue_of(stream).share();
}

bool GuardImpl::queryStream(const c10::Stream& stream) const {
  return queue_of(stream).query();
}

void GuardImpl::synchronizeStream(const c10::Stream& stream) const {
  queue_of(stream).synchronize();
}

void GuardImpl::synchronizeDevice(c10::DeviceIndex device_index) const {
  check_not_forked();
  runtime::synchronize_device(device_index < 0 ? current_device()
                                               : device_index);
}

void GuardImpl::recordDataPtrOnStream(const c10::DataPtr& data,
                                      const c10::Stream& stream) const {
  allocator()->recordStream(data, stream);
}

void GuardImpl::record(void** event,
                       const c10::Stream& stream,
                       c10::DeviceIndex device_index,
                       c10::EventFlag flag) const {
  TORCH_CHECK(device_index == -1 || device_index == stream.device_index(),
              "Event device index ",
              int{device_index},  // an int8_t would print as a character
              " does not match recording stream's device index ",
              int{stream.device_index()},
              ".");
  runtime::Queue& queue = queue_of(stream);
  runtime::CommandGraph* graph = queue.capturing();
  runtime::Look look;
  runtime::Event marker;
  if (graph != nullptr) {
    queue.flush_pending();
  } else {
    look = runtime::look_at_reports(queue, /*sees_all=*/false);
    marker = queue.record();
  }
  if (*event == nullptr) {
    *event = new RecordedEvent;
  }
  RecordedEvent* target = recorded(*event);
  const bool has_timing = flag == c10::EventFlag::BACKEND_DEFAULT;
  target->time =
      has_timing && marker ? queue.record_time(marker) : runtime::Event();
  target->marker = std::move(marker);
  target->queue = &queue;
  target->number = ++recordings;
  target->look = std::move(look);
  target->is_captured = graph != nullptr;
  target->graph.reset();
  if (graph != nullptr) {
    target->graph = graph->weak_from_this();
  }
  target->device_index = stream.device_index();
  target->has_timing = has_timing;
}

void GuardImpl::block(void* event, const c10::Stream& stream) const {
  if (event == nullptr) {
    return;
  }
  RecordedEvent* source = recorded(event);
  if (source->is_captured) {
    const auto graph = source->graph.lock();
    TORCH_CHECK(graph != nullptr,
                "opencl: an event that was recorded in a capture ends with it");
    TORCH_CHECK(source->device_index == stream.device_index(),
                "opencl: a graph captures from streams of one device");
    graph->join(queue_of(stream));
  } else if (source->device_index == stream.device_index()) {
    queue_of(stream).wait(source->marker);
  } else {
    // Every device has its own context, and OpenCL has no wait across two.
    check_not_forked();
    source->synchronize();
  }
}

bool GuardImpl::queryEvent(void* event) const {
  return event == nullptr || recorded(event)->query();
}

void GuardImpl::synchronizeEvent(void* event) const {
  if (event != nullptr) {
    check_not_forked();
    recorded(event)->synchronize();
  }
}

void GuardImpl::destroyEvent(void* event,
                             c10::DeviceIndex /*device_index*/) const noexcept {
  delete recorded(event);
}

double GuardImpl::elapsedTime(void* start,
                              void* end,
                              c10::DeviceIndex /*device_index*/) const {
  TORCH_CHECK(start != nullptr && end != nullptr,
              "Both events must be recorded before calculating elapsed time.");
  TORCH_CHECK(
      recorded(start)->has_timing && recorded(end)->has_timing,
      "Both events must be created with argument 'enable_timing=True'.");
  TORCH_CHECK(recorded(start)->device_index == recorded(end)->device_index,
              "Both events must be recorded on the same device.");
  TORCH_CHECK(queryEvent(start) && queryEvent(end),
              "Both events must be completed before calculating elapsed time.");
  const RecordedEvent& first = *recorded(start);
  const RecordedEvent& second = *recorded(end);
  double nanoseconds = static_cast<double>(second.time.completed_at()) -
                       static_cast<double>(first.time.completed_at());
  // Drivers date markers to some microseconds: NVIDIA's gives the second of two
  // in a row an earlier time.
  if (first.queue == second.queue) {
    nanoseconds = first.number < second.number ? std::max(nanoseconds, 0.0)
                                               : std::min(nanoseconds, 0.0);
  }
  return nanoseconds * 1e-6;
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

}  // namespace torch_opencl::device
