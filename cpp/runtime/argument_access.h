// Guard mode's check of what a launch says of its buffers: what the kernel
// takes as a TENSOR is bound as written (arg). Bound as read (arg_in), it would
// leave packed weights as they were. A CONST_TENSOR may be bound as either: it
// only costs packed weights. Off, the check is a look at an empty string.
#pragma once

#include "queue.h"

#include <string>

namespace torch_opencl::runtime {

// A letter for each argument: 'w' where the kernel may write, 'r' where it only
// reads, '-' for what is no global memory. Of a program built with
// kArgumentOption.
std::string argument_access(cl_kernel kernel);

// Throws Error where the two differ.
void require_access(const Kernel& kernel, cl_uint index, bool is_written);

inline void check_buffer(const Kernel& kernel, cl_uint index, bool is_written) {
  if (!kernel.access.empty()) [[unlikely]] {
    require_access(kernel, index, is_written);
  }
}

inline void check_access(const Kernel& kernel,
                         cl_uint index,
                         const BufferView& view) {
  if (view.memory != nullptr) {
    check_buffer(kernel, index, view.written != nullptr);
  }
}
template <class T>
void check_access(const Kernel&, cl_uint, const T&) {}

}  // namespace torch_opencl::runtime
