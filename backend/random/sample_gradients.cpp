// _standard_gamma_grad and _dirichlet_grad: gradients of random numbers by the
// parameters of their distributions.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../pointwise/pointwise.h"

#include <ATen/ops/_dirichlet_grad_ops.h>
#include <ATen/ops/_standard_gamma_grad_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr PointwiseOp kGamma{
    .name = "_standard_gamma_grad",
    .expression = "gamma_sample_gradient(self, output)",
    .inputs = "self output",
    .uses_math = true,
    .dtypes = Dtypes::kFloating};
constexpr PointwiseOp kDirichlet{
    .name = "_dirichlet_grad",
    .expression = "beta_sample_gradient(x, alpha, total)",
    .inputs = "x alpha total",
    .uses_math = true,
    .dtypes = Dtypes::kFloating};

Tensor compute(const PointwiseOp& op, std::initializer_list<Tensor> inputs) {
  const Tensor out;
  at::TensorIteratorConfig config;
  config.add_output(out);
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  auto iter = config.build();
  pointwise(iter, op, {});
  return iter.output();
}

Tensor standard_gamma_grad(const Tensor& self, const Tensor& output) {
  check_floating("_standard_gamma_grad_cpu", self);
  return compute(kGamma, {self, output});
}

Tensor dirichlet_grad(const Tensor& x,
                      const Tensor& alpha,
                      const Tensor& total) {
  check_floating("_dirichlet_grad_cpu", x);
  return compute(kDirichlet, {x, alpha, total});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma_grad",
         &WithFallback<at::_ops::_standard_gamma_grad,
                       &standard_gamma_grad>::call);
  m.impl("_dirichlet_grad",
         &WithFallback<at::_ops::_dirichlet_grad, &dirichlet_grad>::call);
}

}  // namespace torch_opencl::ops
