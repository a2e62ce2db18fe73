// Products, sums and additions of compressed sparse tensors.
#include "row_product.h"

#include "../common/dtype_check.h"

#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>

namespace torch_opencl::ops {
namespace {

using at::Scalar;
using at::Tensor;
using at::sparse_csr::is_sparse_compressed;

bool is_any_sparse(const Tensor& tensor) {
  return tensor.layout() != at::kStrided;
}

// Replaces what the sparse `out` holds.
void assign(Tensor& out, const Tensor& result) {
  const Tensor same = result.to_sparse(out.layout());
  out.resize_as_sparse_(same);
  out.copy_(same);
}

// A matrix as COO, whose addition is known.
Tensor as_coo(const Tensor& matrix) {
  return matrix.to_sparse().coalesce();
}

Tensor product_of(const Tensor& mat1, const Tensor& mat2) {
  if (is_any_sparse(mat1) && is_any_sparse(mat2)) {
    return multiply_sparse(mat1, mat2);
  }
  if (is_any_sparse(mat1)) {
    return multiply_rows(sparse_rows(mat1), mat2, "addmm");
  }
  // The transposed product: a CSC matrix is the CSR matrix of its transpose.
  return multiply_rows(sparse_rows(mat2.t()),
                       mat1.t().contiguous(),  // copy: read along rows
                       "addmm")
      .t();
}

void check_matrix(const Tensor& matrix, const char* name) {
  TORCH_CHECK(matrix.dim() == 2,
              name,
              " must be a matrix, got ",
              matrix.dim(),
              "-D tensor");
}

Tensor& addmm_out(const Tensor& self,
                  const Tensor& mat1,
                  const Tensor& mat2,
                  const Scalar& beta,
                  const Scalar& alpha,
                  Tensor& out) {
  check_matrix(mat1, "mat1");
  check_matrix(mat2, "mat2");
  check_product_shapes(mat1, mat2);
  check_scalar_type(mat1, out.scalar_type());
  check_scalar_type(mat2, out.scalar_type());
  const bool is_product_sparse = is_any_sparse(mat1) && is_any_sparse(mat2);
  TORCH_CHECK((is_any_sparse(mat1) || is_any_sparse(mat2)) &&
                  (out.layout() == at::kStrided || is_product_sparse) &&
                  (self.layout() == at::kStrided || is_product_sparse),
              "addmm: computation on OPENCL is not implemented for ",
              out.layout(),
              " + ",
              mat1.layout(),
              " @ ",
              mat2.layout());
  const std::vector<int64_t> sizes{mat1.size(0), mat2.size(1)};
  const Tensor base = self.sizes().equals(sizes) ? self : self.expand(sizes);
  Tensor result = product_of(mat1, mat2);
  if (!alpha.equal(1.0)) {
    result = result.mul(alpha);
  }
  const bool adds = !beta.equal(0.0);
  if (is_sparse_compressed(out)) {
    assign(out, adds ? as_coo(base).mul(beta).add(result).coalesce() : result);
    return out;
  }
  result = result.to_dense();
  if (adds) {
    result = at::add(result, base.to_dense(), beta);
  }
  at::native::resize_output(out, sizes);
  return out.copy_(result);
}

Tensor& addmv_out(const Tensor& self,
                  const Tensor& mat,
                  const Tensor& vec,
                  const Scalar& beta,
                  const Scalar& alpha,
                  Tensor& out) {
  TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1,
              "vector + matrix @ vector expected, got ",
              self.dim(),
              ", ",
              mat.dim(),
              ", ",
              vec.dim());
  TORCH_CHECK(mat.size(1) == vec.size(0) &&
                  (mat.size(0) == self.numel() || self.numel() == 1),
              "size mismatch, got input (",
              self.numel(),
              "), mat (",
              mat.size(0),
              "x",
              mat.size(1),
              "), vec (",
              vec.size(0),
              ")");
  check_scalar_type(mat, out.scalar_type());
  check_scalar_type(vec, out.scalar_type());
  Tensor result =
      multiply_rows(sparse_rows(mat), vec.unsqueeze(1), "addmv").squeeze(1);
  if (!alpha.equal(1.0)) {
    result = result.mul(alpha);
  }
  if (!beta.equal(0.0)) {
    result = at::add(result, self, beta);
  }
  at::native::resize_output(out, {mat.size(0)});
  return out.copy_(result);
}

Tensor& add_out(const Tensor& self,
                const Tensor& other,
                const Scalar& alpha,
                Tensor& out) {
  if (self.layout() == at::kStrided) {
    TORCH_CHECK(
        self.sizes().equals(other.sizes()),
        "add: expected 'self' and 'other' to have same size, but self has "
        "size ",
        self.sizes(),
        " while other has size ",
        other.sizes(),
        " (FYI: op2-sparse addition does not currently support "
        "broadcasting)");
    const at::ScalarType type = at::result_type(self, other);
    TORCH_CHECK(canCast(type, out.scalar_type()),
                "Can't convert result type ",
                type,
                " to output ",
                out.scalar_type(),
                " in add operation");
    return at::add_out(out, self, other.to_dense(), alpha);
  }
  if (other.layout() == at::kStrided) {
    return at::add_out(out, other.mul(alpha), self.to_dense());
  }
  TORCH_CHECK(
      self.sizes().equals(other.sizes()),
      "torch.add: Expected input tensors to have the same shape, but got "
      "tensor `self` with shape ",
      self.sizes(),
      " and tensor `other` with shape ",
      other.sizes());
  TORCH_CHECK(is_sparse_compressed(other) && other.layout() == self.layout(),
              at::sparse_csr::compressedIndicesName(self.layout()),
              " expected sparse ",
              at::sparse_csr::isCompressedRow(self.layout()) ? "row" : "column",
              " compressed tensor layout but got ",
              other.layout());
  check_scalar_type(other, self.scalar_type());
  if (at::sparse_csr::only_sparse_compressed_add_trivial_cases(
          self, other, alpha, out)) {
    return out;
  }
  const Tensor sum = at::add(as_coo(self), as_coo(other), alpha).coalesce();
  if (self.layout() == at::kSparseBsr || self.layout() == at::kSparseBsc) {
    const at::DimVector block = at::sparse_csr::getBlockSize(self);
    const Tensor same = sum.to_sparse(self.layout(), at::IntArrayRef(block));
    out.resize_as_sparse_(same);
    return out.copy_(same);
  }
  assign(out, sum);
  return out;
}

enum class Fold { kSum, kProduct };

// Combines the values of equal keys, which are sorted.
std::pair<Tensor, Tensor> combine_equal(const Tensor& keys,
                                        const Tensor& values,
                                        Fold fold) {
  const auto [unique, segment, counts] =
      at::unique_consecutive(keys, /*return_inverse=*/true);
  if (fold == Fold::kSum) {
    return {unique,
            at::zeros({unique.size(0)}, values.options())
                .index_add_(0, segment, values)};
  }
  return {unique,
          at::ones({unique.size(0)}, values.options())
              .scatter_reduce_(0, segment, values, "prod")};
}

void check_foldable(const Tensor& input,
                    bool keepdim,
                    std::optional<at::ScalarType> dtype,
                    Fold fold) {
  const char* const name =
      fold == Fold::kSum ? "_sparse_csr_sum_cpu" : "_sparse_csr_prod_cpu";
  TORCH_CHECK(input.is_sparse_csr(),
              "Expected self to be a sparse CSR tensor, but got ",
              input.layout());
  TORCH_CHECK(keepdim,
              "reduction operations on CSR tensors with keepdim=False is "
              "unsupported");
  TORCH_CHECK(input.dim() == 2 && input.dense_dim() == 0,
              name,
              ": only matrices are supported, but got ",
              input.dim(),
              " dimensions");
  TORCH_CHECK_NOT_IMPLEMENTED(
      input.scalar_type() != at::kBool || dtype.has_value(),
      "\"",
      name,
      "\" not implemented for 'Bool'");
}

// A matrix of these parts, with the index dtypes of `input`.
Tensor csr_like(const Tensor& input,
                const Tensor& crow,
                const Tensor& col,
                const Tensor& values,
                at::IntArrayRef sizes) {
  return at::_sparse_compressed_tensor_unsafe(
      crow.to(input.crow_indices().scalar_type()),
      col.to(input.col_indices().scalar_type()),
      values,
      sizes,
      input.options().dtype(values.scalar_type()));
}

// The row offsets of one row.
Tensor offsets_of_row(const Tensor& input, int64_t nnz) {
  return at::arange(2, input.crow_indices().options()).mul(nnz);
}

// `values` are those of `input` in the result's dtype.
Tensor fold_all(const Tensor& input, const Tensor& values, Fold fold) {
  const int64_t nnz = std::min<int64_t>(1, values.numel());
  const at::ScalarType type = values.scalar_type();
  const Tensor total = fold == Fold::kSum ? values.sum(0, true, type)
                                          : values.prod(0, true, type);
  return csr_like(input,
                  offsets_of_row(input, nnz),
                  at::zeros({nnz}, input.col_indices().options()),
                  total.narrow(0, 0, nnz),
                  {1, 1});
}

Tensor fold_rows(const Tensor& input, const Tensor& values, Fold fold) {
  const auto [sorted, order] = input.col_indices().sort(
      /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto [unique, folded] =
      combine_equal(sorted, values.index_select(0, order), fold);
  return csr_like(input,
                  offsets_of_row(input, unique.numel()),
                  unique,
                  folded,
                  {1, input.size(1)});
}

Tensor fold_columns(const Tensor& input, const Tensor& values, Fold fold) {
  const Tensor col = input.col_indices();
  const Tensor rows =
      at::_convert_indices_from_csr_to_coo(input.crow_indices(), col)[0];
  const auto [unique, folded] = combine_equal(rows, values, fold);
  return csr_like(input,
                  at::_convert_indices_from_coo_to_csr(unique, input.size(0)),
                  at::zeros({unique.numel()}, col.options()),
                  folded,
                  {input.size(0), 1});
}

Tensor fold_dimensions(const Tensor& input,
                       at::IntArrayRef dims,
                       bool keepdim,
                       std::optional<at::ScalarType> dtype,
                       Fold fold) {
  check_foldable(input, keepdim, dtype, fold);
  const bool widens =
      at::isIntegralType(input.scalar_type(), /*includeBool=*/true);
  const Tensor values = input.values().to(
      dtype.value_or(widens ? at::kLong : input.scalar_type()));
  // None given means all.
  std::array<bool, 2> folds{dims.empty(), dims.empty()};
  for (const int64_t dim : dims) {
    folds[at::maybe_wrap_dim(dim, input.dim())] = true;
  }
  if (folds[0] && folds[1]) {
    return fold_all(input, values, fold);
  }
  return folds[0] ? fold_rows(input, values, fold)
                  : fold_columns(input, values, fold);
}

Tensor csr_sum(const Tensor& self,
               at::IntArrayRef dims,
               bool keepdim,
               std::optional<at::ScalarType> dtype) {
  return fold_dimensions(self, dims, keepdim, dtype, Fold::kSum);
}

Tensor csr_prod(const Tensor& self,
                at::IntArrayRef dims,
                bool keepdim,
                std::optional<at::ScalarType> dtype) {
  return fold_dimensions(self, dims, keepdim, dtype, Fold::kProduct);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_csr_prod.dim_dtype", csr_prod);
  m.impl("_sparse_csr_sum.dim_dtype", csr_sum);
  m.impl("add.out", add_out);
  m.impl("addmm.out", addmm_out);
  m.impl("addmv.out", addmv_out);
}

}  // namespace torch_opencl::ops
