// A command queue of the driver. It profiles only while somebody does: drivers
// of GPUs batch what they need not time, and enqueue it faster.
#pragma once

#include "api.h"

#include <atomic>
#include <mutex>

namespace torch_opencl::runtime {

class Device;

class DriverQueue {
 public:
  DriverQueue(Device& device, bool profiles);
  ~DriverQueue();
  DriverQueue(const DriverQueue&) = delete;

  // The handle for one call of the driver: it is another one once profiling
  // has begun or ended. A thread holds one at a time.
  class Handle {
   public:
    explicit Handle(DriverQueue& queue)
        : queue_(queue), handle_(queue.take_handle()) {}
    ~Handle() { queue_.calls_.fetch_sub(1); }
    Handle(const Handle&) = delete;

    operator cl_command_queue() const { return handle_; }
    bool profiles() const { return queue_.profiles_; }

   private:
    DriverQueue& queue_;
    const cl_command_queue handle_;
  };

  // The handle for others, who keep it: it profiles, and stays the same one.
  cl_command_queue share();

  // Commands that follow have times, or not. What was enqueued comes first.
  void set_profiling(bool profiles);

  // A command with a time that completes as soon as `event` has. It is in a
  // queue of its own, so that the others need not be profiled.
  cl_event enqueue_time(cl_event event);

 private:
  cl_command_queue take_handle();
  void change_handle(bool profiles);  // with the mutex held

  Device& device_;
  // Null while it changes; threads that see that wait for the mutex.
  std::atomic<cl_command_queue> handle_;
  std::atomic<int> calls_{0};  // of the driver, with the handle
  bool profiles_;              // changes while there are none
  std::mutex mutex_;
  bool is_shared_ = false;
  cl_command_queue times_ = nullptr;
};

}  // namespace torch_opencl::runtime
