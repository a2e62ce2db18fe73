// Indices of compressed sparse tensors: both conversions to COO, and the check
// of their invariants.
#include "../../cpp/aten/structured.h"

#include <ATen/ops/_convert_indices_from_coo_to_csr_meta.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr_ops.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_meta.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo_ops.h>
#include <ATen/ops/_validate_compressed_sparse_indices.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// For each of `nnz` entries its place among the compressed indices, of the same
// batch.
Tensor compressed_places(const Tensor& compressed, int64_t nnz) {
  std::vector<int64_t> sizes = compressed.sizes().vec();
  sizes.back() = nnz;
  const Tensor entries = at::arange(nnz, compressed.options())
                             .expand(sizes)
                             .contiguous();  // copy: rows
  return at::searchsorted(compressed,
                          entries,
                          /*out_int32=*/compressed.scalar_type() == at::kInt,
                          /*right=*/true)
      .sub(1)
      .clamp(0, std::max<int64_t>(compressed.size(-1) - 2, 0));
}

// `self` is sorted. The number of entries ahead of each row.
struct coo_to_csr : at::meta::structured__convert_indices_from_coo_to_csr {
  void impl(const Tensor& self,
            int64_t size,
            bool out_int32,
            const Tensor& result) {
    if (self.numel() == 0) {
      result.zero_();
      return;
    }
    result.copy_(at::searchsorted(
        self, at::arange(size + 1, self.options()), out_int32));
  }
};

struct csr_to_coo : at::meta::structured__convert_indices_from_csr_to_coo {
  void impl(const Tensor& crow_indices,
            const Tensor& col_indices,
            bool /*out_int32*/,
            bool transpose,
            const Tensor& result) {
    const int64_t nnz = col_indices.size(-1);
    const int64_t batch_dims = crow_indices.dim() - 1;
    if (result.numel() == 0) {
      return;
    }
    result[batch_dims + (transpose ? 1 : 0)].copy_(
        compressed_places(crow_indices, nnz).flatten());
    result[batch_dims + (transpose ? 0 : 1)].copy_(col_indices.flatten());
    Tensor rest =
        at::arange(result.size(1), result.options()).floor_divide(nnz);
    for (int64_t d = batch_dims - 1; d >= 0; --d) {
      result[d].copy_(rest.remainder(crow_indices.size(d)));
      rest = rest.floor_divide(crow_indices.size(d));
    }
  }
};

bool are_valid(const Tensor& compressed,
               const Tensor& plain,
               int64_t dim,
               int64_t nnz) {
  const Tensor lengths = compressed.diff();
  Tensor valid = compressed.select(-1, 0).eq(0).all();
  valid = valid.logical_and(compressed.select(-1, -1).eq(nnz).all());
  valid = valid.logical_and(lengths.ge(0).logical_and(lengths.le(dim)).all());
  if (plain.numel() > 0) {
    valid = valid.logical_and(plain.ge(0).logical_and(plain.lt(dim)).all());
    // Increasing within a row: their places in the dense matrix increase.
    const Tensor flat =
        compressed_places(compressed, nnz).to(at::kLong).mul(dim).add(plain);
    valid = valid.logical_and(flat.diff().gt(0).all());
  }
  return valid.item<bool>();
}

// What is wrong is said by the CPU's own check.
void validate_compressed_sparse_indices(bool is_crow,
                                        const Tensor& compressed,
                                        const Tensor& plain,
                                        int64_t cdim,
                                        int64_t dim,
                                        int64_t nnz) {
  const bool is_shaped = compressed.size(-1) == cdim + 1 &&
                         compressed.scalar_type() == plain.scalar_type();
  if (!is_shaped || !are_valid(compressed, plain, dim, nnz)) {
    at::_validate_compressed_sparse_indices(
        is_crow, compressed.cpu(), plain.cpu(), cdim, dim, nnz);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<coo_to_csr, at::_ops::_convert_indices_from_coo_to_csr_out>(m);
  structured<csr_to_coo, at::_ops::_convert_indices_from_csr_to_coo_out>(m);
  m.impl("_validate_compressed_sparse_indices",
         validate_compressed_sparse_indices);
}

}  // namespace torch_opencl::ops
