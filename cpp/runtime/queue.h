// In-order asynchronous queues and events: all enqueueing goes through here.
#pragma once

#include "device.h"
#include "driver_queue.h"
#include "program_cache.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace torch_opencl::runtime {

struct CommandTime;

// A place in device memory as kernels take it: two arguments, the buffer and
// an element offset.
struct BufferView {
  cl_mem memory = nullptr;
  uint64_t offset = 0;  // elements of the tensor's dtype
  int device_index = -1;
  // Its address, where the kernel writes there; null where it only reads.
  const void* written = nullptr;
};

// Calls in which the host waited for a device, since the start of the process.
struct WaitStatistics {
  int64_t finishes = 0;   // clFinish
  int64_t events = 0;     // clWaitForEvents
  int64_t transfers = 0;  // blocking reads, writes and maps
};
WaitStatistics wait_statistics();

struct NDRange {
  uint32_t dimensions = 1;
  std::array<size_t, 3> global = {1, 1, 1};
  std::array<size_t, 3> local = {1, 1, 1};
};

class Event {
 public:
  Event() = default;
  explicit Event(cl_event handle) : handle_(handle) {}  // takes the reference
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  ~Event();

  explicit operator bool() const { return handle_ != nullptr; }
  cl_event handle() const { return handle_; }
  bool query() const;  // true once complete; throws if it failed
  void synchronize() const;
  // Device time at completion, nanoseconds; of one of record_time. Waits.
  uint64_t completed_at() const;

 private:
  cl_event handle_ = nullptr;
};

class CommandGraph;   // command_graph.h
class EnqueuedWork;   // host_wait.h
class PendingLaunch;  // pending_launch.h

class Queue {
 public:
  Queue(Device& device, int64_t stream_id, bool profiles);
  ~Queue();
  Queue(const Queue&) = delete;

  Device& device() const { return device_; }
  int64_t stream_id() const { return stream_id_; }
  // For calls that go past this class.
  DriverQueue::Handle handle() { return DriverQueue::Handle(driver_); }
  // The handle for others, who enqueue without telling: no launch waits from
  // now on.
  cl_command_queue share();
  // Commands that follow have times.
  void set_profiling(bool profiles);

  // To be held from a kernel's first argument to its launch. Enqueues the
  // pending launch, which may be of the same kernel, before it locks.
  [[nodiscard]] std::unique_lock<std::mutex> lock(Kernel& kernel);
  // The only clEnqueueNDRangeKernel of the project.
  void launch(Kernel& kernel, const NDRange& range);

  // One launch may wait for what joins it; it is enqueued ahead of every later
  // command, marker and wait.
  bool can_pend() const;
  bool has_pending() const {
    return has_pending_.load(std::memory_order_acquire);
  }
  // Enqueues what waits, and lets `launch` wait instead.
  void pend(std::unique_ptr<PendingLaunch> launch);
  // True where a launch waits and `join` took more into it.
  bool join_pending(const std::function<bool(PendingLaunch&)>& join);
  // Frees what the launch kept alive, so not to be called with a lock on the
  // allocator. True where there was any.
  bool flush_pending();

  // Until the end of the capture, kernels, copies and fills go into `graph`
  // instead of running, and what would wait for the queue throws.
  void begin_capture(CommandGraph& graph);
  void end_capture();
  CommandGraph* capturing() const {
    return capturing_.load(std::memory_order_acquire);
  }
  // Throws where a graph captures.
  void check_not_capturing() const;
  // Before a read or write by the host: launches what is pending. Throws where
  // a graph captures.
  void begin_transfer(bool blocking);
  // A command that writes at `address` was enqueued or captured; null is none.
  void wrote(const void* address);

