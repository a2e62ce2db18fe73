#include "factories.h"
#include "same_device.h"

#include "../device/device.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace torch_opencl::aten {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// torch.utils.deterministic.fill_uninitialized_memory is the backend's duty.
bool fills_memory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() &&
         context.deterministicFillUninitializedMemory();
}

Tensor filled_if_deterministic(Tensor tensor) {
  if (fills_memory() && tensor.numel() > 0) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

void check_options(std::optional<at::Layout> layout,
                   std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::kStrided,
                              "opencl tensors are strided; got layout ",
                              c10::layout_or_default(layout));
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory),
              "Only dense CPU tensors can be pinned");
}

c10::Allocator* current_allocator() {
  return device::storage_allocator(device::current_device());
}

Tensor empty_memory_format(IntArrayRef size,
                           std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> layout,
                           std::optional<at::Device> device,
                           std::optional<bool> pin_memory,
                           std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return filled_if_deterministic(
      at::detail::empty_generic(size,
                                current_allocator(),
                                kKeys,
                                c10::dtype_or_default(dtype),
                                memory_format));
}

Tensor empty_strided(IntArrayRef size,
                     IntArrayRef stride,
                     std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout,
                     std::optional<at::Device> device,
                     std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::OptionalDeviceGuard guard(device);
  return filled_if_deterministic(at::detail::empty_strided_generic(
      size, stride, current_allocator(), kKeys, c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, as gradients of piecewise constant ops are.
Tensor efficientzerotensor(IntArrayRef size,
                           std::optional<at::ScalarType> dtype,
                           std::optional<at::Layout> /*layout*/,
                           std::optional<at::Device> device,
                           std::optional<bool> /*pin_memory*/) {
  const device::OptionalDeviceGuard guard(device);
  at::native::ZeroTensorAllocator allocator(
      c10::Device(c10::kPrivateUse1, device::current_device()));
  return at::detail::empty_generic(
      size,
      &allocator,
      kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype),
      std::nullopt);
}

// at::native::resize_ and set_storage_cpu_ move bytes through the data
// pointer, which is not dereferenceable here.
void resize_impl(c10::TensorImpl* self,
                 IntArrayRef size,
                 at::OptionalIntArrayRef stride) {
  if (self->sizes() == size &&
      (!stride.has_value() || self->strides() == *stride)) {
    return;
  }
  size_t bytes = 0;
  if (stride.has_value()) {
    self->set_sizes_and_strides(size, *stride);
    bytes = at::detail::computeStorageNbytes(
        size, *stride, self->itemsize(), self->storage_offset());
  } else {
    self->set_sizes_contiguous(size);
    bytes = at::detail::computeStorageNbytesContiguous(
        size, self->itemsize(), self->storage_offset());
  }
  if (self->numel() > 0 && bytes > self->unsafe_storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
        self->unsafe_storage(), bytes);
  }
}

const Tensor& resize_(const Tensor& self,
                      IntArrayRef size,
                      std::optional<at::MemoryFormat> memory_format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl->unsafe_storage().nbytes());
  resize_impl(impl, size, std::nullopt);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve,
                "Unsupported memory format",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (fills_memory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

Tensor& set_source_storage_offset(Tensor& result,
                                  at::Storage storage,
                                  int64_t storage_offset,
                                  IntArrayRef size,
                                  IntArrayRef stride) {
  at::native::checkSetStorage(result, storage, storage_offset, size, stride);
  result.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  resize_impl(result.unsafeGetTensorImpl(),
              size,
              stride.data() != nullptr ? at::OptionalIntArrayRef(stride)
                                       : at::OptionalIntArrayRef());
  return result;
}

Tensor& set_empty(Tensor& result) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(),
                             0,
                             device::storage_allocator(result.device().index()),
                             /*resizable=*/true);
  return set_source_storage_offset(result, storage, 0, {0}, {});
}

// Core's list of shallow-copyable dense backends lacks PrivateUse1: without
// this, Module.to() unties weights and orphans optimizers.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto is_dense = [](const Tensor& tensor) {
    return tensor.layout() == at::kStrided &&
           (tensor.is_cpu() || tensor.is_privateuseone()) &&
           tensor.key_set().has_any(
               c10::DispatchKeySet(c10::DispatchKey::Dense));
  };
  return self.key_set() == from.key_set() || (is_dense(self) && is_dense(from));
}

void record_stream(Tensor& self, c10::Stream stream) {
  device::GuardImpl().recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

}  // namespace

Tensor empty_like_meta(IntArrayRef sizes,
                       IntArrayRef strides,
                       const at::TensorOptions& options) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  check_is_opencl(options.device());
  const device::DeviceGuard guard(options.device());
  return filled_if_deterministic(
      strides.empty() ? at::detail::empty_generic(sizes,
                                                  current_allocator(),
                                                  kKeys,
                                                  dtype,
                                                  options.memory_format_opt())
                      : at::detail::empty_strided_generic(
                            sizes, strides, current_allocator(), kKeys, dtype));
}

void resize_out(const Tensor& out,
                IntArrayRef sizes,
                IntArrayRef strides,
                const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(),
              "Expected out tensor to have dtype ",
              options.dtype(),
              ", but got ",
              out.dtype(),
              " instead");
  TORCH_CHECK(options.device() == out.device(),
              "Expected out tensor to have device ",
              options.device(),
              ", but got ",
              out.device(),
              " instead");
  if (at::native::resize_output(out, sizes)) {
    if (!strides.empty()) {
      out.as_strided_(sizes, strides);
    } else if (const auto format = options.memory_format_opt()) {
      out.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    }
  }
}

void check_inplace(const Tensor& self,
                   IntArrayRef sizes,
                   const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(),
              "Bad in-place call: ",
              "input tensor dtype ",
              self.dtype(),
              " and output tensor dtype ",
              options.dtype(),
              " should match");
  TORCH_CHECK(options.device() == self.device(),
              "Bad in-place call: ",
              "input tensor device ",
              self.device(),
              " and output tensor device ",
              options.device(),
              " should match");
  TORCH_CHECK(sizes == self.sizes(),
              "Bad in-place call: ",
              "input tensor size ",
              self.sizes(),
              " and output tensor size ",
              sizes,
              " should match");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage",
         static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset",
         TORCH_FN(set_source_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("_has_compatible_shallow_copy_type",
         TORCH_FN(has_compatible_shallow_copy_type));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("record_stream", TORCH_FN(record_stream));
}

// Autograd's fallback would look for gradient functions, which makes a view's
// anew after a change in place: `view.data = other` is to come before.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type",
         TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace torch_opencl::aten
