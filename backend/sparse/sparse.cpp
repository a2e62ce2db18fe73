// Sparse COO tensors: the ops that combine entries, in terms of dense ops on
// their indices and values. Like PyTorch's CUDA backend, an operation on
// entries sorts flattened indices and never visits the dense tensor.
#include "../../cpp/aten/fallback.h"
#include "../common/dtype_check.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_sparse_broadcast_to.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;

// Sizes of the sparse dimensions.
at::IntArrayRef sparse_sizes(const Tensor& self) {
  return self.sizes().slice(0, self.sparse_dim());
}

// Row-major index of each entry among the sparse dimensions, [nnz].
Tensor flat_indices(const Tensor& self) {
  const Tensor indices = self._indices();
  Tensor flat = indices[0];
  for (int64_t d = 1; d < self.sparse_dim(); ++d) {
    flat = at::mul(flat, self.size(d)).add(indices[d]);
  }
  return flat;
}

// The inverse of flat_indices, [sparse_dim, nnz].
Tensor unflatten(const Tensor& flat, at::IntArrayRef sizes) {
  std::vector<Tensor> rows(sizes.size());
  Tensor rest = flat;
  for (auto d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    rows[d] = rest.remainder(sizes[d]);
    rest = rest.floor_divide(sizes[d]);
  }
  return at::stack(rows);
}

Tensor sparse_like(const Tensor& self,
                   at::IntArrayRef sizes,
                   const Tensor& indices,
                   const Tensor& values,
                   bool is_coalesced) {
  return at::_sparse_coo_tensor_unsafe(
      indices,
      values,
      sizes,
      self.options().dtype(values.scalar_type()),
      is_coalesced);
}

Tensor coalesce(const Tensor& self) {
  if (self._nnz() < 2) {
    return self.clone()._coalesced_(true);
  }
  const Tensor values = self._values();
  if (self.sparse_dim() == 0) {
    const Tensor total = values.sum(0, /*keepdim=*/true, values.scalar_type());
    return sparse_like(
        self, self.sizes(), self._indices().narrow(1, 0, 1), total, true);
  }
  const auto [sorted, order] =
      flat_indices(self).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto [unique, segment, counts] =
      at::unique_consecutive(sorted, /*return_inverse=*/true);
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = unique.size(0);
  const bool is_bool = values.scalar_type() == at::kBool;
  Tensor sums = at::zeros(
      shape, is_bool ? values.options().dtype(at::kInt) : values.options());
  sums.index_add_(
      0, segment, values.index_select(0, order).to(sums.scalar_type()));
  return sparse_like(self,
                     self.sizes(),
                     unflatten(unique, sparse_sizes(self)),
                     is_bool ? sums.ne(0) : sums,
                     true);
}

// `out` = `dense` + alpha * `other`, of type `common`, where `other` is sparse.
Tensor& add_to_dense(const Tensor& dense,
                     const Tensor& other,
                     const Scalar& alpha,
                     at::ScalarType common,
                     Tensor& out) {
  TORCH_CHECK(
      dense.sizes().equals(other.sizes()),
      "add: expected 'self' and 'other' to have same size, but self has "
      "size ",
      dense.sizes(),
      " while other has size ",
      other.sizes(),
      " (FYI: op2-sparse addition does not currently support "
      "broadcasting)");
  out.resize_as_(dense);
  Tensor result = out.is_contiguous() && out.scalar_type() == common
                      ? out
                      : at::empty(dense.sizes(), dense.options().dtype(common));
  if (!result.is_same(dense)) {
    result.copy_(dense);
  }
  if (other._nnz() > 0) {
    const Tensor values = other._values().to(common);
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = c10::multiply_integers(sparse_sizes(other));
    Tensor rows = result.view(shape);
    if (other.sparse_dim() == 0) {
      rows.add_(values.sum(0, /*keepdim=*/true), alpha);
    } else {
      rows.index_add_(0, flat_indices(other), values, alpha);
    }
  }
  if (!result.is_same(out)) {
    out.copy_(result);
  }
  return out;
}

