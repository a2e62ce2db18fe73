// Work that waits in a queue for what may join its launch.
#include "config.h"
#include "queue.h"

#include <utility>

namespace torch_opencl::runtime {

namespace {

// The queue whose deferred work this thread enqueues, which is not ahead of
// itself.
thread_local const Queue* enqueuing = nullptr;

}  // namespace

void Queue::enqueue_now(Deferred& deferred) {
  const Queue* outer = std::exchange(enqueuing, this);
  try {
    deferred.enqueue(*this);
  } catch (...) {
    enqueuing = outer;
    throw;
  }
  enqueuing = outer;
}

cl_command_queue Queue::share() {
  is_shared_ = true;
  enqueue_deferred();
  return handle_;
}

bool Queue::can_defer() const {
  return !is_shared_.load() && !config().sync;
}

void Queue::defer(const Add& add) {
  {
    std::unique_ptr<Deferred> earlier;  // destroyed without the lock
    const std::lock_guard lock(deferred_mutex_);
    std::unique_ptr<Deferred> next = add(deferred_.get());
    if (next != nullptr) {
      earlier = std::exchange(deferred_, std::move(next));
      has_deferred_.store(true, std::memory_order_release);
      if (earlier != nullptr) {
        enqueue_now(*earlier);
      }
    }
  }
  if (is_shared_.load()) {  // since the caller asked
    enqueue_deferred();
  }
}

bool Queue::enqueue_deferred() {
  if (!has_deferred() || enqueuing == this) [[likely]] {
    return false;
  }
  std::unique_ptr<Deferred> deferred;  // destroyed without the lock
  const std::lock_guard lock(deferred_mutex_);
  std::swap(deferred, deferred_);
  try {
    if (deferred != nullptr) {
      enqueue_now(*deferred);
    }
  } catch (...) {
    has_deferred_.store(false, std::memory_order_release);
    throw;
  }
  has_deferred_.store(false, std::memory_order_release);
  return deferred != nullptr;
}

}  // namespace torch_opencl::runtime
