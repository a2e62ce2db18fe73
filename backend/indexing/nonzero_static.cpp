// nonzero of a number of places that is given, so that nobody waits for it.
#include "../../cpp/aten/fallback.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero_static_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0,
              "nonzero_static: 'size' must be an non-negative integer");
  const at::TensorOptions options = self.options().dtype(at::kLong);
  if (self.numel() == 0 || size == 0 || self.dim() == 0) {
    Tensor out = at::full({size, self.dim()}, fill_value, options);
    return out;
  }
  // The n-th of them goes to place n; the others to one past the end.
  const Tensor mask = self.ne(0).reshape({-1});
  const Tensor rank = mask.cumsum(0, at::kLong).sub_(1);
  const Tensor place = at::where(mask.logical_and(rank.lt(size)), rank, size);
  Tensor found = at::full({size + 1}, -1, options);
  found.scatter_(0, place, at::arange(self.numel(), options));
  const Tensor positions = found.narrow(0, 0, size);
  const Tensor is_filled = positions.lt(0);
  const Tensor out = at::full({size, self.dim()}, fill_value, options);
  int64_t divisor = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    const Tensor coordinate =
        positions.div(divisor, "floor").remainder_(self.size(d));
    out.select(1, d).copy_(coordinate.masked_fill_(is_filled, fill_value));
    divisor *= self.size(d);
  }
  return out;
}

Tensor& nonzero_static_out(const Tensor& self,
                           int64_t size,
                           int64_t fill_value,
                           Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero_static: Expected out tensor to have scalar type Long "
              "but got scalar type",
              out.scalar_type());
  const Tensor result = nonzero_static(self, size, fill_value);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero_static",
         &WithFallback<at::_ops::nonzero_static,
                       &nonzero_static,
                       Numbers::kRealAndComplex>::call);
  m.impl("nonzero_static.out",
         &WithFallback<at::_ops::nonzero_static_out,
                       &nonzero_static_out,
                       Numbers::kRealAndComplex>::call);
}

}  // namespace torch_opencl::ops
