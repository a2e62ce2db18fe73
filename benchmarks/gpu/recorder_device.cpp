// The recorder's device: what it says about itself, its queues and its events,
// which are complete at once. $RECORDER_VENDOR, _INTEL_VERSION, _COMPUTE_UNITS,
// _LOCAL_MEMORY and _GROUP_SIZE make it another device.
#include "recorder.h"

namespace {

// Of cl_intel_device_attribute_query.
constexpr cl_device_info kVersionOfIntel = 0x4250;

template <class Handle>
void give_one(Handle handle, Handle* found, cl_uint* count) {
  if (found != nullptr) {
    *found = handle;
  }
  if (count != nullptr) {
    *count = 1;
  }
}

}  // namespace

extern "C" {

cl_int clGetPlatformIDs(cl_uint, cl_platform_id* found, cl_uint* count) {
  give_one<cl_platform_id>(&platform, found, count);
  return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id id,
                         cl_platform_info what,
                         size_t space,
                         void* to,
                         size_t* needed) {
  if (id != &platform) {
    return CL_INVALID_PLATFORM;
  }
  switch (what) {
    case CL_PLATFORM_VERSION:
      return give_text("OpenCL 1.2 recorder", space, to, needed);
    case CL_PLATFORM_PROFILE:
      return give_text("FULL_PROFILE", space, to, needed);
    case CL_PLATFORM_EXTENSIONS:
      return give_text("", space, to, needed);
    default:
      return give_text("Recorder", space, to, needed);
  }
}

cl_int clGetDeviceIDs(cl_platform_id id,
                      cl_device_type type,
                      cl_uint,
                      cl_device_id* found,
                      cl_uint* count) {
  if (id != &platform) {
    return CL_INVALID_PLATFORM;
  }
  if ((type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT)) == 0) {
    return CL_DEVICE_NOT_FOUND;
  }
  give_one<cl_device_id>(&device, found, count);
  return CL_SUCCESS;
}

