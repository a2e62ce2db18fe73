#include "launch.h"

#include "../device/device.h"
#include "location.h"
#include "same_device.h"

namespace torch_opencl::aten {

void throw_no_dtype(at::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "opencl kernels do not support dtype ", type);
}

runtime::Location location_of(const void* address) {
  const runtime::Location location = runtime::locate(address);
  TORCH_CHECK(location.memory != nullptr,
              "The tensor has a non-zero number of elements, but its data is "
              "not allocated on an opencl device. Its storage has no memory, "
              "as after untyped_storage().resize_(0)");
  return location;
}

namespace {

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
  const runtime::Location location = location_of(address);
  const uint64_t element_size = c10::elementSize(type);
  TORCH_CHECK(location.byte_offset % element_size == 0,
              "misaligned address: the data of a tensor of ",
              type,
              " does not begin at a multiple of ",
              element_size,
              " bytes, and opencl kernels cannot use it. Pass .clone()");
  return {location.memory,
          location.byte_offset / element_size,
          location.device_index};
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

// mutable_data_ptr gives a copy-on-write storage memory of its own.
BufferView arg(const at::TensorBase& tensor) {
  return has_memory(tensor)
             ? arg_at(tensor.mutable_data_ptr(), tensor.scalar_type())
             : BufferView();
}

void throw_not_opencl(c10::Device device) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at "
              "least two devices, opencl and ",
              device,
              "!");
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
