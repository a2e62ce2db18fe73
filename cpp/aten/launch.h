// What an op's host half needs: tensors as kernel arguments, the queue of a
// tensor, and launching. Ops never call OpenCL themselves.
#pragma once

#include "../runtime/pending_launch.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <initializer_list>
#include <optional>
#include <span>

namespace torch_opencl::aten {

using runtime::BufferView;
using runtime::Define;
using runtime::DType;
using runtime::KernelSource;
using runtime::NDRange;

[[noreturn]] void throw_no_dtype(at::ScalarType type);
// Throws NotImplementedError for dtypes that have no kernel form (quantised
// and bit types).
inline DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DType::kBool;
    case at::kByte:
      return DType::kUInt8;
    case at::kChar:
      return DType::kInt8;
    case at::kUInt16:
      return DType::kUInt16;
    case at::kShort:
      return DType::kInt16;
    case at::kUInt32:
      return DType::kUInt32;
    case at::kInt:
      return DType::kInt32;
    case at::kUInt64:
      return DType::kUInt64;
    case at::kLong:
      return DType::kInt64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kComplexHalf:
      return DType::kComplex32;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      throw_no_dtype(type);
  }
}
inline DType dtype_of(const at::TensorBase& tensor) {
  return dtype_of(tensor.scalar_type());
}
// float for float16, bfloat16 and float32, double for float64; integers and
// bool stay themselves. The type in which kernels do arithmetic.
inline at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// Buffer and element offset of the tensor's first element; strides are the
// caller's business. Throws RuntimeError when the tensor is not on an opencl
// device. An empty or undefined tensor gives a null view. `arg` is of a tensor
// that the kernel writes, and that it may read; `arg_in` of one that it only
// reads: values packed from it stay (packed_weight.h).
BufferView arg(const at::TensorBase& tensor);
BufferView arg_in(const at::TensorBase& tensor);
template <class T>
BufferView arg(const std::optional<T>& tensor) {
  return tensor.has_value() && tensor->defined() ? arg(*tensor) : BufferView();
}
template <class T>
BufferView arg_in(const std::optional<T>& tensor) {
  return tensor.has_value() && tensor->defined() ? arg_in(*tensor)
                                                 : BufferView();
}
// The same for an address inside a storage, as TensorIterator hands out.
BufferView arg_at(const void* address, at::ScalarType type);
BufferView arg_in_at(const void* address, at::ScalarType type);

runtime::Device& device_of(const at::TensorBase& tensor);
// The current stream of the tensor's device.
runtime::Queue& queue_of(const at::TensorBase& tensor);

// Work-items of a group, of kernels with no reason for another number.
constexpr int kWorkGroup = 64;

// `global` is rounded up to a multiple of `local`: kernels test their bounds.
NDRange range(size_t global, size_t local);
NDRange range(size_t global_x, size_t global_y, size_t local_x, size_t local_y);
NDRange range(size_t global_x,
              size_t global_y,
              size_t global_z,
              size_t local_x,
              size_t local_y,
              size_t local_z);

// Numbers that index less than 2^31 elements keep 32-bit arithmetic.
inline bool fits_int32(int64_t elements) {
  return elements < (1LL << 31);
}
// Calls `launch` with a number of the type that indexes so many elements.
template <class Launch>
auto with_index(int64_t elements, const Launch& launch) {
  return fits_int32(elements) ? launch(int32_t()) : launch(int64_t());
}

// A buffer of another device's context would crash the driver.
void check_same_device(const runtime::Queue& queue, const BufferView& view);
template <class T>
void check_same_device(const runtime::Queue&, const T&) {}

// The kernel for the device of `on`, whose arguments are on it.
template <class... Arguments>
runtime::Kernel& kernel_for(const runtime::Queue& queue,
                            const KernelSource& source,
                            const char* kernel_name,
                            std::initializer_list<Define> defines,
                            const Arguments&... arguments) {
  (check_same_device(queue, arguments), ...);
  return queue.device().programs().get(
      source, kernel_name, std::span(defines.begin(), defines.size()));
}

// Launches on the current stream of `on`'s device, e.g.
//   launch(out, sources::softmax, "softmax_kept",
//          {{"DTYPE", dtype_of(out)}, {"WG_SIZE", 64}},
//          range(rows * 64, 64), arg(out), arg(self), int32_t(size));
template <class... Arguments>
void launch(const at::TensorBase& on,
            const KernelSource& source,
            const char* kernel_name,
            std::initializer_list<Define> defines,
            const NDRange& range,
            const Arguments&... arguments) {
  runtime::Queue& queue = queue_of(on);
  runtime::launch(queue,
                  kernel_for(queue, source, kernel_name, defines, arguments...),
                  range,
                  arguments...);
}

// The same as a record, to be enqueued on that stream.
template <class... Arguments>
runtime::KernelLaunch launch_record(const at::TensorBase& on,
                                    const KernelSource& source,
                                    const char* kernel_name,
                                    std::initializer_list<Define> defines,
                                    const NDRange& range,
                                    const Arguments&... arguments) {
  return runtime::KernelLaunch(
      kernel_for(queue_of(on), source, kernel_name, defines, arguments...),
      range,
      arguments...);
}
void enqueue(const at::TensorBase& on, const runtime::KernelLaunch& launch);

}  // namespace torch_opencl::aten
