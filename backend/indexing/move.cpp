// flip and roll: permutations of elements.
#include "../../cpp/aten/fallback.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/roll_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

Tensor flip(const Tensor& self, IntArrayRef dims) {
  at::dim_list_to_bitset(dims, self.dim());  // refuses repeated dimensions
  Tensor result = self.clone(at::MemoryFormat::Preserve);
  for (const int64_t dim : dims) {
    const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
    if (size > 1 && self.numel() > 0) {
      Tensor flipped = at::empty_like(result);
      at::index_select_out(
          flipped,
          result,
          dim,
          at::arange(size - 1, -1, -1, self.options().dtype(at::kLong)));
      result = flipped;
    }
  }
  return result;
}

Tensor roll_one(const Tensor& self, int64_t shift, int64_t dim) {
  const int64_t size = self.size(dim);
  const int64_t first = ((size - shift) % size + size) % size;
  if (first == 0) {
    return self.clone(at::MemoryFormat::Preserve);
  }
  return at::cat(
      {self.narrow(dim, first, size - first), self.narrow(dim, 0, first)}, dim);
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    return self.numel() == 0
               ? self.clone(at::MemoryFormat::Preserve)
               : roll_one(self.reshape({-1}), shifts[0], 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ",
              shifts.size(),
              ", dims:",
              dims.size());
  Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(dims[i], self.dim());
    if (self.numel() > 0) {
      result = roll_one(result, shifts[i], dim);
    }
  }
  return result.is_same(self) ? self.clone(at::MemoryFormat::Preserve) : result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("flip", &WithFallback<at::_ops::flip, &flip>::call);
  m.impl("roll", &WithFallback<at::_ops::roll, &roll>::call);
}

}  // namespace torch_opencl::ops
