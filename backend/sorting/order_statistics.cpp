// topk, kthvalue, median, nanmedian and mode: elements at a rank of rows, which
// GPUs sort.
#include "selection.h"
#include "sort.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/kthvalue_ops.h>
#include <ATen/ops/median_ops.h>
#include <ATen/ops/mode_ops.h>
#include <ATen/ops/nanmedian_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk_meta.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

struct topk_out : at::meta::structured_topk {
  void impl(const Tensor& self,
            int64_t k,
            int64_t dim,
            bool largest,
            bool,
            const Tensor& values,
            const Tensor& indices) {
    if (values.numel() == 0) {
      return;
    }
    dim = at::maybe_wrap_dim(dim, self.dim());
    const Tensor rows = as_rows(self, dim);
    const Tensor order = sorted_order(rows, largest, self.dim() ? k : 1);
    values.copy_(from_rows(rows.gather(1, order), self, dim));
    indices.copy_(from_rows(order, self, dim));
  }
};

using Pair = std::tuple<Tensor, Tensor>;
using PairOfOuts = std::tuple<Tensor&, Tensor&>;

// Writes the elements in the columns that `columns_of` chooses of rows, as
// (rows, 1).
template <class Columns>
void select(const Tensor& self,
            int64_t dim,
            bool keepdim,
            Tensor& values,
            Tensor& indices,
            const Columns& columns_of) {
  at::assert_no_overlap(values, indices);
  at::assert_no_overlap(self, values);
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    sizes[dim] = 1;
    if (!keepdim) {
      sizes.erase(sizes.begin() + dim);
    }
  }
  at::native::resize_output(values, sizes);
  at::native::resize_output(indices, sizes);
  at::assert_no_internal_overlap(values);
  if (values.numel() == 0) {
    return;
  }
  const Tensor rows = as_rows(self, dim);
  const Tensor chosen = columns_of(rows);
  values.copy_(rows.gather(1, chosen).view(sizes));
  indices.copy_(chosen.view(sizes));
}

template <class Out, class... T>
Pair functional(const Out& out, const Tensor& self, const T&... arguments) {
  Tensor values = at::empty({0}, self.options());
  Tensor indices = at::empty({0}, self.options().dtype(at::kLong));
  out(self, arguments..., values, indices);
  return {values, indices};
}

Tensor ranks(const Tensor& rows, RankRule rule, int64_t rank) {
  const Tensor given =
      at::full({rows.size(0), 1}, rank, rows.options().dtype(at::kLong));
  if (rule == RankRule::kGiven) {
    return given;
  }
  const Tensor numbers = rows.isnan().logical_not_().sum(1, true);
  if (rule == RankRule::kNanMedian) {
    return numbers.sub(1).clamp_min_(0).div_(2, "floor");
  }
  return at::where(numbers.eq(rows.size(1)), given, numbers);
}

Tensor column_at(const Tensor& rows, RankRule rule, int64_t rank) {
  if (aten::device_of(rows).is_cpu()) {
    return selected_columns(rows, rule, rank);
  }
  const Tensor order = sorted_order(rows, false, rows.size(1));
  return order.gather(1, ranks(rows, rule, rank));
}

// The lower median: of NaN, which is sorted last, the first; or as if there
// were none (`ignores_nan`).
Tensor median_column(const Tensor& rows, bool ignores_nan) {
  const RankRule rule = !rows.is_floating_point() ? RankRule::kGiven
                        : ignores_nan             ? RankRule::kNanMedian
                                                  : RankRule::kMedian;
  return column_at(rows, rule, (rows.size(1) - 1) / 2);
}

PairOfOuts kthvalue_out(const Tensor& self,
                        int64_t k,
                        int64_t dim,
                        bool keepdim,
                        Tensor& values,
                        Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  TORCH_CHECK(k > 0 && k <= (self.dim() > 0 ? self.size(dim) : 1),
              "kthvalue(): selected number k out of range for dimension ",
              dim);
  check_number("kthvalue_cpu", self);
  at::assert_no_overlap(self, values);
  TORCH_CHECK(values.scalar_type() == self.scalar_type(),
              "output values must be of same type as input");
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "output indices must be of scalar type Long");
  select(self, dim, keepdim, values, indices, [&](const Tensor& rows) {
    return column_at(rows, RankRule::kGiven, k - 1);
  });
  return {values, indices};
}