Tensor& add_out(const Tensor& self,
                const Tensor& other,
                const Scalar& alpha,
                Tensor& out) {
  const auto common = at::result_type(self, other);
  TORCH_CHECK(canCast(common, out.scalar_type()),
              "Can't convert result type ",
              common,
              " to output ",
              out.scalar_type());
  if (!self.is_sparse()) {
    return add_to_dense(self, other, alpha, common, out);
  }
  TORCH_CHECK(other.is_sparse(),
              "add(sparse, dense) is not supported. Use add(dense, sparse) "
              "instead.");
  TORCH_CHECK(self.sizes().equals(other.sizes()),
              "add: expected sizes of 'self' and 'other' to match, but ",
              self.sizes(),
              " != ",
              other.sizes());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim() || self._nnz() == 0 ||
                  other._nnz() == 0,
              "add: expected 'self' and 'other' to have same density, but "
              "'self' has ",
              self.sparse_dim(),
              " sparse dimensions while 'other' has ",
              other.sparse_dim(),
              " sparse dimensions");
  const auto scaled = [&] { return other._values().to(common).mul(alpha); };
  if (other._nnz() == 0) {
    return out.copy_(self.to(common));
  }
  if (self._nnz() == 0) {
    return out.copy_(sparse_like(other,
                                 other.sizes(),
                                 other._indices(),
                                 scaled(),
                                 other.is_coalesced()));
  }
  Tensor sum = sparse_like(self,
                           self.sizes(),
                           at::cat({self._indices(), other._indices()}, 1),
                           at::cat({self._values().to(common), scaled()}, 0),
                           false);
  // Repeated additions would grow without bound.
  return out.copy_(sum._nnz() > sum.numel() ? sum.coalesce() : sum);
}

// The entries of `sparse` with `values` in their place.
Tensor with_values(const Tensor& sparse, const Tensor& values) {
  return sparse_like(
      sparse, sparse.sizes(), sparse._indices(), values, sparse.is_coalesced());
}

Tensor multiply_by_dense(const Tensor& sparse, const Tensor& dense) {
  const std::vector<int64_t> sizes =
      at::infer_size(sparse.sizes(), dense.sizes());
  if (!sparse.sizes().equals(sizes)) {
    return multiply_by_dense(at::_sparse_broadcast_to(sparse, sizes), dense);
  }
  c10::List<std::optional<Tensor>> indices;
  for (const Tensor& row : sparse._indices().unbind(0)) {
    indices.push_back(row);
  }
  const Tensor expanded = dense.expand(sizes);
  const Tensor factors =
      indices.empty() ? expanded.unsqueeze(0) : at::index(expanded, indices);
  return with_values(sparse, at::mul(sparse._values(), factors));
}

// For each entry of coalesced `left`: where coalesced `right` has it. Returns
// the entries of `left` and of `right` that are in both.
std::pair<Tensor, Tensor> intersect(const Tensor& left, const Tensor& right) {
  const Tensor left_flat = flat_indices(left);
  const Tensor right_flat = flat_indices(right);
  const Tensor place =
      at::searchsorted(right_flat, left_flat).clamp_max(right_flat.size(0) - 1);
  const Tensor found = right_flat.index_select(0, place).eq(left_flat);
  const Tensor entries = found.nonzero().squeeze(1);
  return {entries, place.index_select(0, entries)};
}

Tensor take_entries(const Tensor& sparse, const Tensor& entries) {
  return sparse_like(sparse,
                     sparse.sizes(),
                     sparse._indices().index_select(1, entries),
                     sparse._values().index_select(0, entries),
                     true);
}

