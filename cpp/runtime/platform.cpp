#include "platform.h"

#include "error.h"
#include "quirks.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace torch_opencl::runtime {

constinit Api detail::api_table;

namespace {

namespace fs = std::filesystem;
using Log = std::vector<std::string>;

// Libraries that Intel's runtime needs beside it and does not find by itself.
void preload_companions(const fs::path& directory) {
  for (const char* name : {"libintlc.so.5",
                           "libirng.so",
                           "libimf.so",
                           "libsvml.so",
                           "libtbb.so.12"}) {
    std::error_code error;
    if (fs::exists(directory / name, error)) {
      dlopen((directory / name).c_str(), RTLD_NOW | RTLD_GLOBAL);
    }
  }
}

void* open_library(const std::string& path, Log& log) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  log.push_back(handle != nullptr ? "loaded " + path
                                  : "cannot load " + std::string(dlerror()));
  return handle;
}

bool resolve_api(void* loader) {
  Api& table = detail::api_table;
  bool complete = true;
#define TORCH_OPENCL_RESOLVE(name)                                           \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(loader, #name)); \
  complete = complete && table.name != nullptr;
  TORCH_OPENCL_FOR_EACH_FUNCTION(TORCH_OPENCL_RESOLVE)
  const bool is_usable = complete;
  TORCH_OPENCL_FOR_EACH_NEWER_FUNCTION(TORCH_OPENCL_RESOLVE)
#undef TORCH_OPENCL_RESOLVE
  return is_usable;
}

bool load_api(const std::vector<std::string>& prefixes, Log& log) {
  std::vector<std::string> candidates = {"libOpenCL.so.1", "libOpenCL.so"};
  for (const std::string& prefix : prefixes) {
    candidates.push_back(prefix + "/lib/libOpenCL.so.1");
  }
  for (const std::string& candidate : candidates) {
    std::error_code error;
    const fs::path path(candidate);
    if (path.has_parent_path()) {
      if (!fs::exists(path, error)) {
        continue;
      }
      preload_companions(path.parent_path());
    }
    void* loader = open_library(candidate, log);
    if (loader != nullptr && resolve_api(loader)) {
      return true;
    }
  }
  log.push_back("no OpenCL loader (libOpenCL.so.1) was found");
  return false;
}

// The library an .icd file of `prefix` names. A wheel's file may carry the
// path of the machine that built it: the library then lies in <prefix>/lib.
std::string icd_library(const fs::path& icd, const std::string& prefix) {
  std::ifstream file(icd);
  std::string line;
  std::getline(file, line);
  while (!line.empty() &&
         std::isspace(static_cast<unsigned char>(line.back()))) {
    line.pop_back();
  }
  const fs::path named(line);
  std::error_code error;
  if (line.empty() || named.filename() == "libintelocl_emu.so") {
    return "";  // an FPGA emulator is no device to compute on
  }
  if (fs::exists(named, error)) {
    return line;
  }
  const fs::path beside = fs::path(prefix) / "lib" / named.filename();
  return fs::exists(beside, error) ? beside.string() : "";
}

std::vector<cl_platform_id> platforms_of_icd(const std::string& library,
                                             Log& log) {
  preload_companions(fs::path(library).parent_path());
  void* handle = open_library(library, log);
  if (handle == nullptr) {
    return {};
  }
  using GetAddress = void* (*)(const char*);
  const auto get_address = reinterpret_cast<GetAddress>(
      dlsym(handle, "clGetExtensionFunctionAddress"));
  if (get_address == nullptr) {
    return {};
  }
  using GetPlatforms = cl_int (*)(cl_uint, cl_platform_id*, cl_uint*);
  const auto get_platforms =
      reinterpret_cast<GetPlatforms>(get_address("clIcdGetPlatformIDsKHR"));
  cl_uint count = 0;
  if (get_platforms == nullptr ||
      get_platforms(0, nullptr, &count) != CL_SUCCESS) {
    return {};
  }
  std::vector<cl_platform_id> platforms(count);
  get_platforms(count, platforms.data(), nullptr);
  return platforms;
}

