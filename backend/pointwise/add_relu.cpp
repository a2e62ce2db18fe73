// _add_relu: a sum without what is below zero.
#include "pointwise.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;

// NaN becomes zero, as on the CPU. Integers wrap around before they are
// bounded.
constexpr PointwiseOp kAddRelu{
    .name = "_add_relu",
    .expression = "self + alpha * other > 0 ? self + alpha * other : 0",
    .integral_expression =
        "max((compute_t)(self + alpha * other), (compute_t)0)",
    .inputs = "self other",
    .scalars = "alpha"};

void compute(at::TensorIteratorBase& iter, const Scalar& alpha) {
  TORCH_CHECK(at::isFloatingType(iter.dtype()) ||
                  at::isIntegralType(iter.dtype(), /*includeBool=*/false),
              "Unsupported datatype for add_relu:",
              iter.dtype());
  pointwise_with(iter, kAddRelu, alpha);
}

Tensor& add_relu_out(const Tensor& self,
                     const Tensor& other,
                     const Scalar& alpha,
                     Tensor& out) {
  auto iter = at::TensorIterator::binary_op(out, self, other);
  compute(iter, alpha);
  return out;
}

Tensor add_relu(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  Tensor out;
  auto iter = at::TensorIterator::binary_op(out, self, other);
  compute(iter, alpha);
  return iter.output();
}

Tensor& add_relu_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  return add_relu_out(self, other, alpha, self);
}

Tensor add_relu_scalar(const Tensor& self,
                       const Scalar& other,
                       const Scalar& alpha) {
  return add_relu(self, at::native::wrapped_scalar_tensor(other), alpha);
}

Tensor& add_relu_scalar_(Tensor& self,
                         const Scalar& other,
                         const Scalar& alpha) {
  return add_relu_(self, at::native::wrapped_scalar_tensor(other), alpha);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_add_relu.Tensor", TORCH_FN(add_relu));
  m.impl("_add_relu_.Tensor", TORCH_FN(add_relu_));
  m.impl("_add_relu.out", TORCH_FN(add_relu_out));
  m.impl("_add_relu.Scalar", TORCH_FN(add_relu_scalar));
  m.impl("_add_relu_.Scalar", TORCH_FN(add_relu_scalar_));
}

}  // namespace torch_opencl::ops