  // Zeroes four bytes, ahead of the pending launch and past a capture.
  void touch(cl_mem memory);
  // Byte offsets. A null memory or zero bytes is a no-op.
  void copy(cl_mem source,
            size_t source_offset,
            cl_mem destination,
            size_t destination_offset,
            size_t bytes);
  void fill(cl_mem memory,
            const void* pattern,
            size_t pattern_bytes,
            size_t offset,
            size_t bytes);
  void read(
      cl_mem memory, size_t offset, void* host, size_t bytes, bool blocking);
  void write(cl_mem memory,
             size_t offset,
             const void* host,
             size_t bytes,
             bool blocking);
  // Writes without waiting and without keeping `host`: up to kMaxTakenBytes.
  static constexpr size_t kMaxTakenBytes = 128;
  void write_taken(cl_mem memory,
                   size_t offset,
                   const void* host,
                   size_t bytes);
  // Waits; returns null with the error in `code`.
  void* map(cl_mem memory, size_t bytes, cl_int& code);

  Event record();  // a marker after everything so far
  // The same without the pending launch, which keeps its own memory.
  Event record_enqueued();
  // An event with a time, of the completion of one that record() gave.
  Event record_time(const Event& marker);
  void wait(const Event& event);  // later commands wait for the event
  bool query();                   // true when everything has completed
  void flush();
  // Waits; a failed command surfaces here with the names of the kernels
  // launched last.
  void synchronize();
  void synchronize_enqueued();  // without the pending launch

  // Kernels enqueued since creation.
  int64_t launch_count() const { return launch_count_.load(); }

 private:
  // Calls `call`, which is the driver's `function`, with a place for the
  // command's event.
  template <class Call>
  void enqueue(const char* function, CommandTime command, const Call& call);
  void enqueue_write(cl_mem memory,
                     size_t offset,
                     const void* host,
                     size_t bytes,
                     bool blocking);
  void enqueue_pending(const PendingLaunch& launch);
  // A driver may keep commands back until a flush, and its GPU idle: flushes
  // the first one after a wait, and then what came since, every kFlushPeriod.
  void flush_when_due();
  static constexpr int64_t kFlushPeriod = 200'000;  // nanoseconds
  // An error of a launch after its call returned, raised by the next wait.
  void keep_error(std::exception_ptr error);
  void raise_kept_error();
  [[noreturn]] void throw_failed(int code, const char* call);

  Device& device_;
  int64_t stream_id_;
  EnqueuedWork& work_;
  DriverQueue driver_;
  std::atomic<int64_t> launch_count_{0};
  std::atomic<int64_t> enqueue_count_{0};   // commands of every kind
  std::atomic<int64_t> finished_count_{0};  // of them when last waited for
  std::atomic<int64_t> flushed_at_{0};      // steady clock; 0: nothing runs
  // A driver may take a moment to complete even a marker in an idle queue, so
  // query() polls the same one until something else is enqueued.
  std::mutex query_mutex_;
  int64_t query_count_ = -1;
  Event query_marker_;
  // Drivers queue without limit, and a host that never waits would fill its
  // memory with commands: a launch may wait for one thousands before it.
  void bound_enqueued();
  std::mutex markers_mutex_;
  std::array<Event, 2> markers_;
  // Held while the pending launch is enqueued, so that other threads' commands
  // come after it.
  std::mutex pending_launch_mutex_;
  std::unique_ptr<PendingLaunch> pending_launch_;
  std::atomic<bool> has_pending_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::atomic<bool> has_error_{false};
  std::atomic<bool> is_shared_{false};
  std::atomic<CommandGraph*> capturing_{nullptr};
  // Ring of the kernels launched last, for the error text.
  std::array<std::atomic<const char*>, 8> recent_{};
};

constexpr int kMaxDevices = 64;  // c10::DeviceIndex is an int8_t
// Queues of a device: id 0 is the default stream, 1..32 the pool.
constexpr int64_t kStreamsPerPool = 32;
Queue& queue(int device_index, int64_t stream_id);
// Every queue created so far on the device.
void synchronize_device(int device_index);
void synchronize_enqueued(int device_index);
bool flush_pending(int device_index);  // true where there was any
// Of every device, of those created later, too.
void set_profiling(bool profiles);

}  // namespace torch_opencl::runtime
