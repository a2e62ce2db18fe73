#include "row_product.h"

#include "../../cpp/aten/reports.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sparse_sampled_addmm_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kWorkGroup = 128;

// problem_t of row_product.cl.
struct RowProblem {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  int64_t nnz = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
};

// sample_t of row_product.cl.
struct SampleProblem {
  int64_t entries = 0;
  int64_t inner = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

int lanes_of(const Tensor& tensor) {
  return aten::device_of(tensor).is_cpu() && tensor.is_floating_point() ? 16
                                                                        : 1;
}

// Products of complex numbers are few: each entry's is made, then they are
// added.
Tensor multiply_complex(const SparseRows& sparse, const Tensor& dense) {
  const Tensor rows = at::_convert_indices_from_csr_to_coo(
      sparse.crow, sparse.col, /*out_int32=*/false)[0];
  const Tensor terms =
      at::mul(sparse.values.unsqueeze(1), dense.index_select(0, sparse.col));
  return at::zeros({sparse.rows, dense.size(1)}, dense.options())
      .index_add_(0, rows, terms);
}

void check_devices(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.device() == b.device(),
              "Expected all tensors to be on the same device, but found at "
              "least two devices, ",
              a.device(),
              " and ",
              b.device(),
              "!");
}

// The kernels rely on sizes, which nobody has checked where invariants are not.
SparseRows checked_rows(const Tensor& crow,
                        const Tensor& col,
                        const Tensor& values,
                        const Tensor& matrix) {
  TORCH_CHECK(crow.numel() == matrix.size(0) + 1,
              "crow_indices.shape[-1] must be equal to (nrows = ",
              matrix.size(0),
              ") + 1, but got ",
              crow.numel());
  TORCH_CHECK(
      col.dim() == 1 && values.dim() == 1 && col.numel() == values.numel(),
      "a matrix of one value an entry is expected, but got indices of shape ",
      col.sizes(),
      " and values of shape ",
      values.sizes());
  return {crow.contiguous(),                        // copy: read by rows
          col.to(crow.scalar_type()).contiguous(),  // copy: read by entries
          values.contiguous(),                      // copy: read by entries
          matrix.size(0),
          matrix.size(1)};
}

}  // namespace

SparseRows sparse_rows(const Tensor& matrix) {
  if (matrix.layout() == at::kSparse) {
    Tensor indices = matrix._indices();
    Tensor values = matrix._values();
    if (!matrix.is_coalesced()) {
      const auto [rows, order] =
          indices[0].sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
      indices = at::stack({rows, indices[1].index_select(0, order)});
      values = values.index_select(0, order);
    }
    return checked_rows(
        at::_convert_indices_from_coo_to_csr(indices[0], matrix.size(0)),
        indices[1],
        values,
        matrix);
  }
  if (matrix.layout() == at::kSparseBsr || matrix.layout() == at::kSparseBsc) {
    return sparse_rows(matrix.to_sparse().coalesce());
  }
  const Tensor csr =
      matrix.layout() == at::kSparseCsc ? matrix.to_sparse_csr() : matrix;
  return checked_rows(csr.crow_indices(), csr.col_indices(), csr.values(), csr);
}

