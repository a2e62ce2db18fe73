#include "quirks.h"

#include "api.h"
#include "config.h"
#include "error.h"

#include <cstdlib>

namespace torch_opencl::runtime {

bool is_intel(const DeviceInfo& info) {
  return info.platform_name.find("Intel") != std::string::npos;
}

bool is_pocl(const DeviceInfo& info) {
  return info.platform_name == "Portable Computing Language";
}

bool is_rusticl(const DeviceInfo& info) {
  return info.platform_name == "rusticl";
}

DeviceClass class_of(const DeviceInfo& info) {
  const bool is_cpu = (info.type & CL_DEVICE_TYPE_CPU) != 0;
  return is_cpu && !is_rusticl(info) ? DeviceClass::kCpu : DeviceClass::kGpu;
}

bool refuses_allocation(const DeviceInfo& info, uint64_t bytes) {
  return bytes > info.max_allocation && (info.type & CL_DEVICE_TYPE_CPU) != 0;
}

std::string allocation_switch(const DeviceInfo& info) {
  return info.platform_name == "AMD Accelerated Parallel Processing"
             ? ", which GPU_SINGLE_ALLOC_PERCENT=100 raises"
             : "";
}

cl_int finish(cl_command_queue queue, const DeviceInfo& info) {
  if (is_rusticl(info)) {
    cl_event marker = nullptr;
    cl_int code = api().clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
    if (code == CL_SUCCESS) {
      code = api().clWaitForEvents(1, &marker);
      log_opencl_error(api().clReleaseEvent(marker), "clReleaseEvent");
    }
    if (code != CL_SUCCESS) {
      return code;
    }
  }
  return api().clFinish(queue);
}

std::string compiler_setting(const DeviceInfo& info) {
  // Intel 2026.22 for CPUs with AVX-512: a scalar ~x beside max(x, y) is wrong,
  // as its compiler moves both to vectors. Others may not know this option,
  // and an unknown one ends the process.
  const bool is_cpu = (info.type & CL_DEVICE_TYPE_CPU) != 0;
  return is_cpu && is_intel(info) && info.driver_version.starts_with("2026.22.")
             ? "-disable-x86-scalar-to-vector"
             : "";
}

void set_compiler_setting(const DeviceInfo& info) {
  constexpr const char* kVariable = "CL_CONFIG_LLVM_OPTIONS";
  const std::string setting = compiler_setting(info);
  const std::string before = environment(kVariable);
  if (!setting.empty() && before.find(setting) == std::string::npos) {
    const std::string all = before.empty() ? setting : before + " " + setting;
    setenv(kVariable, all.c_str(), 1);
  }
}

std::string quirk_options(const DeviceInfo& info) {
  std::string options;
  const bool is_cpu = (info.type & CL_DEVICE_TYPE_CPU) != 0;
  if (is_cpu && info.vectorizes_work_items) {
    // vload_half keeps Intel's compiler from packing work-items.
    options += " -D HALF_BY_INTEGERS";
  }
  if (is_cpu && !info.vectorizes_work_items) {
    // Of a 1 that it knows, PoCL makes a slow masked load (types.clh).
    options += " -D UNKNOWN_TRUE";
    // PoCL: lanes of sin, cos, tan are wrong beside one of 1e10 or more.
    options += " -D OWN_TRIGONOMETRY";
  }
  if (is_cpu && !info.has_avx512_registers) {
    // 16 vectors of 16 floats do not fit 16 registers of 8
    // (transpose_vectors.clh).
    options += " -D TRANSPOSE_BY_HALVES";
  }
  if (is_pocl(info)) {
    // PoCL copies all that follows a branch with barriers (group_rows.clh).
    options += " -D NO_SUBGROUPS";
    // PoCL: tanh of a float ends at 1 - 2^-24 (types.clh).
    options += " -D TANH_BELOW_ONE";
    // PoCL 3.1: exp, floor and others of a constant NaN (nan_constants.clh).
    options += " -D UNDEFINED_OF_NAN";
  }
  if (is_rusticl(info)) {
    // Mesa 22.3: LLVM's prefetch ends the process in the translation to SPIR-V.
    options += " -D NO_PREFETCH";
    // llvmpipe ends the process where a struct argument is indexed.
    options += " -D COPY_INDEXED_STRUCTS";
  }
  if (info.platform_name == "Oclgrind") {
    // Its LLVM reads no prefetch, and it names sub-groups without having them.
    options += " -D NO_PREFETCH -D NO_SUBGROUPS";
  }
  return options;
}

}  // namespace torch_opencl::runtime
