// copy_ between host and devices: any dtypes, strides, directions.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/location.h"
#include "../../cpp/device/host_allocator.h"
#include "../../cpp/device/stream.h"
#include "../common/dtype_check.h"
#include "../common/float64_bits.h"
#include "../float8/float8.h"
#include "../pointwise/joined.h"
#include "../pointwise/pointwise.h"
#include "../rearrange/transpose.h"
#include "cast.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

constexpr PointwiseOp kCopy{.name = "copy_",
                            .expression = "self",
                            .complex_expression = "self",
                            .inputs = "self",
                            .is_vectorizable = true,
                            .moves = true};

runtime::Location location_to_read(const Tensor& tensor) {
  return location_of(tensor.const_data_ptr());
}
runtime::Location location_to_write(const Tensor& tensor) {
  return location_of(tensor.mutable_data_ptr());
}

// A storage may begin at any byte of another one's memory.
bool is_aligned(const Tensor& tensor) {
  return location_to_read(tensor).byte_offset % tensor.element_size() == 0;
}

// The tensor without its lazy conjugation and negation.
Tensor physical(const Tensor& tensor) {
  const Tensor positive = tensor.is_neg() ? tensor._neg_view() : tensor;
  return positive.is_conj() ? positive.conj() : positive;
}

// Puts those of `lazy` onto a physical tensor.
Tensor with_bits_of(const Tensor& lazy, const Tensor& tensor) {
  const Tensor conjugated = lazy.is_conj() ? tensor.conj() : tensor;
  return lazy.is_neg() ? conjugated._neg_view() : conjugated;
}

// Same bytes in the same order: a plain buffer copy will do.
bool is_plain(const Tensor& destination, const Tensor& source) {
  return destination.scalar_type() == source.scalar_type() &&
         destination.strides() == source.strides() &&
         destination.is_non_overlapping_and_dense() && !source.is_conj() &&
         !source.is_neg();
}

// Drivers for CPUs copy more than this at 0.3 to 0.9 of a kernel's speed.
bool prefers_kernel(const Tensor& destination, const Tensor& source) {
  constexpr size_t kBytes = size_t{1} << 20;
  return aten::device_of(destination).is_cpu() &&
         destination.nbytes() >= kBytes && is_aligned(destination) &&
         is_aligned(source);
}

// A tensor on `device` that a plain copy can fill from, or into, `like`.
Tensor staging(const Tensor& like, c10::Device device, at::ScalarType dtype) {
  const at::TensorOptions options =
      like.options().device(device).dtype(dtype).pinned_memory(false);
  return like.is_non_overlapping_and_dense()
             ? at::empty_strided(like.sizes(), like.strides(), options)
             : at::empty(like.sizes(), options);
}

// In place. As the CPU's copies do, it refuses bool by its own name.
void negate(const Tensor& tensor) {
  check_implemented(
      tensor.scalar_type() != at::kBool, "neg", tensor.scalar_type());
  if (lacks_float64(tensor)) {
    float64_bits(tensor).bitwise_xor_(std::numeric_limits<int64_t>::min());
  } else {
    tensor.neg_();
  }
}

bool has_half_parts(const Tensor& tensor) {
  return tensor.scalar_type() == at::kComplexHalf;
}

void copy_on_device(const Tensor& destination, const Tensor& source);
void copy_to_device(const Tensor& destination,
                    const Tensor& source,
                    bool non_blocking);

// Part by part: kernels do not compute with complex32.
void copy_complex_half(const Tensor& destination, const Tensor& source) {
  if (!source.is_complex()) {
    copy_on_device(at::real(destination), source);
    at::imag(destination).zero_();
  } else if (!destination.is_complex()) {
    copy_on_device(destination, at::real(source));
  } else {
    copy_on_device(at::view_as_real(destination), at::view_as_real(source));
  }
}