cl_int clGetDeviceInfo(cl_device_id id,
                       cl_device_info what,
                       size_t space,
                       void* to,
                       size_t* needed) {
  if (id != &device) {
    return CL_INVALID_DEVICE;
  }
  switch (what) {
    case CL_DEVICE_TYPE:
      return give_value<cl_device_type>(CL_DEVICE_TYPE_GPU, space, to, needed);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return give_value<cl_uint>(
          setting("RECORDER_COMPUTE_UNITS", 64), space, to, needed);
    case CL_DEVICE_MAX_CLOCK_FREQUENCY:
      return give_value<cl_uint>(2000, space, to, needed);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      return give_value<cl_ulong>(cl_ulong(64) << 30, space, to, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      return give_value<cl_ulong>(cl_ulong(16) << 30, space, to, needed);
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return give_value<cl_ulong>(
          setting("RECORDER_LOCAL_MEMORY", 49152), space, to, needed);
    case CL_DEVICE_LOCAL_MEM_TYPE:
      return give_value<cl_device_local_mem_type>(CL_LOCAL, space, to, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      return give_value<size_t>(
          setting("RECORDER_GROUP_SIZE", 256), space, to, needed);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS:
      return give_value<cl_uint>(3, space, to, needed);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES: {
      const size_t most[3] = {1024, 1024, 1024};
      return give(most, sizeof(most), space, to, needed);
    }
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return give_value<cl_uint>(1024, space, to, needed);
    case CL_DEVICE_MAX_PARAMETER_SIZE:
      return give_value<size_t>(1024, space, to, needed);
    case CL_DEVICE_AVAILABLE:
    case CL_DEVICE_COMPILER_AVAILABLE:
    case CL_DEVICE_ENDIAN_LITTLE:
      return give_value<cl_bool>(CL_TRUE, space, to, needed);
    case CL_DEVICE_SINGLE_FP_CONFIG:
    case CL_DEVICE_DOUBLE_FP_CONFIG:
      return give_value<cl_device_fp_config>(
          CL_FP_FMA | CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN,
          space,
          to,
          needed);
    case CL_DEVICE_PLATFORM:
      return give_value<cl_platform_id>(&platform, space, to, needed);
    case CL_DEVICE_VENDOR_ID:
      return give_value<cl_uint>(0, space, to, needed);
    case CL_DEVICE_EXTENSIONS:
      return give_text(
          "cl_khr_fp64 cl_khr_global_int32_base_atomics "
          "cl_khr_local_int32_base_atomics "
          "cl_khr_byte_addressable_store "
          "cl_intel_device_attribute_query",
          space,
          to,
          needed);
    case CL_DEVICE_VERSION:
      return give_text("OpenCL 1.2", space, to, needed);
    case CL_DEVICE_OPENCL_C_VERSION:
      return give_text("OpenCL C 1.2", space, to, needed);
    case CL_DEVICE_NAME:
      return give_text("Recorder", space, to, needed);
    case kVersionOfIntel:
      return give_value<cl_uint>(
          setting("RECORDER_INTEL_VERSION", 0), space, to, needed);
    case CL_DEVICE_VENDOR: {
      const char* vendor = std::getenv("RECORDER_VENDOR");
      return give_text(
          vendor == nullptr ? "Recorder" : vendor, space, to, needed);
    }
    case CL_DRIVER_VERSION:
      return give_text("1", space, to, needed);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_context clCreateContext(
    const cl_context_properties*,
    cl_uint,
    const cl_device_id*,
    void(CL_CALLBACK*)(const char*, const void*, size_t, void*),
    void*,
    cl_int* code) {
  set(code);
  return &context;
}
cl_int clRetainContext(cl_context) {
  return CL_SUCCESS;
}
cl_int clReleaseContext(cl_context) {
  return CL_SUCCESS;
}
cl_int clGetContextInfo(
    cl_context, cl_context_info what, size_t space, void* to, size_t* needed) {
  if (what == CL_CONTEXT_DEVICES) {
    return give_value<cl_device_id>(&device, space, to, needed);
  }
  return give_value<cl_uint>(1, space, to, needed);
}

cl_command_queue clCreateCommandQueue(cl_context,
                                      cl_device_id,
                                      cl_command_queue_properties properties,
                                      cl_int* code) {
  set(code);
  return new _cl_command_queue{&context,
                               (properties & CL_QUEUE_PROFILING_ENABLE) != 0};
}
cl_int clGetCommandQueueInfo(cl_command_queue,
                             cl_command_queue_info what,
                             size_t space,
                             void* to,
                             size_t* needed) {
  if (what == CL_QUEUE_CONTEXT) {
    return give_value<cl_context>(&context, space, to, needed);
  }
  if (what == CL_QUEUE_DEVICE) {
    return give_value<cl_device_id>(&device, space, to, needed);
  }
  return give_value<cl_ulong>(0, space, to, needed);
}
cl_int clRetainCommandQueue(cl_command_queue) {
  return CL_SUCCESS;
}
cl_int clReleaseCommandQueue(cl_command_queue) {
  return CL_SUCCESS;
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue,
                                   cl_uint,
                                   const cl_event*,
                                   cl_event* event) {
  set_event(event);
  return CL_SUCCESS;
}
cl_int clEnqueueBarrierWithWaitList(cl_command_queue,
                                    cl_uint,
                                    const cl_event*,
                                    cl_event* event) {
  set_event(event);
  return CL_SUCCESS;
}
cl_int clFinish(cl_command_queue) {
  return CL_SUCCESS;
}
cl_int clWaitForEvents(cl_uint, const cl_event*) {
  return CL_SUCCESS;
}
cl_int clGetEventInfo(
    cl_event, cl_event_info, size_t space, void* to, size_t* needed) {
  return give_value<cl_int>(CL_COMPLETE, space, to, needed);
}
cl_int clGetEventProfilingInfo(
    cl_event, cl_profiling_info, size_t space, void* to, size_t* needed) {
  return give_value<cl_ulong>(0, space, to, needed);
}
cl_int clRetainEvent(cl_event) {
  return CL_SUCCESS;
}
cl_int clReleaseEvent(cl_event) {
  return CL_SUCCESS;
}

}  // extern "C"
