// torch.profiler: device times of commands, linked to the ops that enqueued
// them.
//
// Kineto, which collects the events of torch.profiler, takes a plugin for
// PrivateUse1. Without kineto torch.autograd.profiler times ops by events.
#define USE_KINETO 1
#define FMT_HEADER_ONLY 1  // torch exports no fmt

#include "device.h"
#include "guard.h"

#include "../runtime/device.h"
#include "../runtime/profiler.h"

#include <c10/core/Event.h>
#include <c10/util/ApproximateClock.h>
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace torch_opencl::device {

namespace {

using libkineto::ActivityType;

void for_each_used_device(const std::function<void(int)>& function) {
  for (int index = 0; index < runtime::device_count(); ++index) {
    if (runtime::device(index).has_context()) {
      function(index);
    }
  }
}

void synchronize_used_devices() {
  for_each_used_device([](int index) {
    GuardImpl().synchronizeDevice(static_cast<c10::DeviceIndex>(index));
  });
}

ActivityType activity_of(const runtime::CommandTime& command) {
  if (command.work_items > 0) {
    return ActivityType::CONCURRENT_KERNEL;
  }
  return std::string(command.name).find("Fill") != std::string::npos
             ? ActivityType::GPU_MEMSET
             : ActivityType::GPU_MEMCPY;
}

// The ops that run on a thread, the innermost last.
thread_local std::vector<uint64_t> ops;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    begin_ = c10::getTime();
    try {
      runtime::Profiler::instance().start();
      is_recording_ = true;
      status_ = libkineto::TraceStatus::RECORDING;
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  void stop() override {
    if (is_recording_) {
      try {
        synchronize_used_devices();
        commands_ = runtime::Profiler::instance().stop();
        status_ = libkineto::TraceStatus::PROCESSING;
      } catch (const std::exception& error) {
        fail(error);
      }
      is_recording_ = false;
    }
    end_ = c10::getTime();
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, begin_, end_);
  }

  void processTrace(libkineto::ActivityLogger& logger,
                    libkineto::getLinkedActivityCallback linked_activity,
                    int64_t /*start*/,
                    int64_t /*end*/) override {
    buffer_->span = libkineto::TraceSpan(begin_, end_, "opencl");
    buffer_->gpuOpCount = static_cast<int>(commands_.size());
    const std::vector<int64_t> offsets = runtime::clock_offsets(commands_);
    for (size_t i = 0; i < commands_.size(); ++i) {
      const runtime::CommandTime& command = commands_[i];
      buffer_->emplace_activity(
          buffer_->span, activity_of(command), std::string(command.name));
      libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
      activity.startTime = static_cast<int64_t>(command.start) + offsets[i];
      activity.endTime = static_cast<int64_t>(command.end) + offsets[i];
      activity.device = command.device_index;
      activity.resource = static_cast<int32_t>(command.stream_id);
      activity.id = static_cast<int32_t>(command.correlation);
      if (linked_activity && command.correlation != 0) {
        activity.linked =
            linked_activity(static_cast<int32_t>(command.correlation));
      }
      activity.addMetadata("stream", command.stream_id);
      if (command.work_items > 0) {
        activity.addMetadata("work items", command.work_items);
      } else {
        activity.addMetadata("bytes", command.bytes);
      }
      activity.log(logger);
    }
    commands_.clear();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(
        libkineto::DeviceInfo{0, 0, "opencl", "OpenCL devices"});
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::set<std::pair<int, int64_t>> streams;
    for (const runtime::CommandTime& command : commands_) {
      streams.emplace(command.device_index, command.stream_id);
    }
    std::vector<libkineto::ResourceInfo> result;
    for (const auto& [device_index, stream_id] : streams) {
      result.push_back({stream_id,
                        stream_id,
                        device_index,
                        "stream " + std::to_string(stream_id)});
    }
    return result;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    ops.push_back(id);
    runtime::Profiler::set_correlation(id);
  }

  void popCorrelationId() override {
    if (!ops.empty()) {
      ops.pop_back();
    }
    runtime::Profiler::set_correlation(ops.empty() ? 0 : ops.back());
  }

 private:
  void fail(const std::exception& error) {
    errors_.push_back(std::string("opencl: ") + error.what());
    status_ = libkineto::TraceStatus::ERROR;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
  std::vector<runtime::CommandTime> commands_;
  std::vector<std::string> errors_;
  bool is_recording_ = false;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

class ActivityProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "opencl";
    return name;
  }

  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types = {
        ActivityType::CONCURRENT_KERNEL,
        ActivityType::GPU_MEMCPY,
        ActivityType::GPU_MEMSET,
    };
    return types;
  }

  // Null where only the CPU is profiled.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted,
      const libkineto::Config& /*config*/) override {
    const auto& available = availableActivities();
    const bool is_wanted =
        std::any_of(wanted.begin(), wanted.end(), [&](ActivityType type) {
          return available.contains(type);
        });
    return is_wanted ? std::make_unique<Session>() : nullptr;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*start*/,
      int64_t /*duration*/,
      const std::set<ActivityType>& wanted,
      const libkineto::Config& config) override {
    return configure(wanted, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(ActivityProfiler);

// For use_kineto=False: events around each op, in microseconds.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex* device_index,
              Event* event,
              int64_t* cpu_ns) const override {
    const auto index = static_cast<c10::DeviceIndex>(current_device());
    if (device_index != nullptr) {
      *device_index = index;
    }
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
    auto recorded = std::make_shared<c10::Event>(
        c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
    recorded->record(GuardImpl().getStream(
        c10::Device(c10::DeviceType::PrivateUse1, index)));
    *event = std::move(recorded);
  }

  float elapsed(const Event* begin, const Event* end) const override {
    const auto& first = *static_cast<const c10::Event*>(begin->get());
    const auto& last = *static_cast<const c10::Event*>(end->get());
    last.synchronize();
    return static_cast<float>(first.elapsedTime(last) * 1e3);
  }

  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> function) const override {
    for_each_used_device(function);
  }
  void synchronize() const override { synchronize_used_devices(); }
};

[[maybe_unused]] const bool are_stubs_registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

}  // namespace

}  // namespace torch_opencl::device
