#include "queue.h"

#include "command_graph.h"
#include "config.h"
#include "error.h"
#include "error_record.h"
#include "guard_bands.h"
#include "host_wait.h"
#include "pending_launch.h"
#include "profiler.h"
#include "quirks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace torch_opencl::runtime {

namespace {

struct Waits {
  std::atomic<int64_t> finishes{0};
  std::atomic<int64_t> events{0};
  std::atomic<int64_t> transfers{0};
};
Waits waits;

int64_t steady_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// A copy or fill of a buffer.
template <class Function, class... Arguments>
auto copy_or_fill(Function function, Arguments... arguments) {
  return [=](cl_command_queue handle, cl_event* event) {
    return function(handle, arguments..., 0, nullptr, event);
  };
}

// A read or write of a buffer.
template <class Function, class Host>
auto transfer(Function function,
              cl_mem memory,
              size_t offset,
              Host* host,
              size_t bytes,
              bool blocking) {
  return [=](cl_command_queue handle, cl_event* event) {
    const cl_bool is_blocking = blocking ? CL_TRUE : CL_FALSE;
    return function(
        handle, memory, is_blocking, offset, bytes, host, 0, nullptr, event);
  };
}

}  // namespace

WaitStatistics wait_statistics() {
  return {waits.finishes.load(), waits.events.load(), waits.transfers.load()};
}

Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) {
    log_opencl_error(api().clReleaseEvent(handle_), "clReleaseEvent");
  }
}

bool Event::query() const {
  cl_int status = CL_COMPLETE;
  OPENCL_CHECK(api().clGetEventInfo(handle_,
                                    CL_EVENT_COMMAND_EXECUTION_STATUS,
                                    sizeof(status),
                                    &status,
                                    nullptr));
  if (status < 0) {
    throw_opencl_error(status, "an enqueued command", __FILE__, __LINE__);
  }
  return status == CL_COMPLETE;
}

void Event::synchronize() const {
  ++waits.events;
  if (!can_interrupt() || !query()) {
    const cl_int code = wait_for_event(handle_);
    if (code != CL_SUCCESS) {
      throw_opencl_error(code, "clWaitForEvents", __FILE__, __LINE__);
    }
  }
  check_guards();
}

uint64_t Event::completed_at() const {
  OPENCL_CHECK(api().clWaitForEvents(1, &handle_));
  cl_ulong time = 0;
  OPENCL_CHECK(api().clGetEventProfilingInfo(
      handle_, CL_PROFILING_COMMAND_END, sizeof(time), &time, nullptr));
  return time;
}

Queue::Queue(Device& device, int64_t stream_id, bool profiles)
    : device_(device),
      stream_id_(stream_id),
      work_(enqueued_work(*this)),
      driver_(device, profiles) {}

Queue::~Queue() = default;

