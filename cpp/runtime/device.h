// Discovered devices. Enumeration happens once, creates no context, and never
// throws: with no driver there are simply no devices. The context is created
// at the first use of a device.
#pragma once

#include "api.h"
#include "tuning.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace torch_opencl::runtime {

enum class DeviceClass : uint8_t { kCpu, kGpu };

struct DeviceInfo {
  std::string name;
  std::string vendor;
  std::string version;         // CL_DEVICE_VERSION
  std::string driver_version;  // CL_DRIVER_VERSION
  std::string platform_name;
  std::string platform_version;
  std::string extensions;
  // "gfx1030", "sm_86", "xe_12.55.8"; empty where the driver does not say.
  std::string architecture;
  std::string library;  // path of the ICD where we loaded it ourselves
  cl_device_type type = 0;
  // cpu or gpu, from `type` unless TORCH_OPENCL_DEVICE_CLASS forces it:
  // decides which family of kernels runs.
  DeviceClass device_class = DeviceClass::kCpu;
  uint32_t compute_units = 0;
  uint32_t clock_mhz = 0;
  uint64_t global_memory = 0;
  uint64_t max_allocation = 0;
  uint64_t local_memory = 0;
  size_t max_work_group_size = 0;
  uint32_t address_alignment = 0;  // bytes, CL_DEVICE_MEM_BASE_ADDR_ALIGN / 8
  bool has_fp16 = false;           // native half arithmetic (cl_khr_fp16)
  bool has_fp64 = false;
  bool has_subgroups = false;
  bool has_correctly_rounded_division = false;  // float / and sqrt
  bool has_denormals = false;  // of float; others compute with them as with 0
  // The compiler packs neighbouring work-items into SIMD lanes; where it does
  // not, kernels for CPUs give one work-item a loop to vectorise.
  bool vectorizes_work_items = false;
  // A CPU's 32 registers of 16 floats (AVX-512); fewer or shorter ones hold
  // smaller tiles.
  bool has_avx512_registers = false;
  std::shared_ptr<const Tuning> tuning;
};

class ProgramCache;

// Tells device and driver from others: part of the keys of what is stored.
std::string identity_of(const DeviceInfo& info);

class Device {
 public:
  Device(int index, cl_platform_id platform, cl_device_id id, DeviceInfo info);
  Device(const Device&) = delete;
  ~Device();

  int index() const { return index_; }
  cl_device_id id() const { return id_; }
  const DeviceInfo& info() const { return info_; }
  bool is_cpu() const { return info_.device_class == DeviceClass::kCpu; }
  // Creates the context on the first call.
  cl_context context();
  bool has_context() const;
  ProgramCache& programs();

 private:
  int index_;
  cl_platform_id platform_;
  cl_device_id id_;
  DeviceInfo info_;
  std::mutex mutex_;
  std::atomic<cl_context> context_{nullptr};
  std::unique_ptr<ProgramCache> programs_;
  std::atomic<ProgramCache*> programs_ready_{nullptr};
};

// Number of devices after TORCH_OPENCL_DEVICES has been applied; 0 when there
// is no driver. GPUs come first, then other accelerators, then CPU drivers.
int device_count() noexcept;

// Throws Error("invalid device ordinal" ...) for an index out of range, and,
// where there is no device at all, an error that says what to install.
Device& device(int index);

// What discovery met on its way, one line each (libraries tried, platforms,
// failures): for `python -m torch_opencl.diagnose`.
const std::vector<std::string>& discovery_log();

// Directories that may hold ICDs besides the system's: set by the Python
// package before the first use (the virtual environment's prefix).
void add_driver_prefix(const std::string& prefix);

}  // namespace torch_opencl::runtime
