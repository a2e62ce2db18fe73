// max and min: over one dimension with indices, and over all elements.
#include "reduction.h"

#include <ATen/native/ReduceAllOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/max_native.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/min_native.h>
#include <ATen/ops/min_ops.h>

#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr ReductionOp kMaximum{"max.dim_max",
                               "value_index_t",
                               "value_at(LOWEST, LONG_MAX)",
                               "greater_at(state, value_at(x, index))",
                               "greater_at(a, b)",
                               {"state.value", "state.index"},
                               "",
                               false,
                               "greater_of"};
constexpr ReductionOp kMinimum{"min.dim_min",
                               "value_index_t",
                               "value_at(HIGHEST, LONG_MAX)",
                               "smaller_at(state, value_at(x, index))",
                               "smaller_at(a, b)",
                               {"state.value", "state.index"},
                               "",
                               false,
                               "smaller_of"};

template <class Meta, const ReductionOp& kOp>
struct ExtremeWithIndex : Meta {
  void impl(const typename Meta::meta_return_ty& precomputed,
            const Tensor& self,
            int64_t /*dim*/,
            bool keepdim,
            const Tensor& values,
            const Tensor& indices) {
    if (self.dim() == 0) {
      values.copy_(self);
      indices.zero_();
      return;
    }
    Tensor result = values;
    // One kernel writes both by the same strides.
    Tensor result_indices =
        values.strides() == indices.strides()
            ? indices
            : at::empty_strided(
                  values.sizes(), values.strides(), indices.options());
    auto iter = at::native::make_reduction(kOp.name,
                                           result,
                                           result_indices,
                                           self,
                                           precomputed.dim,
                                           keepdim,
                                           self.scalar_type(),
                                           at::kLong);
    reduce(iter, kOp, {});
    if (!result_indices.is_same(indices)) {
      indices.copy_(result_indices);
    }
  }
};

void maximum_of_all(Tensor& result, const Tensor& self) {
  at::amax_out(result, self);
}

void minimum_of_all(Tensor& result, const Tensor& self) {
  at::amin_out(result, self);
}

void check_not_empty(const Tensor& self, const char* op) {
  TORCH_CHECK(self.numel() > 0,
              op,
              "(): Expected reduction dim to be specified for input.numel() == "
              "0. Specify the reduction dim with the 'dim' argument.");
}

// As on the CPU `out` may have another dtype, which amax's may not.
Tensor& store_extreme(const Tensor& extreme, Tensor& out) {
  check_castable(extreme.scalar_type(), out);
  at::native::resize_output(out, extreme.sizes());
  return out.copy_(extreme);
}

Tensor& max_unary_out(const Tensor& self, Tensor& out) {
  check_not_empty(self, "max");
  return store_extreme(at::amax(self), out);
}

Tensor& min_unary_out(const Tensor& self, Tensor& out) {
  check_not_empty(self, "min");
  return store_extreme(at::amin(self), out);
}

struct aminmax_out : at::meta::structured_aminmax {
  void impl(const Tensor& self,
            std::optional<int64_t> dim,
            bool keepdim,
            const Tensor& min,
            const Tensor& max) {
    const auto dims =
        dim.has_value() ? std::vector<int64_t>{*dim} : std::vector<int64_t>{};
    min.copy_(at::amin(self, dims, keepdim));
    max.copy_(at::amax(self, dims, keepdim));
  }
};

// The older form of aminmax.
std::tuple<Tensor, Tensor> _aminmax(const Tensor& self) {
  return at::aminmax(self);
}

std::tuple<Tensor, Tensor> _aminmax_dim(const Tensor& self,
                                        int64_t dim,
                                        bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

}  // namespace

using MaxUnary = Tensor (*)(const Tensor&);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<aminmax_out, at::_ops::aminmax_out>(m);
  m.impl("_aminmax", TORCH_FN(_aminmax));
  m.impl("_aminmax.dim", TORCH_FN(_aminmax_dim));
  structured<ExtremeWithIndex<at::meta::structured_max_dim, kMaximum>,
             at::_ops::max_dim_max>(m);
  structured<ExtremeWithIndex<at::meta::structured_min_dim, kMinimum>,
             at::_ops::min_dim_min>(m);
  m.impl("max",
         &WithFallback<at::_ops::max,
                       static_cast<MaxUnary>(&at::native::max)>::call);
  m.impl("min",
         &WithFallback<at::_ops::min,
                       static_cast<MaxUnary>(&at::native::min)>::call);
  m.impl("max.unary_out",
         &WithFallback<at::_ops::max_unary_out, &max_unary_out>::call);
  m.impl("min.unary_out",
         &WithFallback<at::_ops::min_unary_out, &min_unary_out>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(max_all_stub, &torch_opencl::ops::maximum_of_all)
REGISTER_PRIVATEUSE1_DISPATCH(min_all_stub, &torch_opencl::ops::minimum_of_all)

}  // namespace at::native
