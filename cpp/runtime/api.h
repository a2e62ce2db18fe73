// The OpenCL entry points, resolved at run time so that importing the package
// never needs an OpenCL loader. The loader's functions dispatch through the
// object they are given, so one table serves every driver, including drivers
// that the loader did not enumerate itself.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS  // clCreateCommandQueue: OpenCL 1.2
                                           // has no other
#include <CL/cl.h>

namespace torch_opencl::runtime {

#define TORCH_OPENCL_FOR_EACH_FUNCTION(_) \
  _(clBuildProgram)                       \
  _(clCreateBuffer)                       \
  _(clCreateCommandQueue)                 \
  _(clCreateContext)                      \
  _(clCreateKernel)                       \
  _(clCreateProgramWithBinary)            \
  _(clCreateProgramWithSource)            \
  _(clCreateSubBuffer)                    \
  _(clEnqueueBarrierWithWaitList)         \
  _(clEnqueueCopyBuffer)                  \
  _(clEnqueueFillBuffer)                  \
  _(clEnqueueMapBuffer)                   \
  _(clEnqueueMarkerWithWaitList)          \
  _(clEnqueueNDRangeKernel)               \
  _(clEnqueueReadBuffer)                  \
  _(clEnqueueUnmapMemObject)              \
  _(clEnqueueWriteBuffer)                 \
  _(clFinish)                             \
  _(clFlush)                              \
  _(clGetDeviceIDs)                       \
  _(clGetDeviceInfo)                      \
  _(clGetEventInfo)                       \
  _(clGetEventProfilingInfo)              \
  _(clGetKernelArgInfo)                   \
  _(clGetKernelInfo)                      \
  _(clGetKernelWorkGroupInfo)             \
  _(clGetMemObjectInfo)                   \
  _(clGetPlatformIDs)                     \
  _(clGetPlatformInfo)                    \
  _(clGetProgramBuildInfo)                \
  _(clGetProgramInfo)                     \
  _(clReleaseCommandQueue)                \
  _(clReleaseContext)                     \
  _(clReleaseEvent)                       \
  _(clReleaseKernel)                      \
  _(clReleaseMemObject)                   \
  _(clReleaseProgram)                     \
  _(clRetainEvent)                        \
  _(clRetainMemObject)                    \
  _(clSetKernelArg)                       \
  _(clSetMemObjectDestructorCallback)     \
  _(clWaitForEvents)

// Null where the loader is older; their callers ask the device's version, too.
#define TORCH_OPENCL_FOR_EACH_NEWER_FUNCTION(_) _(clCloneKernel)

struct Api {
#define TORCH_OPENCL_MEMBER(name) decltype(&::name) name = nullptr;
  TORCH_OPENCL_FOR_EACH_FUNCTION(TORCH_OPENCL_MEMBER)
  TORCH_OPENCL_FOR_EACH_NEWER_FUNCTION(TORCH_OPENCL_MEMBER)
#undef TORCH_OPENCL_MEMBER
};

namespace detail {
extern Api api_table;
}  // namespace detail

// The table; every member is null until find_platforms() has found a loader.
inline const Api& api() {
  return detail::api_table;
}

}  // namespace torch_opencl::runtime
