#include "fork.h"

#include "../runtime/platform.h"

#include <c10/util/Exception.h>
#include <pthread.h>

namespace torch_opencl::device {

namespace {

std::atomic<bool> used{false};

// Nothing in it may start the discovery of drivers.
void in_child() {
  if (used.load() || runtime::discovery_started_threads()) {
    forked_after_use.store(true);
  }
}

struct Registration {
  Registration() { pthread_atfork(nullptr, nullptr, &in_child); }
} registration;

}  // namespace

std::atomic<bool> forked_after_use{false};

void mark_used() noexcept {
  used.store(true, std::memory_order_relaxed);
}

void throw_forked() {
  TORCH_CHECK(false,
              "Cannot re-initialize opencl in forked subprocess. To use opencl "
              "with multiprocessing, you must use the 'spawn' start method");
}

}  // namespace torch_opencl::device
