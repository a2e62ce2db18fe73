// torch_opencl._C: thin bindings; the Python package gives them their public
// names, defaults and documentation.
#include "../aten/cpu_on_purpose.h"
#include "../aten/fallback.h"
#include "../aten/solver.h"
#include "../device/allocator.h"
#include "../device/fork.h"
#include "../device/guard.h"
#include "../device/hooks.h"
#include "../device/host_allocator.h"
#include "../device/replayed_memory.h"
#include "../device/stream.h"
#include "../runtime/caching_allocator.h"
#include "../runtime/config.h"
#include "../runtime/disk_cache.h"
#include "../runtime/host_memory.h"
#include "../runtime/host_wait.h"
#include "../runtime/profiler.h"
#include "../runtime/program_cache.h"
#include "compiled_kernels.h"
#include "cuda_names.h"
#include "distributed.h"
#include "memory_history.h"
#include "user_kernels.h"

#include <ATen/Context.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

namespace py = pybind11;

namespace torch_opencl {

namespace {

using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

py::list solver_measurements() {
  py::list result;
  for (const aten::SolverMeasurement& measurement :
       aten::solver_measurements()) {
    py::dict row;
    row["device"] = measurement.device;
    row["problem"] = measurement.problem;
    row["fastest"] = measurement.fastest;
    py::dict seconds;
    for (const auto& [name, value] : measurement.seconds) {
      seconds[py::str(name)] = value;
    }
    row["seconds"] = seconds;
    result.append(row);
  }
  return result;
}

// Level, name, numbers and choices of each entry.
using TuningRow = std::tuple<std::string,
                             std::string,
                             std::map<std::string, double>,
                             std::map<std::string, std::string>>;
void add_tuning(const std::vector<TuningRow>& rows) {
  std::vector<runtime::TuningEntry> entries;
  for (const auto& [level, name, numbers, choices] : rows) {
    entries.push_back({runtime::tuning_level(level),
                       name,
                       {numbers.begin(), numbers.end()},
                       {choices.begin(), choices.end()}});
  }
  runtime::add_tuning(entries);
}

// Numbers and choices.
py::tuple tuning(int device_index) {
  const runtime::Tuning& known = *runtime::device(device_index).info().tuning;
  return py::make_tuple(runtime::named(known.numbers), known.choices);
}

void initialize() {
  torch::utils::register_fork_handler_for_device_init(at::kPrivateUse1);
  at::globalContext().lazyInitDevice(at::kPrivateUse1);
}

bool is_in_bad_fork() {
  return device::forked_after_use.load() ||
         torch::utils::is_device_in_bad_fork(at::kPrivateUse1);
}

py::object default_generator(int device_index) {
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(
      at::globalContext().defaultGenerator(c10::Device(
          at::kPrivateUse1, static_cast<c10::DeviceIndex>(device_index)))));
}

py::dict device_info(int device_index) {
  const runtime::DeviceInfo& info = runtime::device(device_index).info();
  py::dict result;
  result["name"] = info.name;
  result["vendor"] = info.vendor;
  result["platform"] = info.platform_name;
  result["platform_version"] = info.platform_version;
  result["version"] = info.version;
  result["driver_version"] = info.driver_version;
  result["library"] = info.library;
  result["extensions"] = info.extensions;
  result["architecture"] = info.architecture;
  result["is_gpu"] = (info.type & CL_DEVICE_TYPE_GPU) != 0;
  result["device_class"] =
      info.device_class == runtime::DeviceClass::kCpu ? "cpu" : "gpu";
  result["multi_processor_count"] = info.compute_units;
  result["clock_mhz"] = info.clock_mhz;
  result["total_memory"] = info.global_memory;
  result["max_allocation"] = info.max_allocation;
  result["local_memory"] = info.local_memory;
  result["max_work_group_size"] = info.max_work_group_size;
  result["has_fp16"] = info.has_fp16;
  result["has_fp64"] = info.has_fp64;
  result["has_subgroups"] = info.has_subgroups;
  result["has_denormals"] = info.has_denormals;
  return result;
}

py::dict pool_statistics(const runtime::AllocatorStatistics& statistics,
                         runtime::AllocatorStatistics::Counter
                             runtime::AllocatorStatistics::Pool::*member) {
  const auto counter = [&](const runtime::AllocatorStatistics::Pool& pool) {
    py::dict result;
    result["current"] = (pool.*member).current;
    result["peak"] = (pool.*member).peak;
    result["allocated"] = (pool.*member).allocated;
    result["freed"] = (pool.*member).freed;
    return result;
  };
  py::dict result;
  result["all"] = counter(statistics.all);
  result["small_pool"] = counter(statistics.small_pool);
  result["large_pool"] = counter(statistics.large_pool);
  return result;
}

py::dict memory_stats(int device_index) {
  using Pool = runtime::AllocatorStatistics::Pool;
  const auto statistics = [&] {
    const py::gil_scoped_release no_gil;  // the allocator may wait for a device
    runtime::flush_pending(device_index);  // frees what it holds
    return runtime::allocator(device_index).statistics();
  }();
  py::dict result;
  const auto add = [&](const char* name, auto member) {
    result[name] = pool_statistics(statistics, member);
  };
  add("allocation", &Pool::allocation);
  add("segment", &Pool::segment);
  add("active", &Pool::active);
  add("inactive_split", &Pool::inactive_split);
  add("allocated_bytes", &Pool::allocated_bytes);
  add("reserved_bytes", &Pool::reserved_bytes);
  add("active_bytes", &Pool::active_bytes);
  add("inactive_split_bytes", &Pool::inactive_split_bytes);
  add("requested_bytes", &Pool::requested_bytes);
  result["num_alloc_retries"] = statistics.alloc_retries;
  result["num_ooms"] = statistics.out_of_memory;
  result["num_device_alloc"] = statistics.all.segment.allocated;
  result["num_device_free"] = statistics.all.segment.freed;
  return result;
}

py::dict host_memory_stats() {
  const auto statistics = device::host_allocator()->get_stats();
  py::dict result;
  const auto add = [&](const char* name,
                       const c10::CachingAllocator::Stat& stat) {
    py::dict metrics;
    metrics["current"] = stat.current;
    metrics["peak"] = stat.peak;
    metrics["allocated"] = stat.allocated;
    metrics["freed"] = stat.freed;
    result[name] = metrics;
  };
  add("allocations", statistics.allocations);
  add("allocated_bytes", statistics.allocated_bytes);
  add("active_requests", statistics.active_requests);
  add("active_bytes", statistics.active_bytes);
  result["num_host_alloc"] = statistics.num_host_alloc;
  result["num_host_free"] = statistics.num_host_free;
  return result;
}

// The op whose launch is pending on the current stream, if any.
std::optional<std::string> pending_op(int device_index) {
  std::optional<std::string> op;
  device::current_queue(device_index)
      .join_pending([&op](runtime::PendingLaunch& pending) {
        op = pending.op();
        return false;
      });
  return op;
}

// `flush`: the pending launch gives back what it holds first. A driver that
// asks while it is called must not: the queue's lock is taken.
py::list memory_snapshot(int device_index, bool flush) {
  const auto segments = [&] {
    const py::gil_scoped_release no_gil;
    if (flush) {
      runtime::flush_pending(device_index);
    }
    return runtime::allocator(device_index).snapshot();
  }();
  py::list result;
  for (const auto& segment : segments) {
    py::list blocks;
    uint64_t active_bytes = 0;
    for (const auto& block : segment.blocks) {
      py::dict entry;
      entry["address"] = block.address;
      entry["size"] = block.bytes;
      entry["requested_size"] = block.requested_bytes;
      entry["state"] = block.allocated ? "active_allocated"
                       : block.active  ? "active_awaiting_free"
                                       : "inactive";
      active_bytes += block.active ? block.bytes : 0;
      blocks.append(entry);
    }
    py::dict entry;
    entry["device"] = device_index;
    entry["address"] = segment.address;
    entry["total_size"] = segment.bytes;
    entry["allocated_size"] = segment.allocated_bytes;
    entry["active_size"] = active_bytes;
    entry["stream"] = segment.stream_id;
    entry["segment_type"] = segment.is_small ? "small" : "large";
    entry["blocks"] = blocks;
    result.append(entry);
  }
  return result;
}

py::dict program_cache_stats(int device_index) {
  const auto statistics = runtime::device(device_index).programs().statistics();
  py::dict result;
  result["built"] = statistics.built;
  result["loaded"] = statistics.loaded;
  result["damaged"] = statistics.damaged;
  result["build_seconds"] = statistics.build_seconds;
  return result;
}

std::vector<std::tuple<std::string, std::string, std::string>>
config_entries() {
  std::vector<std::tuple<std::string, std::string, std::string>> result;
  for (const auto& entry : runtime::config_entries()) {
    result.emplace_back(entry.name, entry.default_value, entry.description);
  }
  return result;
}

py::dict wait_stats() {
  const auto statistics = runtime::wait_statistics();
  py::dict result;
  result["clFinish"] = statistics.finishes;
  result["clWaitForEvents"] = statistics.events;
  result["blocking transfers"] = statistics.transfers;
  return result;
}

// During waits: runs the handlers of signals, and raises what they raise.
void check_interrupts() {
  if (Py_IsInitialized() == 0) {
    return;
  }
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    python_error error;
    error.persist();
    throw error;
  }
}