Tensor multiply_by_sparse(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.sizes().equals(other.sizes()),
              "mul: expected 'self' and 'other' to have same sizes when both "
              "are sparse, but ",
              self.sizes(),
              " != ",
              other.sizes());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim(),
              "mul: expected 'self' and 'other' to have the same number of "
              "sparse dimensions when both are sparse");
  const Tensor left = self.coalesce();
  const Tensor right = other.coalesce();
  if (left._nnz() == 0 || right._nnz() == 0 || left.sparse_dim() == 0) {
    const int64_t both = std::min(left._nnz(), right._nnz());
    return sparse_like(left,
                       left.sizes(),
                       left._indices().narrow(1, 0, both),
                       at::mul(left._values().narrow(0, 0, both),
                               right._values().narrow(0, 0, both)),
                       true);
  }
  const auto [in_left, in_right] = intersect(left, right);
  const Tensor entries = take_entries(left, in_left);
  return with_values(
      entries,
      at::mul(entries._values(), right._values().index_select(0, in_right)));
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  const auto common = at::result_type(self, other);
  check_castable(common, out);
  const auto scaled_by = [&](const Tensor& sparse, const Tensor& factor) {
    return with_values(
        sparse,
        at::mul(sparse._values(),
                factor.is_sparse() ? factor.to_dense() : factor));
  };
  Tensor product;
  if (other.dim() == 0) {
    product = scaled_by(self, other);
  } else if (self.dim() == 0) {
    product = scaled_by(other, self);
  } else if (!self.is_sparse()) {
    product = multiply_by_dense(other, self);
  } else if (!other.is_sparse()) {
    product = multiply_by_dense(self, other);
  } else {
    product = multiply_by_sparse(self, other);
  }
  return out.copy_(product.to(common));
}

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse(),
              "sparse_mask(): expected mask to have sparse layout");
  TORCH_CHECK(self.sizes().equals(mask.sizes()),
              "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(),
              " but mask has size ",
              mask.sizes());
  if (self.is_same(mask)) {
    return self;
  }
  if (mask._nnz() == 0) {
    return mask.clone().to(self.scalar_type());
  }
  const auto masked = [&mask](const Tensor& values) {
    return with_values(mask, values);
  };
  if (!self.is_sparse()) {
    const Tensor ones =
        at::ones({1}, self.options()).expand(mask._values().sizes());
    return multiply_by_dense(masked(ones), self);
  }
  const Tensor entries = self.coalesce();
  Tensor values = at::zeros(mask._values().sizes(), self._values().options());
  if (entries._nnz() > 0 && mask.sparse_dim() > 0) {
    const auto [in_mask, in_self] = intersect(mask, entries);
    values.index_copy_(0, in_mask, entries._values().index_select(0, in_self));
  } else if (entries._nnz() > 0) {
    values.copy_(entries._values().expand_as(values));
  }
  return masked(values);
}

// The entries of `self` times how many entries `mask` has at their places, or
// whether it has one.
Tensor sparse_mask_projection(const Tensor& self,
                              const Tensor& mask,
                              bool accumulate_matches) {
  TORCH_CHECK(self.is_sparse() && mask.is_sparse(),
              "_sparse_mask_projection: expected sparse tensors");
  TORCH_CHECK(self.sizes().equals(mask.sizes()) &&
                  self.sparse_dim() == mask.sparse_dim(),
              "_sparse_mask_projection: operands have incompatible sizes; self "
              "has size ",
              self.sizes(),
              " but mask has size ",
              mask.sizes());
  const Tensor values = self._values();
  if (values.numel() == 0 || mask._nnz() == 0 || self.sparse_dim() == 0) {
    return with_values(self,
                       mask._nnz() == 0 ? at::zeros_like(values) : values);
  }
  const Tensor places = std::get<0>(flat_indices(mask).sort());
  const Tensor own = flat_indices(self);
  std::vector<int64_t> shape(values.dim(), 1);
  shape[0] = -1;
  const Tensor matches =
      at::searchsorted(places, own, /*out_int32=*/false, /*right=*/true)
          .sub_(at::searchsorted(places, own))
          .view(shape);
  const Tensor factors = accumulate_matches ? matches : matches.clamp_max(1);
  return with_values(
      self,
      at::where(matches.gt(0),
                at::mul(values, factors.to(values.scalar_type())),
                at::zeros({}, values.options())));
}

bool is_pinned(const Tensor&, std::optional<at::Device>) {
  return false;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  return at::Tensor(destination).copy_(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_coalesce", coalesce);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("add.out", add_out);
  m.impl("is_pinned", is_pinned);
  m.impl("mul.out", mul_out);
  m.impl("sparse_mask", sparse_mask);
  m.impl("_sparse_mask_projection", sparse_mask_projection);
}

// What is left runs on the CPU, visibly.
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&aten::cpu_fallback>());
}

}  // namespace torch_opencl::ops