void copy_with_float8(const Tensor& destination, const Tensor& source) {
  if (destination.scalar_type() == source.scalar_type()) {
    copy_on_device(as_bytes(destination), as_bytes(source));
  } else if (source.is_complex()) {
    copy_on_device(destination, at::real(source));
  } else if (destination.is_complex()) {
    copy_on_device(at::real(destination), source);
    at::imag(destination).zero_();
  } else {
    at::assert_no_overlap(destination, source);
    copy_float8(destination, source);
  }
}

// Kernels of a device without float64 only move it.
void copy_without_float64(const Tensor& destination, const Tensor& source) {
  if (destination.scalar_type() == source.scalar_type()) {
    copy_on_device(float64_bits(destination), float64_bits(source));
  } else {
    copy_to_device(destination, source.cpu(), false);
  }
}

void copy_plain(const Tensor& destination, const Tensor& source) {
  if (destination.is_alias_of(source)) {
    at::assert_no_partial_overlap(destination, source);
  }
  // First: where it has to copy a copy-on-write storage, nothing is pending any
  // more.
  const runtime::Location to = location_to_write(destination);
  runtime::Queue& queue = queue_of(destination);
  if (queue.has_pending() && copy_joins_pending(destination, source)) {
    return;
  }
  const runtime::Location from = location_to_read(source);
  if (from.memory == to.memory && from.byte_offset == to.byte_offset) {
    return;
  }
  queue.copy(from.memory,
             from.byte_offset,
             to.memory,
             to.byte_offset,
             destination.nbytes());
  queue.wrote(destination.const_data_ptr());
}

void copy_on_device(const Tensor& destination, const Tensor& source) {
  if (is_plain(destination, source) && !prefers_kernel(destination, source)) {
    copy_plain(destination, source);
    return;
  }
  if (source.is_neg() || source.is_conj()) {
    copy_on_device(destination, physical(source));
    if (source.is_neg()) {
      negate(destination.is_complex() ? at::view_as_real(destination)
                                      : destination);
    }
    if (source.is_conj() && destination.is_complex()) {
      negate(at::imag(destination));
    }
    return;
  }
  if (lacks_float64(destination) || lacks_float64(source)) {
    copy_without_float64(destination, source);
    return;
  }
  const bool is_complex = destination.is_complex() || source.is_complex();
  if (is_complex && (has_half_parts(destination) || has_half_parts(source))) {
    copy_complex_half(destination, source);
    return;
  }
  if (is_float8(destination) || is_float8(source)) {
    copy_with_float8(destination, source);
    return;
  }
  if (destination.scalar_type() == at::kComplexFloat &&
      source.scalar_type() == at::kComplexFloat) {
    copy_on_device(destination.view(at::kLong), source.view(at::kLong));
    return;
  }
  auto iter = at::TensorIteratorConfig()
                  .add_output(destination)
                  .add_const_input(source)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(true)
                  .build();
  if (is_complex || (!cast_contiguous(iter) && !copy_transposed(iter))) {
    pointwise(iter, kCopy, {});
  }
}

// Keeps pinned memory from being reused while the device works on it.
void guard_host_memory(const Tensor& host, const Tensor& device_tensor) {
  device::host_allocator()->record_event(
      host.storage().mutable_data(),
      host.storage().data_ptr().get_context(),
      device::current_stream(device_tensor.device().index()));
}

void copy_to_device(const Tensor& destination,
                    const Tensor& source,
                    bool non_blocking) {
  if (!is_plain(destination, source)) {
    // Converted and laid out on the host, unless the layout asks for a kernel.
    Tensor staged = staging(destination, at::kCPU, destination.scalar_type());
    staged.copy_(source);
    if (destination.is_non_overlapping_and_dense()) {
      copy_to_device(destination, staged, false);
    } else {
      copy_on_device(destination, staged.to(destination.device()));
    }
    return;
  }
  const runtime::Location to = location_to_write(destination);
  runtime::Queue& queue = queue_of(destination);
  if (destination.nbytes() <= runtime::Queue::kMaxTakenBytes) {
    queue.write_taken(to.memory,
                      to.byte_offset,
                      source.const_data_ptr(),
                      destination.nbytes());
    queue.wrote(destination.const_data_ptr());
    return;
  }
  const bool is_asynchronous = non_blocking && source.is_pinned();
  queue.write(to.memory,
              to.byte_offset,
              source.const_data_ptr(),
              destination.nbytes(),
              !is_asynchronous);
  queue.wrote(destination.const_data_ptr());
  if (is_asynchronous) {
    guard_host_memory(source, destination);
  }
}