// Kernels launched on the current stream.
int64_t launch_count(int device_index) {
  runtime::Queue& queue = device::current_queue(device_index);
  queue.flush_pending();
  return queue.launch_count();
}

// Times of what was enqueued since _start_profiling; the caller has waited.
py::list stop_profiling() {
  py::list result;
  for (const auto& command : runtime::Profiler::instance().stop()) {
    result.append(py::make_tuple(command.name,
                                 command.device_index,
                                 command.stream_id,
                                 command.work_items,
                                 command.bytes,
                                 command.start,
                                 command.end,
                                 command.correlation));
  }
  return result;
}

void bind_profiler(py::module_& m) {
  m.def("_start_profiling",
        wrap_pybind_function([] { runtime::Profiler::instance().start(); }));
  m.def("_stop_profiling", wrap_pybind_function(&stop_profiling));
  m.def("_set_profiled_op", &runtime::Profiler::set_correlation);
}

void bind_devices(py::module_& m) {
  m.attr("_torch_version") =
      py::make_tuple(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  m.attr("_is_registered") = device::hooks_registered();
  m.def("_add_driver_prefix", &runtime::add_driver_prefix);
  m.def("_add_tuning", wrap_pybind_function(&add_tuning));
  m.def("_tuning", wrap_pybind_function(&tuning));
  m.def("_discovery_log", &runtime::discovery_log);
  m.def("_config_entries", &config_entries);
  m.def("_cache_directory", &runtime::default_cache_directory);
  m.def("_init", wrap_pybind_function(&initialize));
  m.def("_is_in_bad_fork", &is_in_bad_fork);
  m.def("_device_count", [] { return int{device::GuardImpl().deviceCount()}; });
  m.def("_device_info", wrap_pybind_function(&device_info));
  m.def("_has_context", wrap_pybind_function([](int device_index) {
          return runtime::device(device_index).has_context();
        }));
  m.def("_current_device", &device::current_device);
  m.def("_exchange_device", wrap_pybind_function([](int device_index) {
          return device_index < 0 ? -1 : device::exchange_device(device_index);
        }));
  m.def("_synchronize", wrap_pybind_function_no_gil([](int device_index) {
          device::GuardImpl().synchronizeDevice(
              static_cast<c10::DeviceIndex>(device_index));
        }));
  m.def("_default_generator", wrap_pybind_function(&default_generator));
  m.def("_program_cache_stats", wrap_pybind_function(&program_cache_stats));
  m.def("_launch_count", wrap_pybind_function(&launch_count));
  m.def("_pending_op", wrap_pybind_function(&pending_op));
  m.def("_is_current_stream_capturing", wrap_pybind_function([] {
          return device::current_queue(-1).capturing() != nullptr;
        }));
  m.def("_wait_stats", &wait_stats);
  runtime::set_interrupt_check(&check_interrupts);
  m.def("_cpu_on_purpose", &aten::cpu_on_purpose);
  m.def("_solver_settings", [] {
    const aten::SolverSettings settings = aten::solver_settings();
    return py::make_tuple(settings.measures, settings.only);
  });
  m.def("_set_solver_settings", [](bool measures, const std::string& only) {
    aten::set_solver_settings({measures, only});
  });
  m.def("_solver_measurements", &solver_measurements);
  m.def("_fallback_stats", &aten::fallback_stats);
  m.def("_reset_fallback_stats", &aten::reset_fallback_stats);
}

void bind_memory(py::module_& m) {
  m.def("_memory_stats", wrap_pybind_function(&memory_stats));
  m.def("_memory_snapshot", wrap_pybind_function(&memory_snapshot));
  m.def("_mem_get_info", wrap_pybind_function_no_gil([](int device_index) {
          return device::allocator()->getMemoryInfo(
              static_cast<c10::DeviceIndex>(device_index));
        }));
  m.def("_available_host_memory", &runtime::available_host_memory);
  m.def("_empty_cache",
        wrap_pybind_function_no_gil([] { device::allocator()->emptyCache(); }));
  m.def("_reset_peak_memory_stats",
        wrap_pybind_function_no_gil([](int device_index) {
          runtime::allocator(device_index).reset_peak_statistics();
        }));
  m.def("_reset_accumulated_memory_stats",
        wrap_pybind_function_no_gil([](int device_index) {
          runtime::allocator(device_index).reset_accumulated_statistics();
        }));
  m.def("_set_memory_fraction",
        wrap_pybind_function_no_gil([](double fraction, int device_index) {
          runtime::allocator(device_index).set_memory_fraction(fraction);
        }));
  m.def("_host_memory_stats", wrap_pybind_function(&host_memory_stats));
  m.def("_reset_peak_host_memory_stats", wrap_pybind_function([] {
          device::host_allocator()->reset_peak_stats();
        }));
  m.def("_reset_accumulated_host_memory_stats", wrap_pybind_function([] {
          device::host_allocator()->reset_accumulated_stats();
        }));
  m.def("_memory_limit", wrap_pybind_function_no_gil([](int device_index) {
          return runtime::allocator(device_index).limit();
        }));
  m.def("_new_graph_pool", wrap_pybind_function_no_gil([](int device_index) {
          return runtime::allocator(device_index).new_pool();
        }));
  m.def("_kept_results", wrap_pybind_function(&device::kept_results));
  m.def("_take_memory", wrap_pybind_function(&device::take_memory));
  m.def("_follow_stream", wrap_pybind_function_no_gil(&device::follow_stream));
}

}  // namespace

}  // namespace torch_opencl

PYBIND11_MODULE(_C, m) {
  torch_opencl::bind_devices(m);
  torch_opencl::bind_memory(m);
  torch_opencl::bind_profiler(m);
  torch_opencl::bind_user_kernels(m);
  torch_opencl::bind_cuda_names(m);
  torch_opencl::bind_distributed(m);
  torch_opencl::bind_memory_history(m);
  torch_opencl::bind_compiled_kernels(m);
}
