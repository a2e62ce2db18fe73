// masked_fill_: the functional variant follows from it.
#include "../../cpp/aten/fallback.h"
#include "pointwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/masked_fill_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using aten::Numbers;

constexpr PointwiseOp kFillScalar{
    .name = "masked_fill",
    .expression = "mask != 0 ? value : self",
    .complex_expression = "c_true(mask) ? value : self",
    .inputs = "mask self",
    .scalars = "value",
    .is_vectorizable = true,
    .checks_scalars = true};
constexpr PointwiseOp kFillTensor{
    .name = "masked_fill_tensor",
    .expression = "mask != 0 ? value : self",
    .complex_expression = "c_true(mask) ? value : self",
    .inputs = "mask value self",
    .is_vectorizable = true};

// `value` is an operand, where defined.
void masked_fill(Tensor& self,
                 const Tensor& mask,
                 const Tensor& value,
                 const PointwiseOp& op,
                 c10::ArrayRef<at::Scalar> scalars) {
  TORCH_CHECK(self.device() == mask.device(),
              "expected self and mask to be on the same device, but got mask "
              "on ",
              mask.device(),
              " and self on ",
              self.device());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_fill only supports boolean masks, but got dtype ",
              mask.scalar_type());
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    TORCH_WARN(
        "Use of masked_fill_ on expanded tensors is deprecated. Please clone() "
        "the tensor before performing this operation. This also applies to "
        "advanced indexing e.g. tensor[mask] = scalar");
  }
  at::assert_no_partial_overlap(self, mask);
  const auto expanded = at::expand_inplace(self, mask, "masked_fill_");
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .resize_outputs(false)
      .add_output(self)
      .add_const_input(*expanded);
  if (value.defined()) {
    config.add_const_input(value);
  }
  auto iter = config.add_const_input(self).build();
  pointwise(iter, op, scalars);
}

Tensor& masked_fill_scalar(Tensor& self,
                           const Tensor& mask,
                           const at::Scalar& value) {
  masked_fill(self, mask, Tensor(), kFillScalar, {value});
  return self;
}

Tensor& masked_fill_tensor(Tensor& self,
                           const Tensor& mask,
                           const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill only supports a 0-dimensional value tensor, but got "
              "tensor with ",
              value.dim(),
              " dimension(s).");
  // A number that may not fit is looked at, which waits for it.
  if (value.is_cpu() ||
      c10::promoteTypes(self.scalar_type(), value.scalar_type()) !=
          self.scalar_type()) {
    return masked_fill_scalar(self, mask, value.item());
  }
  masked_fill(self, mask, value, kFillTensor, {});
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar",
         &aten::WithFallback<at::_ops::masked_fill__Scalar,
                             &masked_fill_scalar,
                             Numbers::kRealAndComplex>::call);
  m.impl("masked_fill_.Tensor",
         &aten::WithFallback<at::_ops::masked_fill__Tensor,
                             &masked_fill_tensor,
                             Numbers::kRealAndComplex>::call);
}

}  // namespace torch_opencl::ops
