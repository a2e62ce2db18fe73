// softmax and log_softmax of sparse COO tensors, over their entries only, and
// their gradients.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

Tensor with_values(const Tensor& sparse, const Tensor& values) {
  return at::_sparse_coo_tensor_unsafe(
      sparse._indices(),
      values,
      sparse.sizes(),
      sparse.options().dtype(values.scalar_type()),
      sparse.is_coalesced());
}

// Which entries differ in the dimension `dim` only, as a number from 0 for
// each.
struct Segments {
  Tensor of_entry;
  int64_t count;

  Segments(const Tensor& sparse, int64_t dim) {
    const Tensor indices = sparse._indices();
    Tensor flat = at::zeros({sparse._nnz()}, indices.options());
    for (int64_t d = 0; d < sparse.sparse_dim(); ++d) {
      if (d != dim) {
        flat = flat.mul(sparse.size(d)).add(indices[d]);
      }
    }
    const auto [sorted, order] =
        flat.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    const auto [unique, segment, counts] =
        at::unique_consecutive(sorted, /*return_inverse=*/true);
    of_entry = at::empty_like(segment).index_copy_(0, order, segment);
    count = unique.numel();
  }

  // Of [entries, ...]: [segments, ...].
  Tensor sum(const Tensor& values) const {
    return at::zeros(sizes_of(values), values.options())
        .index_add_(0, of_entry, values);
  }
  Tensor max(const Tensor& values) const {
    std::vector<int64_t> shape(values.dim(), 1);
    shape[0] = of_entry.numel();
    return at::full(sizes_of(values),
                    -std::numeric_limits<double>::infinity(),
                    values.options())
        .scatter_reduce_(
            0, of_entry.view(shape).expand_as(values), values, "amax");
  }
  // To each entry what its segment has.
  Tensor spread(const Tensor& segments) const {
    return segments.index_select(0, of_entry);
  }

 private:
  std::vector<int64_t> sizes_of(const Tensor& values) const {
    std::vector<int64_t> sizes = values.sizes().vec();
    sizes[0] = count;
    return sizes;
  }
};

void check(const Tensor& self, bool half_to_float, const char* name) {
  TORCH_CHECK(!half_to_float,
              name,
              ": with half to float conversion is not supported on opencl");
  TORCH_CHECK_NOT_IMPLEMENTED(
      self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble,
      "\"softmax\" not implemented for '",
      self.scalar_type(),
      "'");
}

template <bool kIsLog>
Tensor softmax(const Tensor& self, int64_t dim_, bool half_to_float) {
  check(self, half_to_float, kIsLog ? "log_softmax" : "softmax");
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const Tensor input = self.coalesce();
  const Tensor values = input._values();
  if (values.numel() == 0) {
    return input;
  }
  if (dim >= input.sparse_dim()) {
    const int64_t inner = dim - input.sparse_dim() + 1;
    return with_values(input,
                       kIsLog ? at::_log_softmax(values, inner, false)
                              : at::_softmax(values, inner, false));
  }
  const Segments segments(input, dim);
  const Tensor shifted = values.sub(segments.spread(segments.max(values)));
  const Tensor exponentials = shifted.exp();
  const Tensor sums = segments.sum(exponentials);
  return with_values(input,
                     kIsLog ? shifted.sub(segments.spread(sums.log()))
                            : exponentials.div(segments.spread(sums)));
}

template <bool kIsLog>
Tensor softmax_backward(const Tensor& grad_,
                        const Tensor& output_,
                        int64_t dim_,
                        const Tensor& self) {
  const int64_t dim = at::maybe_wrap_dim(dim_, grad_.dim());
  const Tensor output = output_.coalesce();
  const Tensor result = output._values();
  if (result.numel() == 0) {
    return output;
  }
  const Tensor grad = grad_.coalesce().sparse_mask(output)._values();
  if (dim >= output.sparse_dim()) {
    const int64_t inner = dim - output.sparse_dim() + 1;
    return with_values(output,
                       kIsLog ? at::_log_softmax_backward_data(
                                    grad, result, inner, self.scalar_type())
                              : at::_softmax_backward_data(
                                    grad, result, inner, self.scalar_type()));
  }
  const Segments segments(output, dim);
  if constexpr (kIsLog) {
    return with_values(
        output,
        grad.sub(result.exp().mul(segments.spread(segments.sum(grad)))));
  } else {
    return with_values(
        output,
        result.mul(grad.sub(segments.spread(segments.sum(grad.mul(result))))));
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_log_softmax", softmax<true>);
  m.impl("_sparse_log_softmax_backward_data", softmax_backward<true>);
  m.impl("_sparse_softmax", softmax<false>);
  m.impl("_sparse_softmax_backward_data", softmax_backward<false>);
}

}  // namespace torch_opencl::ops