std::string text_of(cl_platform_id platform, cl_platform_info what) {
  size_t size = 0;
  if (api().clGetPlatformInfo(platform, what, 0, nullptr, &size) !=
      CL_SUCCESS) {
    return "";
  }
  std::string text(size, '\0');
  api().clGetPlatformInfo(platform, what, size, text.data(), nullptr);
  return text.c_str();
}

std::string text_of(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (api().clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) {
    return "";
  }
  std::string text(size, '\0');
  api().clGetDeviceInfo(device, what, size, text.data(), nullptr);
  return text.c_str();
}

template <class T>
T value_of(cl_device_id device, cl_device_info what) {
  T value{};
  api().clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

// Of this machine, whose CPU a CPU device is.
bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

// Of cl_nv_device_attribute_query and cl_intel_device_attribute_query.
constexpr cl_device_info kMajorOfNvidia = 0x4000;
constexpr cl_device_info kMinorOfNvidia = 0x4001;
constexpr cl_device_info kVersionOfIntel = 0x4250;

std::string architecture_of(cl_device_id device, const DeviceInfo& info) {
  const auto has = [&info](const char* extension) {
    return info.extensions.find(extension) != std::string::npos;
  };
  if (info.name.starts_with("gfx")) {
    return info.name.substr(0, info.name.find(':'));
  }
  if (has("cl_nv_device_attribute_query")) {
    return "sm_" + std::to_string(value_of<cl_uint>(device, kMajorOfNvidia)) +
           std::to_string(value_of<cl_uint>(device, kMinorOfNvidia));
  }
  const auto version = has("cl_intel_device_attribute_query")
                           ? value_of<cl_uint>(device, kVersionOfIntel)
                           : 0;
  if ((info.type & CL_DEVICE_TYPE_GPU) == 0 || version == 0) {
    return "";
  }
  return "xe_" + std::to_string(version >> 22) + "." +
         std::to_string(version >> 14 & 0xFF) + "." +
         std::to_string(version & 0x3FFF);
}

DeviceInfo describe(cl_platform_id platform, cl_device_id device) {
  DeviceInfo info;
  info.name = text_of(device, CL_DEVICE_NAME);
  info.vendor = text_of(device, CL_DEVICE_VENDOR);
  info.version = text_of(device, CL_DEVICE_VERSION);
  info.driver_version = text_of(device, CL_DRIVER_VERSION);
  info.extensions = text_of(device, CL_DEVICE_EXTENSIONS);
  info.platform_name = text_of(platform, CL_PLATFORM_NAME);
  info.platform_version = text_of(platform, CL_PLATFORM_VERSION);
  info.type = value_of<cl_device_type>(device, CL_DEVICE_TYPE);
  info.device_class = class_of(info);
  info.compute_units = value_of<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.clock_mhz = value_of<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  info.global_memory = value_of<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.max_allocation =
      value_of<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.local_memory = value_of<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  info.max_work_group_size =
      value_of<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  info.address_alignment =
      value_of<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  const auto has = [&info](const char* extension) {
    return (" " + info.extensions + " ")
               .find(" " + std::string(extension) + " ") != std::string::npos;
  };
  info.has_fp16 = has("cl_khr_fp16");
  info.has_fp64 =
      has("cl_khr_fp64") ||
      value_of<cl_device_fp_config>(device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  info.has_subgroups = has("cl_khr_subgroups") || has("cl_intel_subgroups");
  const auto single =
      value_of<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG);
  info.has_correctly_rounded_division =
      (single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  info.has_denormals = (single & CL_FP_DENORM) != 0;
  info.vectorizes_work_items = is_intel(info);
  info.has_avx512_registers = has_avx512();
  info.architecture = architecture_of(device, info);
  info.tuning = std::make_shared<const Tuning>(tuning_of(info));
  return info;
}

int rank(const DeviceInfo& info) {
  if ((info.type & CL_DEVICE_TYPE_GPU) != 0) {
    return 0;
  }
  if ((info.type & CL_DEVICE_TYPE_CPU) == 0) {
    return 1;
  }
  if (is_intel(info)) {
    return 2;
  }
  return is_pocl(info) ? 3 : 4;
}

void add_devices(cl_platform_id platform,
                 const std::string& library,
                 std::vector<DiscoveredDevice>& devices,
                 Log& log) {
  const std::string name = text_of(platform, CL_PLATFORM_NAME);
  // The same driver reached by a second route.
  const std::string version = text_of(platform, CL_PLATFORM_VERSION);
  for (const DiscoveredDevice& known : devices) {
    if (known.platform != platform && known.info.platform_name == name &&
        known.info.platform_version == version &&
        known.info.library != library) {
      log.push_back(name + ": already found, skipped");
      return;
    }
  }
  cl_uint count = 0;
  const cl_int code =
      api().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  if (code != CL_SUCCESS || count == 0) {
    log.push_back(name + ": no devices" +
                  (code != CL_SUCCESS
                       ? std::string(" (") + error_name(code) + ")"
                       : std::string()));
    return;
  }
  std::vector<cl_device_id> ids(count);
  api().clGetDeviceIDs(
      platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr);
  for (const cl_device_id id : ids) {
    DeviceInfo info = describe(platform, id);
    info.library = library;
    log.push_back(name + ": " + info.name);
    devices.push_back({platform, id, std::move(info)});
  }
}

void discover_all(const std::vector<std::string>& prefixes,
                  std::vector<DiscoveredDevice>& devices,
                  Log& log) {
  if (!load_api(prefixes, log)) {
    return;
  }
  cl_uint count = 0;
  api().clGetPlatformIDs(0, nullptr, &count);
  std::vector<cl_platform_id> platforms(count);
  if (count > 0) {
    api().clGetPlatformIDs(count, platforms.data(), nullptr);
  }
  for (const cl_platform_id platform : platforms) {
    add_devices(platform, "", devices, log);
  }
  for (const std::string& prefix : prefixes) {
    std::error_code error;
    std::vector<fs::path> icds;
    for (const auto& entry :
         fs::directory_iterator(prefix + "/etc/OpenCL/vendors", error)) {
      if (entry.path().extension() == ".icd") {
        icds.push_back(entry.path());
      }
    }
    std::sort(icds.begin(), icds.end());
    for (const fs::path& icd : icds) {
      const std::string library = icd_library(icd, prefix);
      if (library.empty()) {
        continue;
      }
      for (const cl_platform_id platform : platforms_of_icd(library, log)) {
        add_devices(platform, library, devices, log);
      }
    }
  }
  std::stable_sort(devices.begin(),
                   devices.end(),
                   [](const DiscoveredDevice& a, const DiscoveredDevice& b) {
                     return rank(a.info) < rank(b.info);
                   });
}

ptrdiff_t thread_count() {
  std::error_code error;
  const fs::directory_iterator threads("/proc/self/task", error);
  return std::distance(begin(threads), end(threads));
}

std::atomic<bool> started_threads{false};

}  // namespace

bool discovery_started_threads() noexcept {
  return started_threads.load();
}

std::vector<DiscoveredDevice> discover(const std::vector<std::string>& prefixes,
                                       Log& log) noexcept {
  std::vector<DiscoveredDevice> devices;
  try {
    const ptrdiff_t threads_before = thread_count();
    discover_all(prefixes, devices, log);
    started_threads.store(thread_count() > threads_before);
  } catch (const std::exception& error) {
    log.push_back(std::string("discovery failed: ") + error.what());
  }
  return devices;
}

}  // namespace torch_opencl::runtime
