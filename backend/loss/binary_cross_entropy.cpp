// binary_cross_entropy and its gradient.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"
#include "../pointwise/pointwise.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Logarithms stop at -100: a sure and wrong answer costs a finite loss.
constexpr PointwiseOp kLoss{
    .name = "binary_cross_entropy",
    .expression =
        "(target - 1) * maximum_nan(log1p(-self), (value_t)-100) - "
        "target * maximum_nan(log(self), (value_t)-100)",
    .inputs = "self target",
    .uses_math = true,
    .is_vectorizable = true,
    .probabilities = "self target"};
constexpr PointwiseOp kGradient{
    .name = "binary_cross_entropy_backward",
    .expression =
        "grad_output * (self - target) / "
        "maximum_nan((1 - self) * self, (value_t)REAL(1e-12))",
    .inputs = "self target grad_output",
    .uses_math = true,
    .is_vectorizable = true};

Tensor& binary_cross_entropy_out(const Tensor& self,
                                 const Tensor& target,
                                 const OptionalTensor& weight,
                                 int64_t reduction,
                                 Tensor& out) {
  check_floating("binary_cross_entropy", self);
  check_same_dtype(out, self.scalar_type());
  if (reduction != at::Reduction::None) {
    const aten::NoAutocast guard;  // which refuses the op
    const Tensor losses =
        at::binary_cross_entropy(self, target, weight, at::Reduction::None);
    return reduction == at::Reduction::Mean
               ? at::mean_out(out, losses, at::IntArrayRef{})
               : at::sum_out(out, losses, at::IntArrayRef{});
  }
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(self)
                  .add_const_input(target)
                  .build();
  pointwise(iter, kLoss, {});
  if (is_given(weight)) {
    out.mul_(*weight);
  }
  return out;
}

Tensor binary_cross_entropy(const Tensor& self,
                            const Tensor& target,
                            const OptionalTensor& weight,
                            int64_t reduction) {
  Tensor loss = reduction == at::Reduction::None
                    ? at::empty_like(self)
                    : at::empty({0}, self.options());
  return binary_cross_entropy_out(self, target, weight, reduction, loss);
}

Tensor& binary_cross_entropy_backward_out(const Tensor& grad_output,
                                          const Tensor& self,
                                          const Tensor& target,
                                          const OptionalTensor& weight,
                                          int64_t reduction,
                                          Tensor& grad_input) {
  check_floating("binary_cross_entropy_backward", self);
  auto iter = at::TensorIteratorConfig()
                  .add_output(grad_input)
                  .add_const_input(self)
                  .add_const_input(target)
                  .add_const_input(grad_output)
                  .build();
  pointwise(iter, kGradient, {});
  if (is_given(weight)) {
    grad_input.mul_(*weight);
  }
  if (reduction == at::Reduction::Mean) {
    grad_input.div_(self.numel());
  }
  return grad_input;
}

Tensor binary_cross_entropy_backward(const Tensor& grad_output,
                                     const Tensor& self,
                                     const Tensor& target,
                                     const OptionalTensor& weight,
                                     int64_t reduction) {
  Tensor grad_input = at::empty_like(self);
  return binary_cross_entropy_backward_out(
      grad_output, self, target, weight, reduction, grad_input);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::binary_cross_entropy, &binary_cross_entropy>(m);
  native<at::_ops::binary_cross_entropy_out, &binary_cross_entropy_out>(m);
  native<at::_ops::binary_cross_entropy_backward,
         &binary_cross_entropy_backward>(m);
  native<at::_ops::binary_cross_entropy_backward_grad_input,
         &binary_cross_entropy_backward_out>(m);
}

}  // namespace torch_opencl::ops
