// binary_cross_entropy and its gradient.
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"

#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor reduced(const Tensor& loss, int64_t reduction) {
  if (reduction == at::Reduction::Mean) {
    return loss.mean();
  }
  return reduction == at::Reduction::Sum ? loss.sum() : loss;
}

// Logarithms stop at -100: a sure and wrong answer costs a finite loss.
Tensor binary_cross_entropy(const Tensor& self,
                            const Tensor& target,
                            const OptionalTensor& weight,
                            int64_t reduction) {
  check_floating("binary_cross_entropy", self);
  Tensor loss = target.sub(1)
                    .mul_(self.neg().log1p_().clamp_min_(-100))
                    .sub_(target.mul(self.log().clamp_min_(-100)));
  if (is_given(weight)) {
    loss.mul_(*weight);
  }
  return reduced(loss, reduction);
}

Tensor& binary_cross_entropy_out(const Tensor& self,
                                 const Tensor& target,
                                 const OptionalTensor& weight,
                                 int64_t reduction,
                                 Tensor& out) {
  const Tensor loss = binary_cross_entropy(self, target, weight, reduction);
  at::native::resize_output(out, loss.sizes());
  return out.copy_(loss);
}

Tensor binary_cross_entropy_backward(const Tensor& grad_output,
                                     const Tensor& self,
                                     const Tensor& target,
                                     const OptionalTensor& weight,
                                     int64_t reduction) {
  check_floating("binary_cross_entropy_backward", self);
  const Tensor slope = self.neg().add_(1).mul_(self).clamp_min_(1e-12);
  Tensor grad = self.sub(target).mul_(grad_output).div_(slope);
  if (is_given(weight)) {
    grad.mul_(*weight);
  }
  return reduction == at::Reduction::Mean ? grad.div_(self.numel()) : grad;
}

Tensor& binary_cross_entropy_backward_out(const Tensor& grad_output,
                                          const Tensor& self,
                                          const Tensor& target,
                                          const OptionalTensor& weight,
                                          int64_t reduction,
                                          Tensor& grad_input) {
  const Tensor grad = binary_cross_entropy_backward(
      grad_output, self, target, weight, reduction);
  at::native::resize_output(grad_input, grad.sizes());
  return grad_input.copy_(grad);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  m.impl("binary_cross_entropy.out", TORCH_FN(binary_cross_entropy_out));
  m.impl("binary_cross_entropy_backward",
         TORCH_FN(binary_cross_entropy_backward));
  m.impl("binary_cross_entropy_backward.grad_input",
         TORCH_FN(binary_cross_entropy_backward_out));
}

}  // namespace torch_opencl::ops