Tensor multiply_rows(const SparseRows& sparse,
                     const Tensor& dense,
                     const char* op) {
  check_devices(sparse.values, dense);
  TORCH_CHECK_NOT_IMPLEMENTED(dense.scalar_type() != at::kBool,
                              "\"",
                              op,
                              "\" not implemented for 'Bool'");
  if (dense.is_complex()) {
    return multiply_complex(sparse, dense);
  }
  const Tensor out = at::empty({sparse.rows, dense.size(1)},
                               dense.options(),
                               at::MemoryFormat::Contiguous);
  if (out.numel() == 0) {
    return out;
  }
  const RowProblem problem{sparse.rows,
                           dense.size(1),
                           sparse.columns,
                           sparse.col.numel(),
                           dense.stride(0),
                           dense.stride(1)};
  if (problem.nnz == 0) {
    return out.zero_();
  }
  const bool is_group = !aten::device_of(dense).is_cpu();
  const int lanes = lanes_of(dense);
  const int64_t span =
      std::min<int64_t>(power_of_two_from(problem.columns), 32);
  const int64_t parts = std::min(
      power_of_two_from(problem.nnz / problem.rows / 8), kWorkGroup / span);
  const int64_t group_rows = kWorkGroup / (span * parts);
  launch(out,
         sources::row_product,
         is_group ? "sparse_rows_group" : "sparse_rows",
         {{"DTYPE", dtype_of(dense)},
          {"INDEX", dtype_of(sparse.crow)},
          {"LANES", lanes},
          {"IS_GROUP", is_group},
          {"WG_SIZE", static_cast<int>(kWorkGroup)},
          {"SPAN", static_cast<int>(is_group ? span : 1)},
          {"PARTS", static_cast<int>(is_group ? parts : 1)}},
         is_group
             ? range(ceil_div(problem.columns, span) * kWorkGroup,
                     ceil_div(problem.rows, group_rows),
                     kWorkGroup,
                     1)
             : range(ceil_div(problem.columns, 4 * lanes), problem.rows, 1, 16),
         arg(out),
         arg_in(sparse.crow),
         arg_in(sparse.col),
         arg_in(sparse.values),
         arg_in(dense),
         problem,
         reports(out, op));
  return out;
}

void check_product_shapes(const Tensor& mat1,
                          const Tensor& mat2,
                          const char* prefix) {
  TORCH_CHECK(mat1.size(1) == mat2.size(0),
              prefix,
              "mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(0),
              "x",
              mat1.size(1),
              " and ",
              mat2.size(0),
              "x",
              mat2.size(1),
              ")");
}

Runs expand_runs(const Tensor& firsts, const Tensor& counts) {
  const Tensor run = at::repeat_interleave(counts);
  const Tensor before = counts.cumsum(0).sub(counts);
  return {at::arange(run.size(0), run.options())
              .add(firsts.sub(before).index_select(0, run)),
          run};
}

Tensor multiply_sparse(const Tensor& left, const Tensor& right) {
  const SparseRows a = sparse_rows(left);
  const SparseRows b = sparse_rows(right);
  // Each entry (i, k) of `left` meets the entries of row k of `right`.
  const Tensor firsts = b.crow.index_select(0, a.col);
  const Tensor counts =
      b.crow.index_select(0, a.col.add(1)).sub(firsts).to(at::kLong);
  const auto [place, entries] = expand_runs(firsts, counts);
  const Tensor rows = at::_convert_indices_from_csr_to_coo(a.crow, a.col)[0];
  const Tensor indices =
      at::stack({rows.index_select(0, entries).to(at::kLong),
                 b.col.index_select(0, place).to(at::kLong)});
  return at::_sparse_coo_tensor_unsafe(
             indices,
             a.values.index_select(0, entries)
                 .mul(b.values.index_select(0, place)),
             {a.rows, b.columns},
             left.options().layout(at::kSparse))
      .coalesce();
}

namespace {

void check_sampled(const Tensor& self,
                   const Tensor& mat1,
                   const Tensor& mat2,
                   const Tensor& result) {
  TORCH_CHECK(mat1.layout() == at::kStrided,
              "sampled_addmm: Expected mat1 to have strided layout, but got ",
              mat1.layout());
  TORCH_CHECK(mat2.layout() == at::kStrided,
              "sampled_addmm: Expected mat2 to have strided layout, but got ",
              mat2.layout());
  TORCH_CHECK(
      result.layout() == at::kSparseCsr,
      "sampled_addmm: Expected result to have sparse csr layout, but got ",
      result.layout());
  TORCH_CHECK(self.dense_dim() == 0,
              "sampled_addmm: Expected non-hybrid self tensor");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()) ||
          at::isComplexType(self.scalar_type()),
      "sparse_sampled_addmm: Expected self to be a floating-point or complex "
      "tensor, but got ",
      self.scalar_type());
  TORCH_CHECK(
      mat1.scalar_type() == mat2.scalar_type(),
      "sampled_addmm: Expected mat1 and mat2 to have the same dtype, but got ",
      mat1.scalar_type(),
      " and ",
      mat2.scalar_type());
  TORCH_CHECK(
      mat1.scalar_type() == self.scalar_type(),
      "sampled_addmm: Expected mat1 and self to have the same dtype, but got ",
      mat1.scalar_type(),
      " and ",
      self.scalar_type());
  TORCH_CHECK(mat1.dim() == 2,
              "sampled_addmm: Expected mat1 to be a matrix, got ",
              mat1.dim(),
              "-D tensor");
  TORCH_CHECK(mat2.dim() == 2,
              "sampled_addmm: Expected mat2 to be a matrix, got ",
              mat2.dim(),
              "-D tensor");
  check_product_shapes(mat1, mat2, "sampled_addmm: ");
  TORCH_CHECK(self.size(0) == mat1.size(0),
              "sampled_addmm: self.shape[-2] must match mat1.shape[-2]");
  TORCH_CHECK(self.size(1) == mat2.size(1),
              "sampled_addmm: self.shape[-1] must match mat2.shape[-1]");
}

