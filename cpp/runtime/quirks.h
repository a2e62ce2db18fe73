// What drivers are known for, by their names: every defect and habit of a
// driver that the runtime or kernels work around is here, with what it does.
#pragma once

#include "api.h"
#include "device.h"

#include <cstdint>
#include <string>

namespace torch_opencl::runtime {

bool is_intel(const DeviceInfo& info);
bool is_pocl(const DeviceInfo& info);
bool is_rusticl(const DeviceInfo& info);

// By the device's type, but llvmpipe runs work-items in lanes, as a GPU.
// Kernels for CPUs end its process: they index their struct arguments.
DeviceClass class_of(const DeviceInfo& info);

// Beyond the largest allocation that a driver names. For GPUs some name a
// quarter of the memory and give more: those are asked.
bool refuses_allocation(const DeviceInfo& info, uint64_t bytes);
// How users raise what the driver names; empty or after a comma.
std::string allocation_switch(const DeviceInfo& info);

// clSetKernelArg of a value. Mesa 22.3's rusticl wants a struct without the
// four bytes of padding at its end.
inline cl_int set_argument(cl_kernel kernel,
                           cl_uint index,
                           const void* bytes,
                           size_t size) {
  constexpr size_t kPadding = 4;
  const cl_int code = api().clSetKernelArg(kernel, index, size, bytes);
  if (code == CL_INVALID_ARG_SIZE && size > sizeof(cl_ulong)) [[unlikely]] {
    return api().clSetKernelArg(kernel, index, size - kPadding, bytes);
  }
  return code;
}

// clFinish. Mesa 22.3's rusticl returns from it before the last read has
// arrived.
cl_int finish(cl_command_queue queue, const DeviceInfo& info);

// What the driver's compiler is to be told beside a program's options; empty
// or one of LLVM's options. It is read with the device's context.
std::string compiler_setting(const DeviceInfo& info);
void set_compiler_setting(const DeviceInfo& info);

// -D options of every program of a device; each begins with a space.
std::string quirk_options(const DeviceInfo& info);

}  // namespace torch_opencl::runtime
