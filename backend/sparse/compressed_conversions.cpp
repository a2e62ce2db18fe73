// Conversions to compressed sparse layouts that ATen's host code makes on the
// CPU only: entries are sorted by the place that they get.
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

// Rows for columns, or columns for rows; blocks stay as they are.
Tensor flip(const Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::sparse_csr::numBatchDimensions(self) == 0,
      "conversion from ",
      self.layout(),
      " to ",
      at::sparse_csr::flip_compressed_layout(self.layout()),
      " of a batch of matrices is not implemented on opencl");
  const auto [compressed, plain] =
      at::sparse_csr::getCompressedPlainIndices(self);
  const at::Layout layout =
      at::sparse_csr::flip_compressed_layout(self.layout());
  const bool is_int32 = plain.scalar_type() == at::kInt;
  const Tensor values = self.values();
  const int64_t dense_dims = self.dense_dim();
  const size_t dim =
      at::sparse_csr::plainDimension(self.layout(), self.sizes(), dense_dims);
  int64_t plain_size = self.size(static_cast<int64_t>(dim));
  if (self.layout() == at::kSparseBsr || self.layout() == at::kSparseBsc) {
    plain_size /= at::sparse_csr::getBlockSize(self)[dim];
  }
  const Tensor places =
      at::_convert_indices_from_csr_to_coo(compressed, plain, is_int32)[0];
  const auto [sorted, order] =
      plain.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  return at::_sparse_compressed_tensor_unsafe(
      at::_convert_indices_from_coo_to_csr(sorted, plain_size, is_int32),
      places.index_select(0, order),
      values.index_select(0, order),
      self.sizes(),
      self.options().layout(layout));
}

// CSR or CSC of CSR or CSC.
template <at::Layout kTo>
Tensor to_compressed(const Tensor& self, std::optional<int64_t> /*dense_dim*/) {
  if (self.layout() == kTo) {
    return self;
  }
  TORCH_CHECK(
      at::sparse_csr::flip_compressed_layout(kTo) == self.layout(),
      "sparse_compressed_to_sparse_",
      at::sparse_csr::layoutToString(kTo, /*upper=*/false, /*lower=*/true),
      ": expected SparseCsr or SparseCsc layout but got ",
      self.layout());
  return flip(self);
}

// Blocks of a coalesced COO matrix, which may have dense dimensions.
Tensor blocks_of(const Tensor& self,
                 at::Layout layout,
                 at::IntArrayRef blocksize) {
  const char* const name = layout == at::kSparseBsr
                               ? "sparse_compressed_to_sparse_bsr"
                               : "sparse_compressed_to_sparse_bsc";
  TORCH_CHECK(self.sparse_dim() == 2,
              name,
              ": a matrix is expected, but got ",
              self.sparse_dim(),
              " sparse dimensions");
  TORCH_CHECK(blocksize.size() == 2 && blocksize[0] > 0 && blocksize[1] > 0,
              name,
              ": blocksize needs to be a tuple of 2 positive numbers, but got ",
              blocksize);
  TORCH_CHECK(
      self.size(0) % blocksize[0] == 0 && self.size(1) % blocksize[1] == 0,
      name,
      ": tensor sparse size (",
      self.size(0),
      ",",
      self.size(1),
      ") must be divisible by given blocksize (",
      blocksize[0],
      ",",
      blocksize[1],
      ")");
  const bool is_row = layout == at::kSparseBsr;
  const int64_t outer = is_row ? 0 : 1;
  const int64_t inner = 1 - outer;
  const int64_t inner_blocks =
      std::max<int64_t>(self.size(inner) / blocksize[inner], 1);
  const Tensor indices = self._indices();
  const Tensor key = indices[outer]
                         .floor_divide(blocksize[outer])
                         .mul(inner_blocks)
                         .add(indices[inner].floor_divide(blocksize[inner]));
  const auto [sorted, order] =
      key.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto [unique, block, counts] =
      at::unique_consecutive(sorted, /*return_inverse=*/true);
  const Tensor place =
      block.mul(blocksize[0])
          .add(indices[0].index_select(0, order).remainder(blocksize[0]))
          .mul(blocksize[1])
          .add(indices[1].index_select(0, order).remainder(blocksize[1]));
  std::vector<int64_t> sizes = self._values().sizes().vec();
  sizes[0] = unique.numel() * blocksize[0] * blocksize[1];
  Tensor values = at::zeros(sizes, self._values().options());
  values.index_copy_(0, place, self._values().index_select(0, order));
  sizes[0] = blocksize[1];
  sizes.insert(sizes.begin(), {unique.numel(), blocksize[0]});
  return at::_sparse_compressed_tensor_unsafe(
      at::_convert_indices_from_coo_to_csr(unique.floor_divide(inner_blocks),
                                           self.size(outer) / blocksize[outer]),
      unique.remainder(inner_blocks),
      values.view(sizes),
      self.sizes(),
      self.options().layout(layout));
}

template <at::Layout kTo>
Tensor entries_to_blocks(const Tensor& self,
                         at::IntArrayRef blocksize,
                         std::optional<int64_t> /*dense_dim*/) {
  return blocks_of(self.coalesce(), kTo, blocksize);
}

template <at::Layout kTo>
Tensor compressed_to_blocks(const Tensor& self,
                            at::IntArrayRef blocksize,
                            std::optional<int64_t> /*dense_dim*/) {
  if (self.layout() != at::kSparseBsr && self.layout() != at::kSparseBsc) {
    return blocks_of(self.to_sparse(), kTo, blocksize);
  }
  const at::DimVector block = at::sparse_csr::getBlockSize(self);
  TORCH_CHECK(blocksize.equals(block),
              kTo == at::kSparseBsr ? "to_sparse_bsr" : "to_sparse_bsc",
              ": conversion from ",
              self.layout(),
              " to ",
              kTo,
              " with blocksize changed from ",
              at::IntArrayRef(block),
              " to ",
              blocksize,
              " is not supported");
  return self.layout() == kTo ? self : flip(self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_to_sparse_bsc", entries_to_blocks<at::kSparseBsc>);
  m.impl("_to_sparse_bsr", entries_to_blocks<at::kSparseBsr>);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_to_sparse_bsc", compressed_to_blocks<at::kSparseBsc>);
  m.impl("_to_sparse_bsr", compressed_to_blocks<at::kSparseBsr>);
  m.impl("_to_sparse_csc", to_compressed<at::kSparseCsc>);
  m.impl("_to_sparse_csr", to_compressed<at::kSparseCsr>);
}

}  // namespace torch_opencl::ops
