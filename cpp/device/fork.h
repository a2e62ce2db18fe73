// OpenCL drivers do not survive fork(): a child of a process that has used a
// device, or in which a driver has started threads, must not use one, and says
// so instead of hanging.
#pragma once

#include <atomic>

namespace torch_opencl::device {

// At every use of a device that may be the first.
void mark_used() noexcept;

extern std::atomic<bool> forked_after_use;

[[noreturn]] void throw_forked();

// Cheap: on the path of every launch and allocation.
inline void check_not_forked() {
  if (forked_after_use.load(std::memory_order_relaxed)) [[unlikely]] {
    throw_forked();
  }
}

}  // namespace torch_opencl::device
