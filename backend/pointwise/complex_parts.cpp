// complex and polar: complex numbers of two real ones.
#include "pointwise.h"

#include "../../cpp/aten/fallback.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/complex_native.h>
#include <ATen/ops/complex_ops.h>
#include <ATen/ops/polar_native.h>
#include <ATen/ops/polar_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using aten::Numbers;
using aten::WithFallback;

constexpr PointwiseOp kComplex{
    .name = "complex",
    .expression = "",
    .complex_expression = "result = complex_of(real, imag)",
    .inputs = "real imag",
    .outputs = "result"};
constexpr PointwiseOp kPolar{
    .name = "polar",
    .expression = "",
    .complex_expression =
        "result = complex_of(length * cosine(angle), length * sine(angle))",
    .inputs = "length angle",
    .uses_complex_math = true,
    .outputs = "result"};

void complex(at::TensorIterator& iter) {
  pointwise(iter, kComplex, {});
}

void polar(at::TensorIterator& iter) {
  pointwise(iter, kPolar, {});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("complex.out",
         &WithFallback<at::_ops::complex_out,
                       &at::native::complex_out,
                       Numbers::kRealAndComplex>::call);
  m.impl("polar.out",
         &WithFallback<at::_ops::polar_out,
                       &at::native::polar_out,
                       Numbers::kRealAndComplex>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(complex_stub, &torch_opencl::ops::complex)
REGISTER_PRIVATEUSE1_DISPATCH(polar_stub, &torch_opencl::ops::polar)

}  // namespace at::native
