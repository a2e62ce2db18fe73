#include "fork.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <mutex>

namespace torch_opencl::device {

std::atomic<bool> forked_after_use{false};

void register_fork_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { forked_after_use.store(true); });
  });
}

void throw_forked() {
  TORCH_CHECK(false,
              "Cannot re-initialize opencl in forked subprocess. To use opencl "
              "with multiprocessing, you must use the 'spawn' start method");
}

}  // namespace torch_opencl::device
