#include "driver_queue.h"

#include "device.h"
#include "error.h"

#include <chrono>
#include <thread>

namespace torch_opencl::runtime {

namespace {

cl_command_queue create(Device& device, bool profiles) {
  cl_int code = CL_SUCCESS;
  const cl_command_queue created =
      api().clCreateCommandQueue(device.context(),
                                 device.id(),
                                 profiles ? CL_QUEUE_PROFILING_ENABLE : 0,
                                 &code);
  if (code != CL_SUCCESS) {
    throw_opencl_error(code, "clCreateCommandQueue", __FILE__, __LINE__);
  }
  return created;
}

void release(cl_command_queue queue) {
  if (queue != nullptr) {
    log_opencl_error(api().clReleaseCommandQueue(queue),
                     "clReleaseCommandQueue");
  }
}

// What `later` gets from now on runs after what `earlier` has got.
void order(cl_command_queue earlier, cl_command_queue later) {
  cl_event marker = nullptr;
  OPENCL_CHECK(api().clEnqueueMarkerWithWaitList(earlier, 0, nullptr, &marker));
  cl_int code = api().clFlush(earlier);
  if (code == CL_SUCCESS) {
    code = api().clEnqueueBarrierWithWaitList(later, 1, &marker, nullptr);
  }
  log_opencl_error(api().clReleaseEvent(marker), "clReleaseEvent");
  OPENCL_CHECK(code);
}

}  // namespace

DriverQueue::DriverQueue(Device& device, bool profiles)
    : device_(device), handle_(create(device, profiles)), profiles_(profiles) {}

DriverQueue::~DriverQueue() {
  release(handle_);
  release(times_);
}

cl_command_queue DriverQueue::take_handle() {
  for (;;) {
    calls_.fetch_add(1);
    const cl_command_queue handle = handle_.load();
    if (handle != nullptr) [[likely]] {
      return handle;
    }
    calls_.fetch_sub(1);
    const std::lock_guard lock(mutex_);
  }
}

void DriverQueue::change_handle(bool profiles) {
  const cl_command_queue next = create(device_, profiles);
  const cl_command_queue last = handle_.exchange(nullptr);
  while (calls_.load() != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
  try {
    order(last, next);
  } catch (...) {
    handle_.store(last);
    release(next);
    throw;
  }
  profiles_ = profiles;
  handle_.store(next);
  release(last);
}

cl_command_queue DriverQueue::share() {
  const std::lock_guard lock(mutex_);
  if (!profiles_) {
    change_handle(true);
  }
  is_shared_ = true;
  return handle_.load();
}

void DriverQueue::set_profiling(bool profiles) {
  const std::lock_guard lock(mutex_);
  if (!is_shared_ && profiles_ != profiles) {
    change_handle(profiles);
  }
}

cl_event DriverQueue::enqueue_time(cl_event event) {
  const std::lock_guard lock(mutex_);
  if (times_ == nullptr) {
    times_ = create(device_, true);
  }
  cl_event time = nullptr;
  OPENCL_CHECK(api().clEnqueueMarkerWithWaitList(times_, 1, &event, &time));
  const cl_int code = api().clFlush(times_);
  if (code != CL_SUCCESS) {
    log_opencl_error(api().clReleaseEvent(time), "clReleaseEvent");
    OPENCL_CHECK(code);
  }
  return time;
}

}  // namespace torch_opencl::runtime
