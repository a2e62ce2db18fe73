// VkFFT's header with its calls of OpenCL led to ours: programs come from our
// cache and kernels go to our queues. For fft_plan.cpp only.
#pragma once

#include "api.h"
#include "queue.h"

#include <algorithm>
#include <clocale>
#include <exception>

namespace torch_opencl::runtime::vkfft {

// What the calls of the running thread are for.
struct Call {
  Device* device = nullptr;
  Queue* queue = nullptr;
  size_t bytes = 0;          // of buffers created
  std::exception_ptr error;  // VkFFT knows codes only
};
inline thread_local Call* current = nullptr;

inline cl_program create_program(cl_context,
                                 cl_uint,
                                 const char** text,
                                 const size_t* length,
                                 cl_int* code) {
  try {
    *code = CL_SUCCESS;
    return current->device->programs().build_released(
        "fft", std::string(text[0], length[0]));
  } catch (...) {
    current->error = std::current_exception();
    *code = CL_BUILD_PROGRAM_FAILURE;
    return nullptr;
  }
}

// create_program has built it.
inline cl_int build_program(
    cl_program, cl_uint, const cl_device_id*, const char*, void*, void*) {
  return CL_SUCCESS;
}

inline cl_mem create_buffer(cl_context context,
                            cl_mem_flags flags,
                            size_t bytes,
                            void* host,
                            cl_int* code) {
  current->bytes += bytes;
  return api().clCreateBuffer(context, flags, bytes, host, code);
}

// Local memory and work-groups no larger than GPUs have: drivers for CPUs offer
// more, and PoCL's stack overflows in work-groups of thousands.
inline cl_int device_info(cl_device_id device,
                          cl_device_info what,
                          size_t size,
                          void* value,
                          size_t* written) {
  const cl_int code = api().clGetDeviceInfo(device, what, size, value, written);
  if (code != CL_SUCCESS || value == nullptr) {
    return code;
  }
  constexpr size_t kMostItems = 1024;
  if (what == CL_DEVICE_LOCAL_MEM_SIZE) {
    auto* bytes = static_cast<cl_ulong*>(value);
    *bytes = std::min<cl_ulong>(*bytes, 64 << 10);
  } else if (what == CL_DEVICE_MAX_WORK_GROUP_SIZE ||
             what == CL_DEVICE_MAX_WORK_ITEM_SIZES) {
    auto* items = static_cast<size_t*>(value);
    for (size_t i = 0; i < size / sizeof(size_t); ++i) {
      items[i] = std::min(items[i], kMostItems);
    }
  }
  return code;
}

inline cl_int enqueue_kernel(cl_command_queue,
                             cl_kernel handle,
                             cl_uint,
                             const size_t*,
                             const size_t* global,
                             const size_t* local,
                             cl_uint,
                             const cl_event*,
                             cl_event*) {
  try {
    Kernel kernel;
    kernel.handle = handle;
    kernel.name = "fft:VkFFT";
    current->queue->launch(
        kernel,
        {3, {global[0], global[1], global[2]}, {local[0], local[1], local[2]}});
    return CL_SUCCESS;
  } catch (...) {
    current->error = std::current_exception();
    return CL_INVALID_OPERATION;
  }
}

// VkFFT would leave the process in locale "C"; its thread has that already.
inline char* keep_locale(int, const char*) {
  static char name[] = "C";
  return name;
}

// The running thread writes numbers as C does, for as long as this lives.
class LocaleC {
 public:
  LocaleC() : old_(uselocale(locale_)) {}
  ~LocaleC() { uselocale(old_); }
  LocaleC(const LocaleC&) = delete;

 private:
  static inline const locale_t locale_ =
      newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
  locale_t old_;
};

}  // namespace torch_opencl::runtime::vkfft

#define TORCH_OPENCL_API(name) ::torch_opencl::runtime::api().name
#define clBuildProgram ::torch_opencl::runtime::vkfft::build_program
#define clCreateBuffer ::torch_opencl::runtime::vkfft::create_buffer
#define clCreateCommandQueue TORCH_OPENCL_API(clCreateCommandQueue)
#define clCreateKernel TORCH_OPENCL_API(clCreateKernel)
#define clCreateProgramWithBinary TORCH_OPENCL_API(clCreateProgramWithBinary)
#define clCreateProgramWithSource ::torch_opencl::runtime::vkfft::create_program
#define clEnqueueNDRangeKernel ::torch_opencl::runtime::vkfft::enqueue_kernel
#define clEnqueueWriteBuffer TORCH_OPENCL_API(clEnqueueWriteBuffer)
#define clFinish TORCH_OPENCL_API(clFinish)
#define clGetDeviceInfo ::torch_opencl::runtime::vkfft::device_info
#define clGetProgramBuildInfo TORCH_OPENCL_API(clGetProgramBuildInfo)
#define clGetProgramInfo TORCH_OPENCL_API(clGetProgramInfo)
#define clReleaseCommandQueue TORCH_OPENCL_API(clReleaseCommandQueue)
#define clReleaseKernel TORCH_OPENCL_API(clReleaseKernel)
#define clReleaseMemObject TORCH_OPENCL_API(clReleaseMemObject)
#define clReleaseProgram TORCH_OPENCL_API(clReleaseProgram)
#define clSetKernelArg TORCH_OPENCL_API(clSetKernelArg)

#define setlocale ::torch_opencl::runtime::vkfft::keep_locale

#define VKFFT_BACKEND 3
#include <vkFFT.h>
#undef setlocale
