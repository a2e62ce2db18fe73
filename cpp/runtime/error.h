// Typed errors of the runtime. No torch header here: the device layer turns
// OutOfMemoryError into torch.OutOfMemoryError; the others reach Python as
// RuntimeError with their text.
#pragma once

#include <stdexcept>
#include <string>

namespace torch_opencl::runtime {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A failed OpenCL call: names the call, the code and its symbolic name.
struct OpenCLError : Error {
  OpenCLError(int code, const std::string& message)
      : Error(message), code(code) {}
  int code;
};

// A program that did not build: names the kernel file, the device and the
// options, and carries the numbered source around the first error and the
// compiler's log.
struct BuildError : Error {
  using Error::Error;
};

struct OutOfMemoryError : Error {
  using Error::Error;
};

const char* error_name(int code);

// True for codes after which the context can no longer be used.
bool is_device_lost(int code);

[[noreturn]] void throw_opencl_error(int code,
                                     const char* call,
                                     const char* file,
                                     int line);

// For destructors, which must not throw.
void log_opencl_error(int code, const char* call) noexcept;

}  // namespace torch_opencl::runtime

// Throws OpenCLError naming the call and the caller's line unless the
// expression is CL_SUCCESS.
#define OPENCL_CHECK(expression)                               \
  do {                                                         \
    const int opencl_check_code = (expression);                \
    if (opencl_check_code != 0) [[unlikely]] {                 \
      ::torch_opencl::runtime::throw_opencl_error(             \
          opencl_check_code, #expression, __FILE__, __LINE__); \
    }                                                          \
  } while (false)