void Queue::throw_failed(int code, const char* call) {
  std::string text = std::string("OpenCL error ") + std::to_string(code) +
                     " (" + error_name(code) + ") from " + call + " on " +
                     device_.info().name;
  std::string names;
  const int64_t count = launch_count_.load();
  const int64_t size = static_cast<int64_t>(recent_.size());
  for (int64_t i = 0; i < std::min(count, size); ++i) {
    const char* name = recent_[(count - 1 - i) % size].load();
    if (name == nullptr) {
      continue;  // another thread has counted its launch and not yet named it
    }
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (!names.empty()) {
    text += "; the kernels launched last were, latest first: " + names;
    if (!config().sync) {
      text += ". TORCH_OPENCL_SYNC=1 reports the exact one";
    }
  }
  if (is_device_lost(code)) {
    text += "; the device is lost: restart the process to use it again";
  }
  throw OpenCLError(code, text);
}

// With locks held, so without a check for interrupts.
static void wait_in_driver(const Event& event) {
  ++waits.events;
  const cl_event handle = event.handle();
  OPENCL_CHECK(api().clWaitForEvents(1, &handle));
}

void Queue::bound_enqueued() {
  const std::lock_guard lock(markers_mutex_);
  std::swap(markers_[0], markers_[1]);
  if (markers_[1] && !markers_[1].query()) {
    wait_in_driver(markers_[1]);
  }
  markers_[1] = record_enqueued();
}

template <class Call>
void Queue::enqueue(const char* function,
                    CommandTime command,
                    const Call& call) {
  ProfiledCommand profiled;
  cl_int code = CL_SUCCESS;
  {
    const DriverQueue::Handle handle = this->handle();
    code = call(handle, handle.profiles() ? profiled.event() : nullptr);
  }
  if (code != CL_SUCCESS) [[unlikely]] {
    throw_failed(code, function);
  }
  if (command.name == nullptr) {  // no kernel
    command.name = function;
  }
  command.device_index = device_.index();
  command.stream_id = stream_id_;
  work_.add(command.name, command.work_items + command.bytes);
  profiled.add(command);
  ++enqueue_count_;
  if (config().guard) [[unlikely]] {
    note_command(command.name);
  }
  if (device_.info().device_class == DeviceClass::kGpu) {
    flush_when_due();
  }
}

std::unique_lock<std::mutex> Queue::lock(Kernel& kernel) {
  if (has_pending()) {
    flush_pending();
  }
  return std::unique_lock(kernel.mutex);
}

void Queue::launch(Kernel& kernel, const NDRange& range) {
  for (uint32_t d = 0; d < range.dimensions; ++d) {
    if (range.global[d] == 0) {
      return;
    }
  }
  if (CommandGraph* graph = capturing()) [[unlikely]] {
    graph->add_launch(kernel, range);
    return;
  }
  constexpr int64_t kMarkerStep = 2048;  // two of them may be running
  const int64_t number = launch_count_.fetch_add(1);
  recent_[number % recent_.size()] = kernel.name;
  if (number % kMarkerStep == kMarkerStep - 1) [[unlikely]] {
    bound_enqueued();
  }
  enqueue("clEnqueueNDRangeKernel",
          {.name = kernel.name,
           .work_items = range.global[0] * range.global[1] * range.global[2]},
          [&](cl_command_queue handle, cl_event* event) {
            return api().clEnqueueNDRangeKernel(handle,
                                                kernel.handle,
                                                range.dimensions,
                                                nullptr,
                                                range.global.data(),
                                                range.local.data(),
                                                0,
                                                nullptr,
                                                event);
          });
  const Config& settings = config();
  if (settings.debug >= 2) [[unlikely]] {
    std::fprintf(stderr,
                 "torch_opencl: launch %s (%zu, %zu, %zu)\n",
                 kernel.name,
                 range.global[0],
                 range.global[1],
                 range.global[2]);
  }
  if (settings.sync) [[unlikely]] {
    ReportsOfWait reports(*this);
    synchronize_enqueued();
    reports.raise();
  }
}

void Queue::touch(cl_mem memory) {
  static constexpr cl_uint first_use = 0;
  enqueue_write(memory, 0, &first_use, sizeof(first_use), false);
  if (capturing() != nullptr) {  // a replay may be on a stream of its own
    wait_in_driver(record_enqueued());
  }
}

void Queue::copy(cl_mem source,
                 size_t source_offset,
                 cl_mem destination,
                 size_t destination_offset,
                 size_t bytes) {
  if (source == nullptr || destination == nullptr || bytes == 0 ||
      (source == destination && source_offset == destination_offset)) {
    return;
  }
  flush_pending();
  if (CommandGraph* graph = capturing()) [[unlikely]] {
    graph->add_copy(
        source, source_offset, destination, destination_offset, bytes);
    return;
  }
  enqueue("clEnqueueCopyBuffer",
          {.bytes = bytes},
          copy_or_fill(api().clEnqueueCopyBuffer,
                       source,
                       destination,
                       source_offset,
                       destination_offset,
                       bytes));
}

void Queue::fill(cl_mem memory,
                 const void* pattern,
                 size_t pattern_bytes,
                 size_t offset,
                 size_t bytes) {
  if (memory == nullptr || bytes == 0) {
    return;
  }
  flush_pending();
  if (CommandGraph* graph = capturing()) [[unlikely]] {
    graph->add_fill(memory, pattern, pattern_bytes, offset, bytes);
    return;
  }
  enqueue("clEnqueueFillBuffer",
          {.bytes = bytes},
          copy_or_fill(api().clEnqueueFillBuffer,
                       memory,
                       pattern,
                       pattern_bytes,
                       offset,
                       bytes));
}

void Queue::begin_transfer(bool blocking) {
  check_not_capturing();
  waits.transfers += blocking ? 1 : 0;
  flush_pending();
}

void Queue::read(
    cl_mem memory, size_t offset, void* host, size_t bytes, bool blocking) {
  if (memory == nullptr || bytes == 0) {
    return;
  }
  begin_transfer(blocking);
  std::optional<ReportsOfWait> reports;
  if (blocking) {
    reports.emplace(*this);
  }
  begin_wait(*this, blocking);
  enqueue(
      "clEnqueueReadBuffer",
      {.bytes = bytes},
      transfer(
          api().clEnqueueReadBuffer, memory, offset, host, bytes, blocking));
  end_wait(*this, blocking);
  if (blocking) {
    flushed_at_.store(0, std::memory_order_relaxed);
    reports->raise();
    raise_kept_error();
  }
}

void Queue::write(cl_mem memory,
                  size_t offset,
                  const void* host,
                  size_t bytes,
                  bool blocking) {
  if (memory == nullptr || bytes == 0) {
    return;
  }
  begin_transfer(blocking);
  begin_wait(*this, blocking);
  enqueue_write(memory, offset, host, bytes, blocking);
  end_wait(*this, blocking);
}

void Queue::enqueue_write(cl_mem memory,
                          size_t offset,
                          const void* host,
                          size_t bytes,
                          bool blocking) {
  enqueue(
      "clEnqueueWriteBuffer",
      {.bytes = bytes},
      transfer(
          api().clEnqueueWriteBuffer, memory, offset, host, bytes, blocking));
}

void Queue::write_taken(cl_mem memory,
                        size_t offset,
                        const void* host,
                        size_t bytes) {
  // A fill takes its pattern with it. A pattern's size is a power of two and
  // divides the offset.
  const auto* from = static_cast<const unsigned char*>(host);
  while (bytes > 0) {
    size_t piece = std::min(std::bit_floor(bytes), kMaxTakenBytes);
    while (offset % piece != 0) {
      piece /= 2;
    }
    fill(memory, from, piece, offset, piece);
    from += piece;
    offset += piece;
    bytes -= piece;
  }
}

void* Queue::map(cl_mem memory, size_t bytes, cl_int& code) {
  check_not_capturing();
  ++waits.transfers;
  flush_pending();
  return api().clEnqueueMapBuffer(handle(),
                                  memory,
                                  CL_TRUE,
                                  CL_MAP_READ | CL_MAP_WRITE,
                                  0,
                                  bytes,
                                  0,
                                  nullptr,
                                  nullptr,
                                  &code);
}

Event Queue::record() {
  check_not_capturing();
  flush_pending();
  return record_enqueued();
}

Event Queue::record_enqueued() {
  cl_event event = nullptr;
  const cl_int code =
      api().clEnqueueMarkerWithWaitList(handle(), 0, nullptr, &event);
  if (code != CL_SUCCESS) {
    throw_failed(code, "clEnqueueMarkerWithWaitList");
  }
  // Whoever polls the event must see it make progress.
  flush();
  return Event(event);
}

Event Queue::record_time(const Event& marker) {
  return Event(driver_.enqueue_time(marker.handle()));
}

void Queue::wait(const Event& event) {
  if (!event) {
    return;
  }
  check_not_capturing();
  flush_pending();
  const cl_event marker = event.handle();
  work_.add("clEnqueueBarrierWithWaitList", EnqueuedWork::kUnknownSize);
  const cl_int code =
      api().clEnqueueBarrierWithWaitList(handle(), 1, &marker, nullptr);
  if (code != CL_SUCCESS) {
    throw_failed(code, "clEnqueueBarrierWithWaitList");
  }
  ++enqueue_count_;
}

bool Queue::query() {
  check_not_capturing();
  flush_pending();
  const int64_t count = enqueue_count_.load();
  if (finished_count_.load() == count) {
    return true;
  }
  const std::lock_guard lock(query_mutex_);
  if (query_count_ != count) {
    query_marker_ = record_enqueued();
    query_count_ = count;
  }
  return query_marker_.query();
}

void Queue::flush_when_due() {
  if (steady_now() - flushed_at_.load(std::memory_order_relaxed) >=
      kFlushPeriod) {
    flush();
  }
}

void Queue::flush() {
  flushed_at_.store(steady_now(), std::memory_order_relaxed);
  const cl_int code = api().clFlush(handle());
  if (code != CL_SUCCESS) {
    throw_failed(code, "clFlush");
  }
}

void Queue::synchronize() {
  check_not_capturing();
  flush_pending();
  ReportsOfWait reports(*this);
  begin_wait(*this);
  synchronize_enqueued();
  reports.raise();
  raise_kept_error();
}

void Queue::synchronize_enqueued() {
  ++waits.finishes;
  const int64_t count = enqueue_count_.load();
  const cl_int code = finish(handle(), device_.info());
  if (code != CL_SUCCESS) {
    throw_failed(code, "clFinish");
  }
  finished_count_.store(count);
  flushed_at_.store(0, std::memory_order_relaxed);
  end_wait(*this);
}

}  // namespace torch_opencl::runtime
