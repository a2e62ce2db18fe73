// Pointwise ops with two outputs: one run of the engine for each.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "pointwise.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/_prelu_kernel_backward_native.h>
#include <ATen/ops/frexp_native.h>
#include <ATen/ops/frexp_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

constexpr const char* kPreluInputs = "self weight grad_output";
constexpr PointwiseOp kPreluGradSelf{
    .name = "prelu_grad_self",
    .expression = "self > 0 ? grad_output : weight * grad_output",
    .inputs = kPreluInputs,
    .is_vectorizable = true};
constexpr PointwiseOp kPreluGradWeight{
    .name = "prelu_grad_weight",
    .expression = "self > 0 ? 0 : self * grad_output",
    .inputs = kPreluInputs,
    .is_vectorizable = true};

constexpr PointwiseOp kFrexpMantissa{.name = "frexp_mantissa",
                                     .expression = "frexp_mantissa(self)",
                                     .inputs = "self",
                                     .uses_math = true};
constexpr PointwiseOp kFrexpExponent{.name = "frexp_exponent",
                                     .expression = "frexp_exponent(self)",
                                     .inputs = "self",
                                     .uses_math = true};

void run(const at::TensorIteratorBase& iter,
         int output,
         const PointwiseOp& op) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).resize_outputs(false);
  config.add_output(iter.tensor(output));
  for (int i = iter.noutputs(); i < iter.ntensors(); ++i) {
    config.add_const_input(iter.tensor(i));
  }
  auto single = config.build();
  pointwise(single, op, {});
}

void prelu_backward(at::TensorIterator& iter) {
  run(iter, 0, kPreluGradSelf);
  run(iter, 1, kPreluGradWeight);
}

void frexp(at::TensorIteratorBase& iter) {
  // The exponent first: the mantissa may be written over the input.
  run(iter, 1, kFrexpExponent);
  run(iter, 0, kFrexpMantissa);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_prelu_kernel_backward",
         TORCH_FN(at::native::_prelu_kernel_backward));
  aten::native<at::_ops::frexp_Tensor_out, &at::native::frexp_out>(m);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(prelu_backward_stub,
                              &torch_opencl::ops::prelu_backward)
REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, &torch_opencl::ops::frexp)

}  // namespace at::native
