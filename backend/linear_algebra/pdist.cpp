// Distances between all pairs of rows: the upper triangle of cdist.
#include "../../cpp/aten/fallback.h"

#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_pdist_backward_ops.h>
#include <ATen/ops/_pdist_forward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Of pairs i < j: their places in an n x n matrix.
Tensor places_of_pairs(int64_t rows, const Tensor& like) {
  const Tensor pairs =
      at::triu_indices(rows, rows, 1, like.options().dtype(at::kLong));
  return pairs[0].mul(rows).add_(pairs[1]);
}

Tensor pdist_forward(const Tensor& self, double p) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
  const int64_t rows = self.size(0);
  if (rows < 2) {
    return at::empty({0}, self.options());
  }
  const Tensor distances = at::_cdist_forward(self, self, p, std::nullopt);
  return distances.view({-1}).index_select(0, places_of_pairs(rows, self));
}

Tensor pdist_backward(const Tensor& grad,
                      const Tensor& self,
                      double p,
                      const Tensor& pdist) {
  TORCH_CHECK(self.is_contiguous(),
              "_pdist_backward requires self to be contiguous");
  TORCH_CHECK(pdist.is_contiguous(),
              "_pdist_backward requires pdist to be contiguous");
  const int64_t rows = self.size(0);
  if (rows < 2 || self.numel() == 0) {
    return at::zeros_like(self, {}, at::MemoryFormat::Contiguous);
  }
  const Tensor places = places_of_pairs(rows, self);
  const auto symmetric = [&](const Tensor& values) {
    const Tensor upper = at::zeros({rows * rows}, self.options())
                             .index_copy_(0, places, values)
                             .view({rows, rows});
    return upper.add(upper.t());
  };
  // Each pair counts for both of its rows.
  return at::_cdist_backward(symmetric(grad), self, self, p, symmetric(pdist));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_pdist_forward",
         &WithFallback<at::_ops::_pdist_forward, &pdist_forward>::call);
  m.impl("_pdist_backward",
         &WithFallback<at::_ops::_pdist_backward, &pdist_backward>::call);
}

}  // namespace torch_opencl::ops
