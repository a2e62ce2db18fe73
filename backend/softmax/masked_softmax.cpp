// _masked_softmax: softmax of what a mask leaves, made of other ops.
#include "../common/dtype_check.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

// The mask in the shape of `self`: (L, L) of type 0 and (B, L) of type 1 are
// those of scores (B, H, L, L).
Tensor expanded_mask(const Tensor& self, const Tensor& mask, int64_t type) {
  if (type == 0) {
    TORCH_CHECK(mask.dim() == 2 && self.size(2) == mask.size(0) &&
                    self.size(2) == mask.size(1),
                "For mask_type == 0 mask shape should be (L, L)");
    return mask.expand(self.sizes());
  }
  if (type == 1) {
    TORCH_CHECK(self.size(0) == mask.size(0) && self.size(2) == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    return mask.view({mask.size(0), 1, 1, mask.size(1)}).expand(self.sizes());
  }
  TORCH_CHECK(self.sizes() == mask.sizes(),
              "For mask_type == 2 mask shape should match input shape");
  return mask;
}

Tensor _masked_softmax(const Tensor& self,
                       const Tensor& mask,
                       std::optional<int64_t> dim,
                       std::optional<int64_t> mask_type) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "Mask should be a boolean tensor");
  const bool are_scores = mask.dim() == 2 && self.dim() == 4;
  const Tensor masked =
      expanded_mask(self, mask, are_scores ? mask_type.value_or(2) : 2);
  check_floating("masked_softmax", self);
  const int64_t along = at::maybe_wrap_dim(dim.value_or(-1), self.dim());
  return at::_softmax(
      self.masked_fill(masked, -std::numeric_limits<double>::infinity()),
      along,
      false);
}

// Of a row that is masked throughout the softmax is NaN, and has no gradient.
Tensor _masked_softmax_backward(const Tensor& grad,
                                const Tensor& output,
                                const Tensor& mask,
                                std::optional<int64_t> dim) {
  TORCH_CHECK(grad.sizes() == mask.sizes(),
              "Mask shape should match grad shape");
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "Mask should be a boolean tensor");
  check_floating("masked_softmax_backward", grad);
  const int64_t along = at::maybe_wrap_dim(dim.value_or(-1), grad.dim());
  return at::_softmax_backward_data(
             grad, output.masked_fill(mask, 0), along, grad.scalar_type())
      .masked_fill(mask, 0);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_masked_softmax", TORCH_FN(_masked_softmax));
  m.impl("_masked_softmax_backward", TORCH_FN(_masked_softmax_backward));
}

}  // namespace torch_opencl::ops
