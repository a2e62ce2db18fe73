// Typed argument binding and launch.
#pragma once

#include "argument_access.h"
#include "error.h"
#include "queue.h"
#include "quirks.h"

#include <type_traits>

namespace torch_opencl::runtime {

inline void bind_argument(cl_kernel kernel,
                          cl_uint& index,
                          const BufferView& view) {
  OPENCL_CHECK(
      api().clSetKernelArg(kernel, index++, sizeof(cl_mem), &view.memory));
  const cl_ulong offset = view.offset;
  OPENCL_CHECK(api().clSetKernelArg(kernel, index++, sizeof(offset), &offset));
}

inline void bind_bytes(cl_kernel kernel,
                       cl_uint& index,
                       const void* bytes,
                       size_t size) {
  OPENCL_CHECK(set_argument(kernel, index++, bytes, size));
}

// Plain values are passed with their own size: int32_t <-> int,
// uint32_t <-> uint, int64_t <-> long, float <-> float.
template <class T>
requires std::is_trivially_copyable_v<T>
void bind_argument(cl_kernel kernel, cl_uint& index, const T& value) {
  static_assert(!std::is_same_v<T, bool>, "kernels take int, not bool");
  bind_bytes(kernel, index, &value, sizeof(T));
}

// After the launch that has the argument.
inline void tell_written(Queue& queue, const BufferView& view) {
  queue.wrote(view.written);
}
template <class T>
void tell_written(Queue&, const T&) {}

template <class... Arguments>
void launch(Queue& queue,
            Kernel& kernel,
            const NDRange& range,
            const Arguments&... arguments) {
  const auto lock = queue.lock(kernel);
  cl_uint index = 0;
  ((check_access(kernel, index, arguments),
    bind_argument(kernel.handle, index, arguments)),
   ...);
  queue.launch(kernel, range);
  (tell_written(queue, arguments), ...);
}

}  // namespace torch_opencl::runtime
