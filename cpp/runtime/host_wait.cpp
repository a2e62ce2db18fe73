#include "host_wait.h"

#include "error.h"
#include "guard_bands.h"
#include "queue.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace torch_opencl::runtime {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{50};
// What took longer, from the first command to the end of the wait, teaches
// nothing; what may take longer in all is no short wait.
constexpr int64_t kLongestLearned = 5'000'000;
constexpr int64_t kLongestShort = 100'000'000;

std::atomic<InterruptCheck> interrupt_check{nullptr};

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Waits for one event after another. Deleted by its thread, after the wait that
// it was abandoned in.
class Helper {
 public:
  Helper() {
    // Signals are for the threads of the program.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { run(); }).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  Helper(const Helper&) = delete;

  void start(cl_event event) {
    const std::lock_guard lock(mutex_);
    event_ = event;
    changed_.notify_all();
  }
  bool is_finished_within(milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return event_ == nullptr; });
  }
  cl_int code() {
    const std::lock_guard lock(mutex_);
    return code_;
  }
  void abandon() {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    changed_.notify_all();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [this] { return event_ != nullptr || is_abandoned_; });
      if (event_ == nullptr) {
        break;
      }
      const cl_event event = event_;
      lock.unlock();
      const cl_int code = api().clWaitForEvents(1, &event);
      log_opencl_error(api().clReleaseEvent(event), "clReleaseEvent");
      lock.lock();
      event_ = nullptr;
      code_ = code;
      changed_.notify_all();
    }
    delete this;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  cl_event event_ = nullptr;
  cl_int code_ = CL_SUCCESS;
  bool is_abandoned_ = false;
};

// What commands of a name were seen to take, at most, at up to a size.
class KnownTimes {
 public:
  // True, with the time in `nanoseconds`, where that is known.
  bool find(const char* name, uint64_t size, int64_t& nanoseconds) const {
    const Row& row = rows_[place_of(name)];
    nanoseconds = row.nanoseconds;
    return row.name == name && size <= row.size;
  }
  void add(const char* name, uint64_t size, int64_t nanoseconds) {
    Row& row = rows_[place_of(name)];
    if (row.name != name || size > row.size) {
      row = {name, size, nanoseconds};
    } else if (size == row.size) {
      row.nanoseconds = std::min(row.nanoseconds, nanoseconds);
    }
  }

 private:
  struct Row {
    const char* name = nullptr;
    uint64_t size = 0;
    int64_t nanoseconds = 0;
  };
  static constexpr size_t kRows = 1024;
  // Names that share a place replace each other.
  static size_t place_of(const char* name) {
    const auto address = reinterpret_cast<uintptr_t>(name);
    return (address * 0x9E3779B97F4A7C15ull) >> 54;
  }
  std::array<Row, kRows> rows_;
};

// The main thread's.
KnownTimes known_times;
Helper* idle_helper = nullptr;

}  // namespace

void set_interrupt_check(InterruptCheck check) {
  interrupt_check = check;
}

bool can_interrupt() {
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  return is_main && interrupt_check.load(std::memory_order_relaxed) != nullptr;
}

cl_int wait_for_event(cl_event event) {
  if (!can_interrupt()) {
    return api().clWaitForEvents(1, &event);
  }
  Helper* helper = std::exchange(idle_helper, nullptr);
  if (helper == nullptr) {
    helper = new Helper;
  }
  const cl_int code = api().clRetainEvent(event);
  if (code == CL_SUCCESS) {
    helper->start(event);
    try {
      while (!helper->is_finished_within(kCheckInterval)) {
        interrupt_check.load()();
      }
    } catch (...) {
      helper->abandon();
      throw;
    }
  }
  idle_helper = helper;
  return code == CL_SUCCESS ? helper->code() : code;
}

void EnqueuedWork::add(const char* name, uint64_t size) noexcept {
  if (count_.load(std::memory_order_relaxed) > kMostCommands) [[likely]] {
    return;
  }
  const uint32_t place = count_.fetch_add(1, std::memory_order_relaxed);
  if (place == 0) {
    started_.store(now(), std::memory_order_relaxed);
  }
  if (place < kMostCommands) {
    commands_[place].name.store(name, std::memory_order_relaxed);
    commands_[place].size.store(size, std::memory_order_relaxed);
  }
}

bool EnqueuedWork::is_short() const noexcept {
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (count > kMostCommands) {
    return false;
  }
  int64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    int64_t time = 0;
    if (!known_times.find(commands_[i].name.load(std::memory_order_relaxed),
                          commands_[i].size.load(std::memory_order_relaxed),
                          time)) {
      return false;
    }
    total += time;
  }
  return total <= kLongestShort;
}

void EnqueuedWork::finished() noexcept {
  const uint32_t count = count_.exchange(0, std::memory_order_relaxed);
  const int64_t time = now() - started_.load(std::memory_order_relaxed);
  if (count > kMostCommands || time > kLongestLearned) {
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t size = commands_[i].size.load(std::memory_order_relaxed);
    if (size != kUnknownSize) {
      known_times.add(
          commands_[i].name.load(std::memory_order_relaxed), size, time);
    }
  }
}

EnqueuedWork& enqueued_work(const Queue& queue) {
  // Pages of queues that do not exist are never touched.
  static std::array<std::array<EnqueuedWork, kStreamsPerPool + 1>, 64> table;
  return table.at(queue.device().index()).at(queue.stream_id());
}

void begin_wait(Queue& queue, bool waits) {
  if (waits && can_interrupt() && !enqueued_work(queue).is_short()) {
    // Some drivers tell of a failed command here, and not in the call that
    // follows.
    const cl_int code = wait_for_event(queue.record_enqueued().handle());
    if (code != CL_SUCCESS) {
      throw_opencl_error(code, "clWaitForEvents", __FILE__, __LINE__);
    }
  }
}

void end_wait(const Queue& queue, bool waits) {
  if (waits && can_interrupt()) {
    enqueued_work(queue).finished();
  }
  if (waits) {
    check_guards();
  }
}

}  // namespace torch_opencl::runtime
