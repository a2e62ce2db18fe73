// Waits of the host that a user can interrupt. A driver's wait cannot be left,
// so a helper thread makes the long ones while the waiting thread looks, every
// 50 ms, whether to go on. Handing over takes some 20 us, so waits that are
// known to be short are left to the driver.
#pragma once

#include "api.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace torch_opencl::runtime {

class Queue;

// Called on the process's main thread during waits; throws to end the wait.
using InterruptCheck = void (*)();
void set_interrupt_check(InterruptCheck check);

// True where there is a check and this thread is the main one.
bool can_interrupt();

// clWaitForEvents of one event, with checks where they are possible. No lock
// may be held that the check could need: Python's takes the interpreter's.
cl_int wait_for_event(cl_event event);

// What a queue was given since the main thread last waited for it: kernels and
// copies that were all seen to take milliseconds at most, at no smaller size,
// are a short wait. Adding is thread-safe; the rest is the main thread's.
class EnqueuedWork {
 public:
  void add(const char* name, uint64_t size) noexcept;
  static constexpr uint64_t kUnknownSize = ~uint64_t{0};

  bool is_short() const noexcept;
  void finished() noexcept;  // all of it: learns how long it took at most

 private:
  struct Command {
    std::atomic<const char*> name{nullptr};
    std::atomic<uint64_t> size{0};
  };
  static constexpr uint32_t kMostCommands = 256;
  std::atomic<uint32_t> count_{0};
  std::atomic<int64_t> started_{0};  // nanoseconds, of the first command
  std::array<Command, kMostCommands> commands_;
};
EnqueuedWork& enqueued_work(const Queue& queue);

// Around a wait for a queue in the driver. What fails in the first is the
// driver's to report, in the wait that follows. Nothing unless `waits`.
void begin_wait(Queue& queue, bool waits = true);
void end_wait(const Queue& queue, bool waits = true);

}  // namespace torch_opencl::runtime
