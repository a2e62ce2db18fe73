// Products of sparse COO matrices, and index_select.
#include "../common/dtype_check.h"
#include "row_product.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;

// out = beta * self + alpha * sparse @ dense
Tensor& addmm_out(const Tensor& self,
                  const Tensor& sparse,
                  const Tensor& dense,
                  const Scalar& beta,
                  const Scalar& alpha,
                  Tensor& out) {
  TORCH_CHECK(
      sparse.is_sparse() && !dense.is_sparse() && !self.is_sparse(),
      "addmm: expected a sparse 'mat1' and strided 'self' and 'mat2' on "
      "the opencl device");
  TORCH_CHECK(sparse.sparse_dim() == 2 && sparse.dense_dim() == 0,
              "addmm: matrices expected, got ",
              sparse.sparse_dim(),
              "D tensor");
  TORCH_CHECK(dense.dim() == 2,
              "addmm: matrices expected, got ",
              dense.dim(),
              "D tensor");
  TORCH_CHECK(sparse.size(1) == dense.size(0),
              "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1),
              ", got ",
              dense.size(0));
  const std::vector<int64_t> sizes{sparse.size(0), dense.size(1)};
  Tensor sum = beta.equal(0.0) ? at::zeros(sizes, dense.options())
                               : at::mul(self.expand(sizes), beta)
                                     .contiguous();  // copy: summed into
  if (sparse._nnz() > 0) {
    const at::ScalarType type = at::result_type(sparse, dense);
    sum.add_(
        multiply_rows(sparse_rows(sparse.to(type)), dense.to(type), "addmm"),
        alpha);
  }
  out.resize_(sizes);
  return out.copy_(sum);
}

Tensor addmm(const Tensor& self,
             const Tensor& sparse,
             const Tensor& dense,
             const Scalar& beta,
             const Scalar& alpha) {
  Tensor out = at::empty({0}, dense.options());
  return addmm_out(self, sparse, dense, beta, alpha, out);
}

Tensor& addmm_(Tensor& self,
               const Tensor& sparse,
               const Tensor& dense,
               const Scalar& beta,
               const Scalar& alpha) {
  return addmm_out(self, sparse, dense, beta, alpha, self);
}

Tensor sparse_sparse_matmul(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.is_sparse() && other.is_sparse());
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2);
  TORCH_CHECK(self.dense_dim() == 0 && other.dense_dim() == 0,
              "sparse_sparse_matmul_cpu: scalar values expected");
  check_product_shapes(self, other);
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "mat1 dtype ",
              self.scalar_type(),
              " does not match mat2 dtype ",
              other.scalar_type());
  return multiply_sparse(self, other);
}

// The batch as one matrix, with its members along the diagonal.
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  TORCH_CHECK(!mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
  TORCH_CHECK(self.is_sparse() && self.dense_dim() == 0 && self.dim() == 3,
              "bmm_sparse: Tensor 'self' must have 3 sparse dimensions");
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims");
  TORCH_CHECK(self.size(0) == mat2.size(0),
              "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1),
              "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  check_scalar_type(mat2, self.scalar_type());
  const int64_t batch = self.size(0);
  const Tensor indices = self._indices();
  const Tensor rows = at::mul(indices[0], self.size(1)).add(indices[1]);
  const Tensor columns = at::mul(indices[0], self.size(2)).add(indices[2]);
  const Tensor diagonal = at::_sparse_coo_tensor_unsafe(
      at::stack({rows, columns}),
      self._values(),
      {batch * self.size(1), batch * self.size(2)},
      self.options(),
      self.is_coalesced());
  out.resize_({batch, self.size(1), mat2.size(2)});
  return out.copy_(
      multiply_rows(sparse_rows(diagonal), mat2.flatten(0, 1), "bmm")
          .view(out.sizes()));
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Tensor out = at::empty({0}, mat2.options());
  return bmm_out(self, mat2, out);
}

// Each element of `index` meets the entries that have it.
Tensor index_select(const Tensor& self, int64_t dim_, const Tensor& index) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const int64_t size = self.size(dim);
  TORCH_CHECK_INDEX(
      index.dim() <= 1 && at::isIntegralType(index.scalar_type(), false),
      "index_select() argument index must be 1-D tensor of integers.");
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[dim] = index.numel();
  const Tensor indices = self._indices();
  if (dim >= self.sparse_dim()) {
    return at::_sparse_coo_tensor_unsafe(
        indices,
        self._values().index_select(dim - self.sparse_dim() + 1, index),
        sizes,
        self.options(),
        self.is_coalesced());
  }
  const Tensor wrapped =
      at::where(index.lt(0), index.add(size), index).to(at::kLong).flatten();
  if (wrapped.numel() > 0) {
    const Tensor bad = wrapped.lt(0).logical_or(wrapped.ge(size));
    TORCH_CHECK_INDEX(
        !bad.any().item<bool>(),
        "index_select(): index contains ",
        index.flatten()[bad.nonzero()[0][0].item<int64_t>()].item(),
        " that is out of range for tensor of size ",
        size,
        " at dimension ",
        dim);
  }
  const auto [sorted, order] =
      indices[dim].sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const Tensor first = at::searchsorted(sorted, wrapped);
  const Tensor counts =
      at::searchsorted(sorted, wrapped, /*out_int32=*/false, /*right=*/true)
          .sub(first);
  const auto [places, chosen] = expand_runs(first, counts);
  const Tensor entries = order.index_select(0, places);
  Tensor selected = indices.index_select(1, entries);
  selected[dim].copy_(chosen);
  return at::_sparse_coo_tensor_unsafe(selected,
                                       self._values().index_select(0, entries),
                                       sizes,
                                       self.options(),
                                       /*is_coalesced=*/false);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_sparse_matmul", sparse_sparse_matmul);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
  m.impl("addmm_", addmm_);
  m.impl("bmm", bmm);
  m.impl("bmm.out", bmm_out);
  m.impl("index_select", index_select);
}

}  // namespace torch_opencl::ops
