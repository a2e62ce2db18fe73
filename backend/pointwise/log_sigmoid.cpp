// log_sigmoid, in ATen's CUDA form: the buffer stays empty.
#include "../../cpp/aten/launch.h"
#include "pointwise.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_sigmoid_backward_native.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

constexpr PointwiseOp kLogSigmoid{
    "log_sigmoid", "log_sigmoid(self)", "", "", "self", "", true};

std::tuple<Tensor&, Tensor&> log_sigmoid_forward_output(const Tensor& self,
                                                        Tensor& output,
                                                        Tensor& buffer) {
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

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("log_sigmoid_forward", TORCH_FN(log_sigmoid_forward));
  m.impl("log_sigmoid_forward.output", TORCH_FN(log_sigmoid_forward_output));
  // The out variant and the stub's kernel are in the table.
  m.impl("log_sigmoid_backward",
         TORCH_FN(at::native::log_sigmoid_backward_cuda));
}

}  // namespace torch_opencl::ops
