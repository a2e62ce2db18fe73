#include "device.h"

#include "config.h"
#include "error.h"
#include "platform.h"
#include "program_cache.h"
#include "quirks.h"

#include <algorithm>
#include <atomic>
#include <cctype>

namespace torch_opencl::runtime {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return std::tolower(c);
  });
  return text;
}

// Applies TORCH_OPENCL_DEVICES.
std::vector<DiscoveredDevice> select(std::vector<DiscoveredDevice> found,
                                     const std::string& terms,
                                     std::vector<std::string>& log) {
  if (terms.empty()) {
    return found;
  }
  std::vector<DiscoveredDevice> selected;
  std::vector<bool> taken(found.size(), false);
  for (size_t begin = 0; begin <= terms.size();) {
    const size_t comma = std::min(terms.find(',', begin), terms.size());
    std::string term = terms.substr(begin, comma - begin);
    begin = comma + 1;
    term.erase(0, term.find_first_not_of(' '));
    term.erase(term.find_last_not_of(' ') + 1);
    const bool is_index =
        !term.empty() && std::all_of(term.begin(), term.end(), [](char c) {
          return c >= '0' && c <= '9';
        });
    bool matched = false;
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string name =
          lower(found[i].info.platform_name + " / " +
                found[i].info.platform_version + " / " + found[i].info.name);
      const bool matches = is_index ? std::to_string(i) == term
                                    : !term.empty() && name.find(lower(term)) !=
                                                           std::string::npos;
      if (matches && !taken[i]) {
        taken[i] = true;
        selected.push_back(found[i]);
      }
      matched = matched || matches;
    }
    if (!matched) {
      log.push_back("TORCH_OPENCL_DEVICES: nothing matches '" + term + "'");
    }
  }
  return selected;
}

// Programs written for CUDA (torch_opencl.as_cuda) have a variable of their
// own.
std::string wanted_devices() {
  const std::string wanted = environment("TORCH_OPENCL_DEVICES");
  if (!wanted.empty() || environment("TORCH_OPENCL_AS_CUDA") != "1") {
    return wanted;
  }
  const std::string visible = environment("CUDA_VISIBLE_DEVICES");
  const bool has_indices =
      visible.find_first_not_of("0123456789, ") == std::string::npos;
  return has_indices ? visible : "";
}

struct Registry {
  std::mutex mutex;
  std::atomic<bool> is_ready{false};
  std::vector<std::string> prefixes;
  std::vector<std::string> log;
  size_t discovered = 0;  // before TORCH_OPENCL_DEVICES
  std::vector<std::unique_ptr<Device>> devices;
};

Registry& registry() {
  // Never destroyed: tensors and drivers outlive static destructors.
  static auto* instance = new Registry();
  return *instance;
}

Registry& enumerated() {
  Registry& r = registry();
  if (r.is_ready.load(std::memory_order_acquire)) {
    return r;
  }
  const std::lock_guard lock(r.mutex);
  if (!r.is_ready.load()) {
    // Read straight from the environment: a mistake in another variable must
    // not hide the devices; config() reports it at first use.
    std::vector<DiscoveredDevice> found = discover(r.prefixes, r.log);
    r.discovered = found.size();
    found = select(std::move(found), wanted_devices(), r.log);
    const std::string forced = environment("TORCH_OPENCL_DEVICE_CLASS");
    const std::string registers = environment("TORCH_OPENCL_REGISTERS");
    for (size_t i = 0; i < found.size(); ++i) {
      DeviceInfo info = std::move(found[i].info);
      if (forced == "cpu") {
        info.device_class = DeviceClass::kCpu;
      } else if (forced == "gpu") {
        info.device_class = DeviceClass::kGpu;
      }
      if (!registers.empty()) {
        info.has_avx512_registers = registers == "wide";
      }
      r.devices.push_back(std::make_unique<Device>(static_cast<int>(i),
                                                   found[i].platform,
                                                   found[i].id,
                                                   std::move(info)));
    }
    r.is_ready.store(true, std::memory_order_release);
  }
  return r;
}

}  // namespace

std::string identity_of(const DeviceInfo& info) {
  return info.platform_name + "\n" + info.platform_version + "\n" + info.name +
         "\n" + info.version + "\n" + info.driver_version +
         ((info.type & CL_DEVICE_TYPE_CPU) == 0 || info.has_avx512_registers
              ? ""
              : "\nnarrow registers") +
         compiler_setting(info);
}

Device::Device(int index,
               cl_platform_id platform,
               cl_device_id id,
               DeviceInfo info)
    : index_(index), platform_(platform), id_(id), info_(std::move(info)) {}

Device::~Device() = default;

cl_context Device::context() {
  if (cl_context ready = context_.load(std::memory_order_acquire)) {
    return ready;
  }
  const std::lock_guard lock(mutex_);
  if (context_.load() == nullptr) {
    config();  // report a bad TORCH_OPENCL_* variable before anything runs
    set_compiler_setting(info_);
    cl_int code = CL_SUCCESS;
    // No properties: a loader checks CL_CONTEXT_PLATFORM against the platforms
    // that it enumerated itself.
    cl_context created =
        api().clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) {
      throw_opencl_error(code, "clCreateContext", __FILE__, __LINE__);
    }
    context_.store(created, std::memory_order_release);
  }
  return context_.load();
}

bool Device::has_context() const {
  return context_.load() != nullptr;
}

ProgramCache& Device::programs() {
  if (ProgramCache* ready = programs_ready_.load(std::memory_order_acquire)) {
    return *ready;
  }
  const std::lock_guard lock(mutex_);
  if (programs_ == nullptr) {
    programs_ = std::make_unique<ProgramCache>(*this);
    programs_ready_.store(programs_.get(), std::memory_order_release);
  }
  return *programs_;
}

int device_count() noexcept {
  return static_cast<int>(enumerated().devices.size());
}

Device& device(int index) {
  Registry& r = enumerated();
  const int count = static_cast<int>(r.devices.size());
  if (index >= 0 && index < count) [[likely]] {
    return *r.devices[index];
  }
  if (count == 0 && r.discovered > 0) {
    throw Error("TORCH_OPENCL_DEVICES=" + wanted_devices() +
                " selects none of the " + std::to_string(r.discovered) +
                " OpenCL devices found; `python -m torch_opencl.diagnose` "
                "lists them.");
  }
  if (count == 0) {
    throw Error(
        "No OpenCL device is available. Install an OpenCL driver: your GPU "
        "vendor's, or for the CPU `pip install intel-opencl-rt "
        "intel-cmplr-lib-rt` or Debian's package pocl-opencl-icd. `python -m "
        "torch_opencl.diagnose` shows what was looked for.");
  }
  throw Error(
      "OpenCL error: invalid device ordinal: opencl:" + std::to_string(index) +
      ", but there " +
      (count == 1 ? "is 1 device (index 0)"
                  : "are " + std::to_string(count) + " devices (indices 0 to " +
                        std::to_string(count - 1) + ")"));
}

const std::vector<std::string>& discovery_log() {
  return enumerated().log;
}

void add_driver_prefix(const std::string& prefix) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (std::find(r.prefixes.begin(), r.prefixes.end(), prefix) ==
      r.prefixes.end()) {
    r.prefixes.push_back(prefix);
  }
}

}  // namespace torch_opencl::runtime
