// Ops whose device-generic host functions in ATen only call other ops.
#include "../../cpp/aten/structured.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/glu_backward_jvp_native.h>
#include <ATen/ops/glu_backward_native.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/mvlgamma_native.h>
#include <ATen/ops/mvlgamma_ops.h>
#include <ATen/ops/norm_native.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_native.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/remainder_native.h>
#include <ATen/ops/rsub_native.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/silu_backward.h>
#include <torch/library.h>

namespace torch_opencl::ops {

using at::Scalar;
using at::Tensor;
using aten::Numbers;
using aten::WithFallback;

namespace {

// In its input's memory format, as torch.compile expects it; the CPU's op
// returns contiguous memory.
Tensor glu_backward(const Tensor& grad_output,
                    const Tensor& self,
                    int64_t dim) {
  Tensor grad_input =
      at::empty(self.sizes(), self.options(), self.suggest_memory_format());
  return at::native::glu_backward_cpu_out(grad_output, self, dim, grad_input);
}

// Registered by itself: autograd takes ATen's composition of seven ops for a
// backend that has the out-variant alone.
Tensor silu_backward(const Tensor& grad_output, const Tensor& self) {
  Tensor grad_input = at::empty({0}, self.options());
  at::silu_backward_out(grad_input, grad_output, self);
  return grad_input;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("glu_backward",
         &WithFallback<at::_ops::glu_backward, &glu_backward>::call);
  m.impl("glu_backward_jvp", TORCH_FN(at::native::glu_backward_jvp));
  m.impl("hardtanh",
         &WithFallback<at::_ops::hardtanh, &at::native::hardtanh>::call);
  m.impl("hardtanh_",
         &WithFallback<at::_ops::hardtanh_, &at::native::hardtanh_>::call);
  m.impl(
      "hardtanh.out",
      &WithFallback<at::_ops::hardtanh_out, &at::native::hardtanh_out>::call);
  m.impl("isnan",
         &WithFallback<at::_ops::isnan,
                       &at::native::isnan,
                       Numbers::kRealAndComplex>::call);
  m.impl(
      "mvlgamma.out",
      &WithFallback<at::_ops::mvlgamma_out, &at::native::mvlgamma_out>::call);
  aten::structured<at::native::structured_norm_out,
                   at::_ops::norm_out,
                   Numbers::kRealAndComplex>(m);
  aten::structured<at::native::structured_norm_dtype_out,
                   at::_ops::norm_dtype_out,
                   Numbers::kRealAndComplex>(m);
  aten::structured<at::native::structured_pow_Scalar_out,
                   at::_ops::pow_Scalar_out,
                   Numbers::kRealAndComplex>(m);
  m.impl("relu", &WithFallback<at::_ops::relu, &at::native::relu>::call);
  m.impl("relu_", &WithFallback<at::_ops::relu_, &at::native::relu_>::call);
  m.impl("remainder.Scalar_Tensor",
         static_cast<Tensor (*)(const Scalar&, const Tensor&)>(
             &at::native::remainder));
  constexpr auto rsub =
      static_cast<Tensor (*)(const Tensor&, const Tensor&, const Scalar&)>(
          &at::native::rsub);
  m.impl("silu_backward", TORCH_FN(silu_backward));
  m.impl("rsub.Tensor",
         &WithFallback<at::_ops::rsub_Tensor, rsub, Numbers::kRealAndComplex>::
             call);
}

}  // namespace torch_opencl::ops