// The elements of `mat1` @ `mat2` where `self` has entries.
Tensor sampled_product(const Tensor& self,
                       const Tensor& mat1,
                       const Tensor& mat2) {
  const Tensor col = self.col_indices().contiguous();  // copy: read by entries
  const Tensor rows = at::_convert_indices_from_csr_to_coo(
      self.crow_indices(), col, col.scalar_type() == at::kInt)[0];
  if (mat1.is_complex()) {
    return at::mul(mat1.index_select(0, rows), mat2.t().index_select(0, col))
        .sum(1);
  }
  const Tensor left = mat1.contiguous();       // copy: read along rows
  const Tensor right = mat2.t().contiguous();  // copy: read along rows
  const Tensor out = at::empty({col.numel()}, mat1.options());
  const SampleProblem problem{
      col.numel(), mat1.size(1), mat1.size(0), mat2.size(1)};
  if (problem.entries == 0) {
    return out;
  }
  const bool is_cpu = aten::device_of(out).is_cpu();
  const int64_t work_group = is_cpu ? 16 : kWorkGroup;
  const int64_t span =
      is_cpu ? 1 : std::min<int64_t>(power_of_two_from(problem.inner), 16);
  launch(out,
         sources::row_product,
         "sampled_entries",
         {{"DTYPE", dtype_of(out)},
          {"INDEX", dtype_of(col)},
          {"LANES", lanes_of(out)},
          {"IS_GROUP", !is_cpu},
          {"WG_SIZE", static_cast<int>(work_group)},
          {"SPAN", static_cast<int>(span)}},
         range(ceil_div(problem.entries * span, work_group) * work_group,
               work_group),
         arg(out),
         arg_in(rows),
         arg_in(col),
         arg_in(left),
         arg_in(right),
         problem,
         reports(out, "sampled_addmm"));
  return out;
}

Tensor& sparse_sampled_addmm_out(const Tensor& self,
                                 const Tensor& mat1,
                                 const Tensor& mat2,
                                 const at::Scalar& beta,
                                 const at::Scalar& alpha,
                                 Tensor& result) {
  check_sampled(self, mat1, mat2, result);
  check_devices(self, mat1);
  check_devices(self, mat2);
  const Tensor product = sampled_product(self, mat1, mat2).mul(alpha);
  const Tensor values =
      beta.equal(0.0) ? product : self.values().mul(beta).add(product);
  if (!result.is_same(self)) {
    result.resize_as_sparse_(self);
    result.copy_(self);
  }
  result.values().copy_(values);
  return result;
}

Tensor sparse_sampled_addmm(const Tensor& self,
                            const Tensor& mat1,
                            const Tensor& mat2,
                            const at::Scalar& beta,
                            const at::Scalar& alpha) {
  Tensor result = self.clone();
  return sparse_sampled_addmm_out(self, mat1, mat2, beta, alpha, result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("sparse_sampled_addmm", sparse_sampled_addmm);
  m.impl("sparse_sampled_addmm.out", sparse_sampled_addmm_out);
}

}  // namespace torch_opencl::ops