void copy_to_host(const Tensor& destination,
                  const Tensor& source,
                  bool non_blocking) {
  if (!is_plain(destination, source)) {
    // Strided sources are gathered by a kernel; dtypes convert on the host.
    Tensor dense = physical(source);
    if (!source.is_non_overlapping_and_dense()) {
      dense = staging(source, source.device(), source.scalar_type());
      copy_on_device(dense, physical(source));
    }
    const Tensor staged = staging(dense, at::kCPU, source.scalar_type());
    copy_to_host(staged, dense, false);
    destination.copy_(with_bits_of(source, staged));
    return;
  }
  const runtime::Location from = location_to_read(source);
  const bool is_asynchronous = non_blocking && destination.is_pinned();
  queue_of(source).read(from.memory,
                        from.byte_offset,
                        destination.mutable_data_ptr(),
                        destination.nbytes(),
                        !is_asynchronous);
  if (is_asynchronous) {
    guard_host_memory(destination, source);
  }
}

void check_broadcasts(const Tensor& destination, const Tensor& source) {
  if (destination.sizes() == source.sizes()) {
    return;
  }
  if (destination.device() == source.device()) {  // first, as in ATen
    at::assert_no_internal_overlap(destination);
    at::assert_no_partial_overlap(destination, source);
  }
  const auto shape = at::infer_size(destination.sizes(), source.sizes());
  TORCH_CHECK(destination.sizes() == IntArrayRef(shape),
              "output with shape ",
              destination.sizes(),
              " doesn't match the broadcast shape ",
              IntArrayRef(shape));
}

// As in ATen, which asks this before it asks about overlap.
bool are_same_view(const Tensor& a, const Tensor& b) {
  return a.is_alias_of(b) && a.scalar_type() == b.scalar_type() &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

Tensor copy_from(const Tensor& self,
                 const Tensor& destination,
                 bool non_blocking) {
  if (are_same_view(self, destination)) {
    return destination;
  }
  check_broadcasts(destination, self);
  if (destination.is_conj() || destination.is_neg()) {
    copy_from(with_bits_of(destination, self), physical(destination), false);
    return destination;
  }
  if (destination.numel() == 0) {
    return destination;
  }
  const Tensor source = self.sizes() == destination.sizes()
                            ? self
                            : self.expand(destination.sizes());
  if (!source.is_privateuseone()) {
    copy_to_device(destination, source, non_blocking);
  } else if (!destination.is_privateuseone()) {
    copy_to_host(destination, source, non_blocking);
  } else if (source.device() == destination.device()) {
    copy_on_device(destination, source);
  } else {
    // Contexts of two drivers share nothing but the host.
    copy_to_device(destination, source.cpu(), false);
  }
  return destination;
}

// The fallback's results keep the strides that the CPU gave them.
Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  if (destination.sizes() != self.sizes()) {
    int64_t extent = self.numel() > 0;
    for (int64_t d = 0; d < self.dim() && extent > 0; ++d) {
      extent += (self.size(d) - 1) * self.stride(d);
    }
    if (extent < self.numel()) {
      destination.resize_(self.sizes());
    } else {
      destination.resize_({extent});
      destination.as_strided_(self.sizes(), self.strides());
    }
  }
  return copy_from(self, destination, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0,
              "_local_scalar_dense: Empty tensor not supported");
  Tensor host = at::empty({}, self.options().device(at::kCPU));
  copy_from(self.reshape({}), host, false);
  return host.item();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// A copy resolves the lazy bits of its operands itself; the fallbacks of these
// keys would ask it for a copy first.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace torch_opencl::ops
