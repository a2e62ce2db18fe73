#include "error.h"

#include "api.h"

#include <cstdio>

namespace torch_opencl::runtime {

const char* error_name(int code) {
#define TORCH_OPENCL_CASE(name) \
  case name:                    \
    return #name;
  switch (code) {
    TORCH_OPENCL_CASE(CL_SUCCESS)
    TORCH_OPENCL_CASE(CL_DEVICE_NOT_FOUND)
    TORCH_OPENCL_CASE(CL_DEVICE_NOT_AVAILABLE)
    TORCH_OPENCL_CASE(CL_COMPILER_NOT_AVAILABLE)
    TORCH_OPENCL_CASE(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    TORCH_OPENCL_CASE(CL_OUT_OF_RESOURCES)
    TORCH_OPENCL_CASE(CL_OUT_OF_HOST_MEMORY)
    TORCH_OPENCL_CASE(CL_PROFILING_INFO_NOT_AVAILABLE)
    TORCH_OPENCL_CASE(CL_MEM_COPY_OVERLAP)
    TORCH_OPENCL_CASE(CL_BUILD_PROGRAM_FAILURE)
    TORCH_OPENCL_CASE(CL_MAP_FAILURE)
    TORCH_OPENCL_CASE(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    TORCH_OPENCL_CASE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    TORCH_OPENCL_CASE(CL_INVALID_VALUE)
    TORCH_OPENCL_CASE(CL_INVALID_DEVICE_TYPE)
    TORCH_OPENCL_CASE(CL_INVALID_PLATFORM)
    TORCH_OPENCL_CASE(CL_INVALID_DEVICE)
    TORCH_OPENCL_CASE(CL_INVALID_CONTEXT)
    TORCH_OPENCL_CASE(CL_INVALID_QUEUE_PROPERTIES)
    TORCH_OPENCL_CASE(CL_INVALID_COMMAND_QUEUE)
    TORCH_OPENCL_CASE(CL_INVALID_HOST_PTR)
    TORCH_OPENCL_CASE(CL_INVALID_MEM_OBJECT)
    TORCH_OPENCL_CASE(CL_INVALID_BINARY)
    TORCH_OPENCL_CASE(CL_INVALID_BUILD_OPTIONS)
    TORCH_OPENCL_CASE(CL_INVALID_PROGRAM)
    TORCH_OPENCL_CASE(CL_INVALID_PROGRAM_EXECUTABLE)
    TORCH_OPENCL_CASE(CL_INVALID_KERNEL_NAME)
    TORCH_OPENCL_CASE(CL_INVALID_KERNEL_DEFINITION)
    TORCH_OPENCL_CASE(CL_INVALID_KERNEL)
    TORCH_OPENCL_CASE(CL_INVALID_ARG_INDEX)
    TORCH_OPENCL_CASE(CL_INVALID_ARG_VALUE)
    TORCH_OPENCL_CASE(CL_INVALID_ARG_SIZE)
    TORCH_OPENCL_CASE(CL_INVALID_KERNEL_ARGS)
    TORCH_OPENCL_CASE(CL_INVALID_WORK_DIMENSION)
    TORCH_OPENCL_CASE(CL_INVALID_WORK_GROUP_SIZE)
    TORCH_OPENCL_CASE(CL_INVALID_WORK_ITEM_SIZE)
    TORCH_OPENCL_CASE(CL_INVALID_GLOBAL_OFFSET)
    TORCH_OPENCL_CASE(CL_INVALID_EVENT_WAIT_LIST)
    TORCH_OPENCL_CASE(CL_INVALID_EVENT)
    TORCH_OPENCL_CASE(CL_INVALID_OPERATION)
    TORCH_OPENCL_CASE(CL_INVALID_BUFFER_SIZE)
    TORCH_OPENCL_CASE(CL_INVALID_GLOBAL_WORK_SIZE)
    case -1001:
      return "CL_PLATFORM_NOT_FOUND_KHR";
    case -9999:
      return "NVIDIA: illegal read or write to a buffer";
    default:
      return "unknown error";
  }
#undef TORCH_OPENCL_CASE
}

bool is_device_lost(int code) {
  return code == CL_DEVICE_NOT_AVAILABLE || code == CL_INVALID_COMMAND_QUEUE ||
         code == CL_INVALID_CONTEXT || code == -9999;
}

void throw_opencl_error(int code,
                        const char* call,
                        const char* file,
                        int line) {
  std::string name(call);
  if (name.starts_with("api().")) {
    name = name.substr(6);
  }
  name = name.substr(0, name.find('('));
  std::string text = "OpenCL error " + std::to_string(code) + " (" +
                     error_name(code) + ") from " + name + " at " + file + ":" +
                     std::to_string(line);
  if (is_device_lost(code)) {
    text += "; the device is lost: restart the process to use it again";
  }
  throw OpenCLError(code, text);
}

void log_opencl_error(int code, const char* call) noexcept {
  if (code != CL_SUCCESS) {
    std::fprintf(stderr,
                 "torch_opencl: %s failed: %d (%s)\n",
                 call,
                 code,
                 error_name(code));
  }
}

}  // namespace torch_opencl::runtime
