#include "profiler.h"

#include "error.h"
#include "queue.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

namespace torch_opencl::runtime {
namespace {

thread_local uint64_t current_correlation = 0;

int64_t system_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t time_of(cl_event event, cl_profiling_info what) {
  cl_ulong time = 0;
  OPENCL_CHECK(
      api().clGetEventProfilingInfo(event, what, sizeof(time), &time, nullptr));
  return time;
}

// A queue that cannot change goes on: it is only slower.
void stop_profiling_queues() {
  try {
    set_profiling(false);
  } catch (const Error& error) {
    std::fprintf(stderr, "opencl: queues still profile: %s\n", error.what());
  }
}

}  // namespace

Profiler& Profiler::instance() {
  // Never destroyed: a driver's thread may outlive static destructors.
  static auto* instance = new Profiler();
  return *instance;
}

void Profiler::start() {
  const std::lock_guard lock(mutex_);
  if (active()) {
    throw Error("opencl commands are being profiled already");
  }
  try {
    set_profiling(true);
  } catch (...) {
    stop_profiling_queues();
    throw;
  }
  active_.store(true);
}

std::vector<CommandTime> Profiler::stop() {
  std::vector<Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    active_.store(false);
    pending = std::exchange(pending_, {});
  }
  stop_profiling_queues();
  std::vector<CommandTime> result;
  result.reserve(pending.size());
  std::string failure;
  for (Pending& entry : pending) {
    try {
      // Another thread may have enqueued it after the caller waited.
      OPENCL_CHECK(api().clWaitForEvents(1, &entry.event));
      entry.command.queued = time_of(entry.event, CL_PROFILING_COMMAND_QUEUED);
      entry.command.start = time_of(entry.event, CL_PROFILING_COMMAND_START);
      entry.command.end = time_of(entry.event, CL_PROFILING_COMMAND_END);
      result.push_back(entry.command);
    } catch (const Error& error) {
      failure = std::string(entry.command.name) + ": " + error.what();
    }
    log_opencl_error(api().clReleaseEvent(entry.event), "clReleaseEvent");
  }
  if (!failure.empty()) {
    throw Error("no time of a command that was profiled, " + failure);
  }
  return result;
}

void Profiler::add(cl_event event, const CommandTime& command) {
  const std::lock_guard lock(mutex_);
  if (!active()) {
    // stop() came between the enqueue and here.
    log_opencl_error(api().clReleaseEvent(event), "clReleaseEvent");
    return;
  }
  pending_.push_back({event, command});
  pending_.back().command.enqueued = system_time();
  pending_.back().command.correlation = current_correlation;
}

void Profiler::set_correlation(uint64_t correlation) {
  current_correlation = correlation;
}

uint64_t Profiler::correlation() {
  return current_correlation;
}

std::vector<int64_t> clock_offsets(const std::vector<CommandTime>& commands) {
  std::map<int, int64_t> of_device;
  for (const CommandTime& command : commands) {
    const int64_t offset =
        command.enqueued - static_cast<int64_t>(command.queued);
    const auto [entry, is_first] =
        of_device.try_emplace(command.device_index, offset);
    entry->second = std::min(entry->second, offset);
  }
  std::vector<int64_t> result;
  result.reserve(commands.size());
  for (const CommandTime& command : commands) {
    result.push_back(of_device.at(command.device_index));
  }
  return result;
}

}  // namespace torch_opencl::runtime
