#include "memory_history.h"

#include "../device/allocator.h"
#include "../runtime/caching_allocator.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using Traceback = std::shared_ptr<torch::CapturedTraceback>;

struct Entry {
  const char* action;  // as torch.cuda.memory._snapshot names them
  int device_index;
  uint64_t address;
  uint64_t bytes;
  int64_t stream_id;
  int64_t microseconds;
  uint64_t device_free;  // of "oom"
  Traceback traceback;
};

struct Settings {
  bool keeps_entries = false;
  bool traces_live = false;  // tracebacks of allocations that still live
  bool traces_allocations = false;
  bool traces_frees = false;
  bool has_cpp_frames = false;
  size_t most_entries = 0;
};

class History final : public device::AllocationObserver {
 public:
  void start(const Settings& settings, bool clears) {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
    if (clears) {
      entries_.clear();
    }
  }

  void allocated(int device_index,
                 uint64_t address,
                 uint64_t bytes,
                 int64_t stream_id) override {
    const Settings settings = this->settings();
    Traceback traceback;
    if (settings.traces_allocations || settings.traces_live) {
      traceback = gather(settings);
    }
    const std::lock_guard lock(mutex_);
    live_[address] = {stream_id, settings.traces_live ? traceback : nullptr};
    add({"alloc",
         device_index,
         address,
         bytes,
         stream_id,
         c10::getTime() / 1000,
         0,
         settings.traces_allocations ? traceback : nullptr});
  }

  // A block that other streams use is reused later than this says.
  void freed(int device_index, uint64_t address, uint64_t bytes) override {
    const Settings settings = this->settings();
    const Traceback traceback =
        settings.traces_frees ? gather(settings) : nullptr;
    const std::lock_guard lock(mutex_);
    int64_t stream_id = 0;
    if (const auto found = live_.find(address); found != live_.end()) {
      stream_id = found->second.stream_id;
      live_.erase(found);
    }
    const int64_t now = c10::getTime() / 1000;
    for (const char* action : {"free_requested", "free_completed"}) {
      add({action, device_index, address, bytes, stream_id, now, 0, traceback});
    }
  }

  void out_of_memory(int device_index, uint64_t bytes) override {
    const Settings settings = this->settings();
    const auto memory = device::allocator()->getMemoryInfo(
        static_cast<c10::DeviceIndex>(device_index));
    const Traceback traceback = gather(settings);
    const std::lock_guard lock(mutex_);
    add({"oom",
         device_index,
         0,
         bytes,
         0,
         c10::getTime() / 1000,
         memory.first,
         traceback});
  }

  std::vector<Entry> entries() {
    const std::lock_guard lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }

  // By the address that the tensor has.
  std::vector<std::pair<uint64_t, Traceback>> live() {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<uint64_t, Traceback>> result;
    for (const auto& [address, block] : live_) {
      if (block.traceback) {
        result.emplace_back(address, block.traceback);
      }
    }
    return result;
  }

 private:
  struct Live {
    int64_t stream_id;
    Traceback traceback;
  };

  Settings settings() {
    const std::lock_guard lock(mutex_);
    return settings_;
  }

  // Without the lock: it may wait for the interpreter's.
  static Traceback gather(const Settings& settings) {
    return torch::CapturedTraceback::gather(
        true, true, settings.has_cpp_frames);
  }

  void add(Entry entry) {
    if (!settings_.keeps_entries) {
      return;
    }
    if (entries_.size() >= settings_.most_entries) {
      entries_.pop_front();
    }
    entries_.push_back(std::move(entry));
  }

  std::mutex mutex_;
  Settings settings_;
  std::deque<Entry> entries_;
  std::unordered_map<uint64_t, Live> live_;
};

History& history() {
  // Never destroyed: tensors may be freed after static destructors have run.
  static auto* instance = new History();
  return *instance;
}

// Frames of every traceback as torch.cuda has them; each frame one object.
std::vector<py::list> frames_of(const std::vector<Traceback>& tracebacks) {
  std::vector<torch::CapturedTraceback*> wanted;
  for (const Traceback& traceback : tracebacks) {
    if (traceback) {
      wanted.push_back(traceback.get());
    }
  }
  std::vector<py::object> frames;
  torch::SymbolizedTracebacks symbolized;
  if (!wanted.empty()) {
    symbolized = torch::symbolize(wanted);
  }
  for (const auto& frame : symbolized.all_frames) {
    py::dict entry;
    entry["filename"] = frame.filename;
    entry["name"] = frame.funcname;
    entry["line"] = frame.lineno;
    frames.push_back(std::move(entry));
  }
  std::vector<py::list> result;
  size_t next = 0;
  for (const Traceback& traceback : tracebacks) {
    py::list list;
    if (traceback) {
      for (const uint64_t index : symbolized.tracebacks.at(next++)) {
        list.append(frames.at(index));
      }
    }
    result.push_back(std::move(list));
  }
  return result;
}

py::list entries() {
  const std::vector<Entry> all = history().entries();
  std::vector<Traceback> tracebacks;
  for (const Entry& entry : all) {
    tracebacks.push_back(entry.traceback);
  }
  const std::vector<py::list> frames = frames_of(tracebacks);
  py::list result;
  for (size_t i = 0; i < all.size(); ++i) {
    py::dict row;
    row["action"] = all[i].action;
    row["device"] = all[i].device_index;
    const bool is_oom = std::string(all[i].action) == "oom";
    row[is_oom ? "device_free" : "addr"] =
        is_oom ? all[i].device_free : all[i].address;
    row["size"] = all[i].bytes;
    row["stream"] = all[i].stream_id;
    row["time_us"] = all[i].microseconds;
    row["frames"] = frames[i];
    result.append(row);
  }
  return result;
}

py::dict live_frames() {
  const auto live = history().live();
  std::vector<Traceback> tracebacks;
  for (const auto& [address, traceback] : live) {
    tracebacks.push_back(traceback);
  }
  const std::vector<py::list> frames = frames_of(tracebacks);
  py::dict result;
  for (size_t i = 0; i < live.size(); ++i) {
    result[py::int_(live[i].first)] = frames[i];
  }
  return result;
}

void record(bool active,
            bool keeps_entries,
            const std::string& context,
            bool has_cpp_frames,
            size_t most_entries,
            bool clears) {
  Settings settings;
  settings.keeps_entries = active && keeps_entries;
  settings.traces_live = !context.empty();
  settings.traces_allocations = context == "alloc" || context == "all";
  settings.traces_frees = context == "all";
  settings.has_cpp_frames = has_cpp_frames;
  settings.most_entries = most_entries;
  history().start(settings, clears);
  device::observe_allocations(active ? &history() : nullptr);
}

}  // namespace

void bind_memory_history(py::module_& m) {
  m.def("_record_memory_history", torch::wrap_pybind_function(&record));
  m.def("_memory_history", torch::wrap_pybind_function(&entries));
  m.def("_memory_live_frames", torch::wrap_pybind_function(&live_frames));
}

}  // namespace torch_opencl
