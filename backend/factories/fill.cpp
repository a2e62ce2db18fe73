// fill_ and zero_.
#include "../../cpp/aten/launch.h"
#include "../../cpp/runtime/caching_allocator.h"
#include "../common/float64_bits.h"
#include "../common/half_numbers.h"
#include "../float8/float8.h"
#include "../pointwise/pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr PointwiseOp kFill{.name = "fill_",
                            .expression = "value",
                            .scalars = "value",
                            .is_vectorizable = true,
                            .checks_scalars = true};
constexpr PointwiseOp kFillComplex{.name = "fill_",
                                   .expression = "value",
                                   .complex_expression = "value",
                                   .inputs = "value"};

Tensor& fill_scalar(Tensor& self, const at::Scalar& value);

// A number on the CPU. torch's CPU checks the range of one element otherwise
// than that of several.
Tensor number_like(const Tensor& self, const at::Scalar& value) {
  const int64_t count = std::min<int64_t>(self.numel(), 2);
  return at::full({count}, value, self.options().device(at::kCPU))[0];
}

void fill_complex(const Tensor& self, const at::Scalar& value) {
  const Tensor number = number_like(self, value);
  if (self.scalar_type() == at::kComplexHalf || lacks_float64(self)) {
    Tensor real = at::real(self), imag = at::imag(self);
    fill_scalar(real, at::real(number).item());
    fill_scalar(imag, at::imag(number).item());
    return;
  }
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .add_output(self)
                  .add_const_input(number)
                  .resize_outputs(false)
                  .check_all_same_device(false)
                  .build();
  pointwise(iter, kFillComplex, {});
}

Tensor& fill_scalar(Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) {
    return self;
  }
  if (self.is_complex()) {
    fill_complex(self, value);
    return self;
  }
  if (is_float8(self)) {
    const Tensor bits = as_bytes(number_like(self, value));
    Tensor bytes = as_bytes(self);
    fill_scalar(bytes, bits.item());
    return self;
  }
  if (lacks_float64(self)) {
    Tensor bits = float64_bits(self);
    fill_scalar(bits, float64_bits(number_like(self, value)).item());
    return self;
  }
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .add_output(self)
                  .resize_outputs(false)
                  .build();
  // torch's CPU checks the range of a half's number for more elements than one.
  if (self.numel() == 1 && at::isReducedFloatingType(self.scalar_type())) {
    const double number = value.toDouble();
    pointwise(
        iter, kFill, at::Scalar(rounded_to_half(number, self.scalar_type())));
  } else {
    pointwise(iter, kFill, value);
  }
  return self;
}

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "fill_ only supports 0-dimension value tensor but got tensor "
              "with ",
              value.dim(),
              " dimensions.");
  if (value.device() != self.device()) {
    return fill_scalar(self, value.item());
  }
  return self.copy_(value.is_alias_of(self) ? value.clone() : value);
}

// Zero bytes, which are 2^-127 in the one format that has no zero.
Tensor& zero(Tensor& self) {
  Tensor bytes = as_bytes(self);
  fill_scalar(bytes, 0);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero));
}

}  // namespace torch_opencl::ops
