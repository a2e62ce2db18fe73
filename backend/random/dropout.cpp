// native_dropout and its backward.
#include "../../cpp/aten/fallback.h"
#include "../common/dtype_check.h"
#include "../epilogue/epilogue.h"
#include "../pointwise/pointwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr PointwiseOp kApplyMask{.name = "native_dropout",
                                 .expression = "self * mask * scale",
                                 .inputs = "self mask",
                                 .scalars = "scale",
                                 .is_vectorizable = true};

Tensor apply_mask(const Tensor& self, const Tensor& mask, double scale) {
  Tensor out = at::empty_like(self);
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(self)
                  .add_const_input(mask)
                  .check_all_same_dtype(false)
                  .build();
  pointwise(iter, kApplyMask, {scale});
  return out;
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input,
                                          double p,
                                          std::optional<bool> train) {
  const bool is_training = train.value_or(true);
  if (!is_training || p == 0) {
    return {input.clone(),
            at::ones_like(input, input.options().dtype(at::kBool))};
  }
  if (p == 1) {
    return {at::zeros_like(input),
            at::zeros_like(input, input.options().dtype(at::kBool))};
  }
  check_castable(at::kFloat, input);
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  launch_ahead(mask, {}, {mask}, [&] { mask.bernoulli_(1 - p); });
  return {apply_mask(input, mask, 1 / (1 - p)), mask};
}

Tensor native_dropout_backward(const Tensor& grad_output,
                               const Tensor& mask,
                               double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "Mask should be Bool Scalar Type",
              mask.scalar_type());
  if (!grad_output.is_floating_point()) {
    return grad_output.mul(mask.to(grad_output.scalar_type()).mul(scale));
  }
  return apply_mask(grad_output, mask, scale);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout",
         &WithFallback<at::_ops::native_dropout, &native_dropout>::call);
  m.impl("native_dropout_backward",
         &WithFallback<at::_ops::native_dropout_backward,
                       &native_dropout_backward>::call);
}

}  // namespace torch_opencl::ops
