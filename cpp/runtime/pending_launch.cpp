#include "pending_launch.h"

#include "ahead_of_pending.h"
#include "config.h"
#include "profiler.h"

#include <exception>
#include <utility>

namespace torch_opencl::runtime {

namespace {

// The queue that this thread is enqueueing a pending launch in, or commands
// ahead of it. What that launches must not wait for it.
thread_local const Queue* enqueueing = nullptr;

}  // namespace

AheadOfPending::AheadOfPending(const Queue& queue)
    : outer_(std::exchange(enqueueing, &queue)) {}

AheadOfPending::~AheadOfPending() {
  enqueueing = outer_;
}

void KernelArguments::throw_too_large() {
  throw Error("a launch of more than " + std::to_string(kMaxArguments) +
              " arguments or " + std::to_string(kMaxBytes) + " bytes of them");
}

void KernelArguments::add_written(const void* address) {
  if (written_count_ == kMaxWritten) {
    throw Error("a launch of more than " + std::to_string(kMaxWritten) +
                " arguments that are written");
  }
  written_[written_count_++] = address;
}

void KernelArguments::append(const KernelArguments& arguments) {
  for (uint32_t i = 0; i < arguments.count_; ++i) {
    const size_t begin = arguments.begins_[i];
    const size_t size = arguments.begins_[i + 1] - begin;
    std::memcpy(place(size), arguments.bytes_.data() + begin, size);
    uses_[count_ - 1] = arguments.uses_[i];
  }
  for (uint32_t i = 0; i < arguments.written_count_; ++i) {
    add_written(arguments.written_[i]);
  }
}

void KernelArguments::bind(const Kernel& kernel) const {
  for (cl_uint i = 0; i < count_;) {
    if (uses_[i] != Use::kNone) {
      check_buffer(kernel, i, uses_[i] == Use::kWritten);
    }
    const size_t size = begins_[i + 1] - begins_[i];
    bind_bytes(kernel.handle, i, bytes_.data() + begins_[i], size);
  }
}

void KernelArguments::tell_written(Queue& queue) const {
  for (uint32_t i = 0; i < written_count_; ++i) {
    queue.wrote(written_[i]);
  }
}

void KernelLaunch::enqueue(Queue& queue) const {
  const std::lock_guard lock(kernel_->mutex);
  arguments_.bind(*kernel_);
  queue.launch(*kernel_, range_);
  arguments_.tell_written(queue);
}

PendingLaunch::PendingLaunch(const char* op)
    : op_(op), correlation_(Profiler::correlation()) {}

cl_command_queue Queue::share() {
  check_not_capturing();
  is_shared_ = true;
  flush_pending();
  return driver_.share();
}

void Queue::set_profiling(bool profiles) {
  flush_pending();
  driver_.set_profiling(profiles);
}

bool Queue::can_pend() const {
  return !is_shared_.load() && !config().sync && enqueueing != this;
}

// Errors belong to the op that was called, not to the one that follows: they
// are kept for the next wait.
void Queue::enqueue_pending(const PendingLaunch& launch) {
  const Queue* const outer = std::exchange(enqueueing, this);
  const uint64_t correlation = Profiler::correlation();
  Profiler::set_correlation(launch.correlation());
  try {
    launch.enqueue(*this);
  } catch (const OpenCLError& error) {
    keep_error(std::make_exception_ptr(OpenCLError(
        error.code, std::string(launch.op()) + ": " + error.what())));
  } catch (const std::exception& error) {
    keep_error(std::make_exception_ptr(
        Error(std::string(launch.op()) + ": " + error.what())));
  }
  Profiler::set_correlation(correlation);
  enqueueing = outer;
}

void Queue::keep_error(std::exception_ptr error) {
  const std::lock_guard lock(error_mutex_);
  if (error_ == nullptr) {
    error_ = std::move(error);
    has_error_.store(true, std::memory_order_release);
  }
}

void Queue::raise_kept_error() {
  if (!has_error_.load(std::memory_order_acquire)) [[likely]] {
    return;
  }
  std::exception_ptr error;
  {
    const std::lock_guard lock(error_mutex_);
    error = std::exchange(error_, nullptr);
    has_error_.store(false, std::memory_order_release);
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

void Queue::pend(std::unique_ptr<PendingLaunch> launch) {
  {
    // Destroyed without the lock: that frees memory.
    std::unique_ptr<PendingLaunch> earlier;
    const std::lock_guard lock(pending_launch_mutex_);
    earlier = std::exchange(pending_launch_, std::move(launch));
    has_pending_.store(true, std::memory_order_release);
    if (earlier != nullptr) {
      enqueue_pending(*earlier);
    }
  }
  if (is_shared_.load()) {  // since the caller asked
    flush_pending();
  }
}

bool Queue::join_pending(const std::function<bool(PendingLaunch&)>& join) {
  if (!has_pending() || enqueueing == this) {
    return false;
  }
  const std::lock_guard lock(pending_launch_mutex_);
  return pending_launch_ != nullptr && join(*pending_launch_);
}

bool Queue::flush_pending() {
  if (!has_pending() || enqueueing == this) [[likely]] {
    return false;
  }
  std::unique_ptr<PendingLaunch> launch;  // destroyed without the lock
  const std::lock_guard lock(pending_launch_mutex_);
  launch = std::exchange(pending_launch_, nullptr);
  if (launch != nullptr) {
    enqueue_pending(*launch);
  }
  // Only now: other threads' commands come after it.
  has_pending_.store(false, std::memory_order_release);
  return launch != nullptr;
}

}  // namespace torch_opencl::runtime
