// sum, which reads bool, integers and halves unconverted, whatever dtype the
// total has: ATen's host function would make a converted copy first.
#include "reduction.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/view_as_real.h>

#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../epilogue/epilogue.h"

#include <numeric>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr ReductionOp kSum{"sum.IntList_out",
                           "compute_t",
                           "0",
                           "state + x",
                           "a + b",
                           {"state"},
                           "",
                           true,
                           "",
                           true};

bool is_read_as_it_lies(at::ScalarType from, at::ScalarType to) {
  return (to == at::kLong && at::isIntegralType(from, true) &&
          from != at::kUInt64) ||
         (to == at::kFloat && at::isReducedFloatingType(from));
}

// Real and imaginary parts by themselves.
void sum_parts(const Tensor& self,
               at::OptionalIntArrayRef dim,
               bool keepdim,
               const Tensor& result) {
  at::DimVector dims = at::native::make_dim_vector(dim, self.dim());
  if (dims.empty()) {
    dims.resize(self.dim());
    std::iota(dims.begin(), dims.end(), 0);
  }
  at::maybe_wrap_dims(dims, self.dim());
  if (self.dim() == 0) {
    result.copy_(self);
    return;
  }
  Tensor parts = at::view_as_real(result);
  at::sum_out(parts, at::view_as_real(self.resolve_conj()), dims, keepdim);
}

struct sum_out : at::meta::structured_sum_dim_IntList {
  void impl(const Tensor& self,
            at::OptionalIntArrayRef dim,
            bool keepdim,
            std::optional<at::ScalarType>,
            const Tensor& result) {
    const at::ScalarType type = result.scalar_type();
    if (at::isComplexType(type)) {
      sum_parts(self.to(type), dim, keepdim, result);
      return;
    }
    const bool converts = is_read_as_it_lies(self.scalar_type(), type);
    auto iter = at::meta::make_reduction(
        self, result, dim, keepdim, converts ? self.scalar_type() : type);
    if (iter.numel() == 0) {
      result.zero_();
      return;
    }
    // The gradient of a bias does not keep what is pending from its own.
    launch_ahead(result, {self}, {result}, [&] {
      reduce(iter, kSum, {}, compute_type(type));
    });
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<sum_out, at::_ops::sum_IntList_out, Numbers::kRealAndComplex>(m);
}

}  // namespace torch_opencl::ops
