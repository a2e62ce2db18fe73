// log_sigmoid. Its buffer stays empty: it serves ATen's CPU kernels alone.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "pointwise.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using aten::native;

constexpr PointwiseOp kLogSigmoid{.name = "log_sigmoid",
                                  .expression = "log_sigmoid(self)",
                                  .inputs = "self",
                                  .uses_math = true,
                                  .is_vectorizable = true};
constexpr PointwiseOp kLogSigmoidBackward{
    .name = "log_sigmoid_backward",
    .expression = "grad_output * sigmoid(-self)",
    .inputs = "self grad_output",
    .uses_math = true,
    .is_vectorizable = true};

std::tuple<Tensor&, Tensor&> log_sigmoid_forward_output(const Tensor& self,
                                                        Tensor& output,
                                                        Tensor& buffer) {
  check_floating("log_sigmoid_cpu", self);
  check_scalar_type(output, self.scalar_type());
  check_scalar_type(buffer, self.scalar_type());
  auto iter = at::TensorIteratorConfig()
                  .add_output(output)
                  .add_const_input(self)
                  .build();
  pointwise(iter, kLogSigmoid, {});
  return {output, buffer};
}

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  Tensor output = at::empty_like(self);
  Tensor buffer = at::empty({0}, self.options());
  log_sigmoid_forward_output(self, output, buffer);
  return {output, buffer};
}

Tensor& log_sigmoid_backward_grad_input(const Tensor& grad_output,
                                        const Tensor& self,
                                        const Tensor& /*buffer*/,
                                        Tensor& grad_input) {
  check_floating("log_sigmoid_backward_cpu", self);
  auto iter = at::TensorIteratorConfig()
                  .add_output(grad_input)
                  .add_const_input(self)
                  .add_const_input(grad_output)
                  .build();
  pointwise(iter, kLogSigmoidBackward, {});
  return grad_input;
}

Tensor log_sigmoid_backward(const Tensor& grad_output,
                            const Tensor& self,
                            const Tensor& buffer) {
  Tensor grad_input = at::empty_like(grad_output);
  log_sigmoid_backward_grad_input(grad_output, self, buffer, grad_input);
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::log_sigmoid_forward, &log_sigmoid_forward>(m);
  native<at::_ops::log_sigmoid_forward_output, &log_sigmoid_forward_output>(m);
  native<at::_ops::log_sigmoid_backward, &log_sigmoid_backward>(m);
  native<at::_ops::log_sigmoid_backward_grad_input,
         &log_sigmoid_backward_grad_input>(m);
}

}  // namespace torch_opencl::ops
