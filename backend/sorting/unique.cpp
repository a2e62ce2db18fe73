// unique in all its forms: equal neighbours of a sorted sequence.
#include "sort.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/_unique_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/unique_consecutive_ops.h>
#include <ATen/ops/unique_dim_consecutive_ops.h>
#include <ATen/ops/unique_dim_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using Unique = std::tuple<Tensor, Tensor, Tensor>;

// `starts`: true where an element of the sequence differs from the one before.
// `order`: places of the sequence's elements, or undefined for their own.
Unique collapse(const Tensor& sequence,
                const Tensor& starts,
                const Tensor& order,
                bool return_inverse,
                bool return_counts) {
  const int64_t count = sequence.size(0);
  const at::TensorOptions integers = sequence.options().dtype(at::kLong);
  const Tensor places = starts.nonzero().reshape({-1});
  const Tensor values = sequence.index_select(0, places);
  Tensor inverse = at::empty({0}, integers);
  if (return_inverse) {
    const Tensor ids = starts.cumsum(0).sub_(1);
    inverse = order.defined()
                  ? at::empty({count}, integers).index_copy_(0, order, ids)
                  : ids;
  }
  Tensor counts = at::empty({0}, integers);
  if (return_counts) {
    const Tensor ends = at::cat({places, at::full({1}, count, integers)})
                            .narrow(0, 1, places.size(0));
    counts = ends.sub(places);
  }
  return {values, inverse, counts};
}

// Of the rows of (count, ...) against the ones before.
Tensor starts_of(const Tensor& rows) {
  const int64_t count = rows.size(0);
  const Tensor first = at::full(
      {std::min<int64_t>(count, 1)}, true, rows.options().dtype(at::kBool));
  if (count < 2) {
    return first;
  }
  Tensor differs =
      rows.narrow(0, 1, count - 1).ne(rows.narrow(0, 0, count - 1));
  if (differs.dim() > 1) {
    differs = differs.flatten(1).any(1);
  }
  return at::cat({first, differs});
}

Unique unique2(const Tensor& self,
               bool,
               bool return_inverse,
               bool return_counts) {
  check_sortable("unique", self);
  const Tensor row = self.reshape({1, -1}).contiguous();  // copy: one row
  const Tensor order = sorted_order(row, false, row.size(1));
  const Tensor sorted = row.gather(1, order).reshape({-1});
  auto [values, inverse, counts] = collapse(sorted,
                                            starts_of(sorted),
                                            order.reshape({-1}),
                                            return_inverse,
                                            return_counts);
  return {
      values, return_inverse ? inverse.view(self.sizes()) : inverse, counts};
}

std::tuple<Tensor, Tensor> unique(const Tensor& self,
                                  bool sorted,
                                  bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

void check_sizes(const Tensor& self, int64_t dim) {
  int64_t empty = 0;
  for (const int64_t size : self.sizes()) {
    empty += size == 0;
  }
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty == 1,
                "Number of zero sized dimensions is more than one, so unique "
                "cannot be applied ");
    return;
  }
  TORCH_CHECK(empty == 0,
              "There are 0 sized dimensions, and they aren't selected, so "
              "unique cannot be applied");
}

// `sequence` and `order` are those of the rows along `dim`.
Unique unique_rows(const Tensor& rows,
                   const Tensor& order,
                   int64_t dim,
                   bool return_inverse,
                   bool return_counts) {
  auto [values, inverse, counts] =
      collapse(rows, starts_of(rows), order, return_inverse, return_counts);
  return {values.movedim(0, dim), inverse, counts};
}

Unique unique_dim(const Tensor& self,
                  int64_t dim,
                  bool,
                  bool return_inverse,
                  bool return_counts) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  check_sizes(self, dim);
  check_sortable("unique_dim", self);
  const Tensor rows = self.movedim(dim, 0);
  const int64_t count = rows.size(0);
  Tensor order = at::arange(count, self.options().dtype(at::kLong));
  if (count > 0) {
    const Tensor columns = rows.reshape({count, -1});
    // Stable sorts by each column, the least significant first.
    for (int64_t c = columns.size(1) - 1; c >= 0; --c) {
      const Tensor keys = columns.select(1, c).index_select(0, order);
      const Tensor by_key = sorted_order(keys.view({1, -1}), false, count);
      order = order.index_select(0, by_key.view({-1}));
    }
  }
  return unique_rows(
      rows.index_select(0, order), order, dim, return_inverse, return_counts);
}

Unique unique_dim_consecutive(const Tensor& self,
                              int64_t dim,
                              bool return_inverse,
                              bool return_counts) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  check_sizes(self, dim);
  check_sortable("unique_dim", self);
  return unique_rows(
      self.movedim(dim, 0), Tensor(), dim, return_inverse, return_counts);
}

Unique unique_consecutive(const Tensor& self,
                          bool return_inverse,
                          bool return_counts,
                          std::optional<int64_t> dim) {
  if (dim.has_value()) {
    return unique_dim_consecutive(self, *dim, return_inverse, return_counts);
  }
  check_sortable("unique", self);
  const Tensor flat = self.reshape({-1});
  auto [values, inverse, counts] =
      collapse(flat, starts_of(flat), Tensor(), return_inverse, return_counts);
  return {
      values, return_inverse ? inverse.view(self.sizes()) : inverse, counts};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::_unique2, &unique2>(m);
  native<at::_ops::_unique, &unique>(m);
  native<at::_ops::unique_dim, &unique_dim>(m);
  native<at::_ops::unique_consecutive, &unique_consecutive>(m);
  native<at::_ops::unique_dim_consecutive, &unique_dim_consecutive>(m);
}

}  // namespace torch_opencl::ops