PairOfOuts median_dim_out(const char* name,
                          const Tensor& self,
                          int64_t dim,
                          bool keepdim,
                          bool ignores_nan,
                          Tensor& values,
                          Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, name);
  check_number("median_out", self);
  at::checkScalarType("median", {indices, "indices", 1}, at::kLong);
  at::checkSameType("median", {values, "values", 0}, {self, "self", 2});
  select(self, dim, keepdim, values, indices, [&](const Tensor& rows) {
    return median_column(rows, ignores_nan);
  });
  return {values, indices};
}

PairOfOuts median_out(const Tensor& self,
                      int64_t dim,
                      bool keepdim,
                      Tensor& values,
                      Tensor& indices) {
  return median_dim_out("median()", self, dim, keepdim, false, values, indices);
}

PairOfOuts nanmedian_out(const Tensor& self,
                         int64_t dim,
                         bool keepdim,
                         Tensor& values,
                         Tensor& indices) {
  return median_dim_out(
      "nanmedian()", self, dim, keepdim, true, values, indices);
}

Tensor median_of_all(const Tensor& self, bool ignores_nan) {
  check_number("median_cpu", self);
  if (self.numel() == 0) {
    return at::full(
        {}, std::numeric_limits<float>::quiet_NaN(), self.options());
  }
  const Tensor rows = self.reshape({1, -1}).contiguous();  // copy: a row
  return rows.gather(1, median_column(rows, ignores_nan)).reshape({});
}

Tensor median(const Tensor& self) {
  return median_of_all(self, false);
}

Tensor nanmedian(const Tensor& self) {
  return median_of_all(self, true);
}

PairOfOuts mode_out(const Tensor& self,
                    int64_t dim,
                    bool keepdim,
                    Tensor& values,
                    Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "mode()");
  check_sortable("mode_cpu", self);
  const auto check =
      [](const Tensor& out, at::ScalarType wanted, const char* name) {
        TORCH_CHECK(out.scalar_type() == wanted,
                    "expected scalar type '",
                    wanted,
                    "' but got '",
                    out.scalar_type(),
                    "' for ",
                    name,
                    " output");
      };
  check(values, self.scalar_type(), "values");
  check(indices, at::kLong, "indices");
  select(self, dim, keepdim, values, indices, [](const Tensor& rows) {
    const Tensor order = sorted_order(rows, false, rows.size(1));
    const Tensor sorted = rows.gather(1, order);
    const Tensor rank = at::empty({rows.size(0), 1}, order.options());
    launch(rows,
           sources::order_statistics,
           "mode_of_rows",
           {{"DTYPE", dtype_of(rows)}},
           range(rows.size(0), 16),
           arg_in(sorted),
           arg(rank),
           static_cast<uint64_t>(rows.size(0)),
           rows.size(1));
    return order.gather(1, rank);
  });
  return {values, indices};
}

Pair kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  return functional(kthvalue_out, self, k, dim, keepdim);
}

Pair mode(const Tensor& self, int64_t dim, bool keepdim) {
  return functional(mode_out, self, dim, keepdim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<topk_out, at::_ops::topk_values>(m);
  native<at::_ops::kthvalue, &kthvalue>(m);
  native<at::_ops::kthvalue_values, &kthvalue_out>(m);
  native<at::_ops::median, &median>(m);
  native<at::_ops::nanmedian, &nanmedian>(m);
  native<at::_ops::median_dim_values, &median_out>(m);
  native<at::_ops::nanmedian_dim_values, &nanmedian_out>(m);
  native<at::_ops::mode, &mode>(m);
  native<at::_ops::mode_values, &mode_out>(m);
}

}  // namespace torch_opencl::ops
