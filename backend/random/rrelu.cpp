// rrelu_with_noise: leaky_relu with a random slope, which `noise` keeps for the
// gradient.
#include "../../cpp/aten/fallback.h"
#include "../common/dtype_check.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rrelu_with_noise_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

Tensor& rrelu_with_noise_out(const Tensor& self,
                             Tensor& noise,
                             const Scalar& lower,
                             const Scalar& upper,
                             bool training,
                             MaybeGenerator generator,
                             Tensor& out) {
  TORCH_CHECK(self.sym_sizes() == noise.sym_sizes(),
              "noise tensor shape must match self tensor shape. Got "
              "self.shape = ",
              self.sizes(),
              " noise.shape = ",
              noise.sizes());
  at::native::resize_output(out, self.sizes());
  if (!training) {
    const double slope = (lower.toDouble() + upper.toDouble()) / 2;
    return at::leaky_relu_out(out, self, slope);
  }
  check_floating("rrelu_with_noise_out_cpu", self);
  check_scalar_type(out, self.scalar_type());
  const Tensor slopes = at::empty_like(self);
  slopes.uniform_(lower.toDouble(), upper.toDouble(), std::move(generator));
  noise.copy_(slopes.masked_fill_(self.le(0).logical_not_(), 1));
  return at::mul_out(out, self, slopes);
}

Tensor rrelu_with_noise(const Tensor& self,
                        Tensor& noise,
                        const Scalar& lower,
                        const Scalar& upper,
                        bool training,
                        MaybeGenerator generator) {
  Tensor out = at::empty_like(self);
  return rrelu_with_noise_out(
      self, noise, lower, upper, training, std::move(generator), out);
}

Tensor& rrelu_with_noise_(Tensor& self,
                          Tensor& noise,
                          const Scalar& lower,
                          const Scalar& upper,
                          bool training,
                          MaybeGenerator generator) {
  return rrelu_with_noise_out(
      self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using aten::WithFallback;
  m.impl("rrelu_with_noise.out",
         &WithFallback<at::_ops::rrelu_with_noise_out,
                       &ops::rrelu_with_noise_out>::call);
  m.impl(
      "rrelu_with_noise",
      &WithFallback<at::_ops::rrelu_with_noise, &ops::rrelu_with_noise>::call);
  m.impl("rrelu_with_noise_",
         &WithFallback<at::_ops::rrelu_with_noise_,
                       &ops::rrelu_with_noise_>::call);
}

}  // namespace torch_opencl::ops
