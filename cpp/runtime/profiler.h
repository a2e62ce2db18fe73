// Device times of single commands, kept only while somebody profiles.
#pragma once

#include "api.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace torch_opencl::runtime {

struct CommandTime {
  const char* name = nullptr;  // a kernel's, or the OpenCL call
  int device_index = 0;
  int64_t stream_id = 0;
  uint64_t work_items = 0;  // 0 for copies and fills
  uint64_t bytes = 0;       // that a copy or fill writes; 0 for kernels
  uint64_t queued = 0;      // nanoseconds of the device's clock
  uint64_t start = 0;
  uint64_t end = 0;
  int64_t enqueued = 0;      // nanoseconds of the system's clock
  uint64_t correlation = 0;  // set_correlation's, of the enqueuing thread
};

// Nanoseconds to add to times of each command's device for those of the
// system's clock. A device saw a command queued before the host went on: the
// smallest difference between the two is taken, of all commands of a device.
std::vector<int64_t> clock_offsets(const std::vector<CommandTime>& commands);

class Profiler {
 public:
  static Profiler& instance();

  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Throws when it is active already: two would take each other's commands.
  void start();
  // The caller has waited for the devices, or the times are not there yet.
  std::vector<CommandTime> stop();
  // What later commands of this thread belong to: an op, by its number. A
  // pending launch keeps the number that it was made under.
  static void set_correlation(uint64_t correlation);
  static uint64_t correlation();
  // Takes the event's reference.
  void add(cl_event event, const CommandTime& command);

 private:
  struct Pending {
    cl_event event;
    CommandTime command;
  };
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  std::vector<Pending> pending_;
};

// Asks the driver for a command's event where it is wanted.
class ProfiledCommand {
 public:
  cl_event* event() {
    return Profiler::instance().active() ? &event_ : nullptr;
  }
  // Call once the command is enqueued.
  void add(const CommandTime& command) {
    if (event_ != nullptr) [[unlikely]] {
      Profiler::instance().add(event_, command);
    }
  }

 private:
  cl_event event_ = nullptr;
};

}  // namespace torch_opencl::runtime
