// ldexp: a number times a power of two, by its exponent. The power itself may
// be beyond the dtype.
#include "pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/ldexp_native.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

// No number of any dtype survives a greater exponent.
constexpr PointwiseOp kLdexp{
    .name = "ldexp",
    .expression = "ldexp(self, (int)clamp(other, REAL(-5000.), REAL(5000.)))",
    .inputs = "self other",
    .dtypes = Dtypes::kFloating,
    .keeps_integers = true};

// Whether the kernel is for them: of others the CPU, too, takes the power
// first.
bool has_exponents(const Tensor& self, const Tensor& other) {
  return self.is_floating_point() && !c10::isFloat8Type(self.scalar_type()) &&
         at::isIntegralType(other.scalar_type(), /*includeBool=*/true);
}

Tensor& ldexp_out(const Tensor& self, const Tensor& other, Tensor& out) {
  if (!has_exponents(self, other)) {
    return at::native::ldexp_out(self, other, out);
  }
  auto iter = at::TensorIterator::binary_op(out, self, other);
  pointwise_with(iter, kLdexp);
  return out;
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  if (!has_exponents(self, other)) {
    return at::native::ldexp(self, other);
  }
  Tensor out;
  auto iter = at::TensorIterator::binary_op(out, self, other);
  pointwise_with(iter, kLdexp);
  return iter.output();
}

Tensor& ldexp_(Tensor& self, const Tensor& other) {
  return ldexp_out(self, other, self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("ldexp.Tensor", TORCH_FN(ldexp));
  m.impl("ldexp.out", TORCH_FN(ldexp_out));
  m.impl("ldexp_", TORCH_FN(ldexp_));
}

}  // namespace torch_opencl::ops
