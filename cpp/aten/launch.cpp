#include "launch.h"

#include "../device/device.h"
#include "../runtime/caching_allocator.h"
#include "same_device.h"

namespace torch_opencl::aten {

DType dtype_of(at::ScalarType type) {
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
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "opencl kernels do not support dtype ", type);
  }
}

at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

namespace {

BufferView view_of(const runtime::Location& location, at::ScalarType type) {
  TORCH_CHECK(location.memory != nullptr,
              "The tensor has a non-zero number of elements, but its data is "
              "not allocated on an opencl device. Its storage has no memory, "
              "as after untyped_storage().resize_(0)");
  return {location.memory,
          location.byte_offset / c10::elementSize(type),
          location.device_index};
}

// False where the view of the tensor is a null one.
bool has_memory(const at::TensorBase& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return false;
  }
  check_is_opencl(tensor.device());
  return true;
}

}  // namespace

BufferView arg_in_at(const void* address, at::ScalarType type) {
  return view_of(runtime::locate(address), type);
}

BufferView arg_at(const void* address, at::ScalarType type) {
  BufferView view = arg_in_at(address, type);
  view.written = address;
  return view;
}

BufferView arg_in(const at::TensorBase& tensor) {
  return has_memory(tensor)
             ? arg_in_at(tensor.const_data_ptr(), tensor.scalar_type())
             : BufferView();
}

BufferView arg(const at::TensorBase& tensor) {
  return has_memory(tensor)
             ? arg_at(tensor.const_data_ptr(), tensor.scalar_type())
             : BufferView();
}

runtime::Device& device_of(const at::TensorBase& tensor) {
  check_is_opencl(tensor.device());
  return runtime::device(tensor.device().index());
}

runtime::Queue& queue_of(const at::TensorBase& tensor) {
  check_is_opencl(tensor.device());
  return device::current_queue(tensor.device().index());
}

void check_same_device(const runtime::Queue& queue, const BufferView& view) {
  TORCH_CHECK(
      view.memory == nullptr || view.device_index == queue.device().index(),
      "Expected all tensors to be on the same device, but found at "
      "least two devices, opencl:",
      queue.device().index(),
      " and opencl:",
      view.device_index,
      "!");
}

void enqueue(const at::TensorBase& on, const runtime::KernelLaunch& launch) {
  runtime::Queue& queue = queue_of(on);
  queue.flush_pending();
  launch.enqueue(queue);
}

namespace {

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

NDRange range(size_t global, size_t local) {
  return {1, {round_up(global, local), 1, 1}, {local, 1, 1}};
}

NDRange range(size_t global_x,
              size_t global_y,
              size_t local_x,
              size_t local_y) {
  return {2,
          {round_up(global_x, local_x), round_up(global_y, local_y), 1},
          {local_x, local_y, 1}};
}

NDRange range(size_t global_x,
              size_t global_y,
              size_t global_z,
              size_t local_x,
              size_t local_y,
              size_t local_z) {
  return {3,
          {round_up(global_x, local_x),
           round_up(global_y, local_y),
           round_up(global_z, local_z)},
          {local_x, local_y, local_z}};
}

}  // namespace torch_opencl::aten
