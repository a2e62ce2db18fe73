// Advanced indexing and its relatives along one dimension.
#include "../../cpp/aten/reports.h"
#include "../../cpp/aten/structured.h"
#include "../common/kernel_text.h"
#include "indexed.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/native/TensorAdvancedIndexingUtils.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather_meta.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/zeros.h>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

namespace {

Tensor at_least_1d(const Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

}  // namespace

Tensor spread(const Tensor& index, IntArrayRef sizes, int64_t dim) {
  std::vector<int64_t> shape(sizes.size(), 1);
  shape[dim] = index.numel();
  return index.reshape(shape).expand(sizes);
}

void scatter_into(const Tensor& self,
                  const Tensor& index,
                  const Tensor& source,
                  const Tensor& out,
                  Indexed mode,
                  const IndexedBy& by,
                  const Scalar& alpha) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, index);
  at::assert_no_overlap(out, source);
  if (mode == Indexed::kAdd &&
      add_by_segments(self, index, source, out, by, alpha)) {
    return;
  }
  if (mode == Indexed::kAdd &&
      compute_type(out.scalar_type()) != out.scalar_type()) {
    // Sums of many half values are taken in the compute type and rounded once.
    const at::ScalarType compute = compute_type(out.scalar_type());
    Tensor sums = self.to(compute);
    indexed_along(at_least_1d(sums),
                  at_least_1d(source.to(compute)),
                  at_least_1d(index),
                  mode,
                  by,
                  alpha);
    out.copy_(sums);
    return;
  }
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  // Half types would lose NaNs' bits on their way through float32.
  const bool moves =
      mode == Indexed::kPut && source.scalar_type() == out.scalar_type() &&
      at::isReducedFloatingType(out.scalar_type()) && out.element_size() == 2;
  indexed_along(at_least_1d(moves ? out.view(at::kShort) : out),
                at_least_1d(moves ? source.view(at::kShort) : source),
                at_least_1d(index),
                mode,
                by,
                alpha);
}

namespace {

struct index_out : at::meta::structured_index_Tensor {
  void impl(const meta_return_ty& precomputed,
            const Tensor& /*self*/,
            at::IOptTensorListRef /*indices*/,
            const Tensor& /*out*/) {
    indexed(*this,
            Indexed::kGet,
            precomputed.sizes,
            precomputed.strides,
            {.op = "index", .wraps = true});
  }
};

void index_put_kernel(at::TensorIterator& iter,
                      IntArrayRef sizes,
                      IntArrayRef strides,
                      bool accumulate) {
  indexed(iter,
          accumulate ? Indexed::kAdd : Indexed::kPut,
          sizes,
          strides,
          {.op = "index_put_", .wraps = true});
}

// tensor[mask] = number. ATen knows this way for numbers on the CPU only, and
// the other one waits for the number of places.
Tensor& index_put_impl(Tensor& self,
                       const c10::List<std::optional<Tensor>>& indices,
                       const Tensor& value,
                       bool accumulate,
                       bool unsafe) {
  if (!accumulate && value.numel() == 1 && value.is_privateuseone() &&
      value.scalar_type() == self.scalar_type()) {
    const auto [is_mask, mask] = at::native::canDispatchToMaskedFill(
        self, indices, at::empty({1}, value.options().device(at::kCPU)));
    if (is_mask && mask.scalar_type() == at::kBool) {
      return self.masked_fill_(mask, value.reshape({}));
    }
  }
  return at::native::_index_put_impl_(self, indices, value, accumulate, unsafe);
}

void check_index(const Tensor& index, const char* op) {
  TORCH_CHECK_INDEX(
      index.dim() <= 1, op, "(): Index is supposed to be a vector");
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      op,
      "(): Expected dtype int32 or int64 for index");
}

Tensor& index_select_out(const Tensor& self,
                         int64_t dim,
                         const Tensor& index,
                         Tensor& out) {
  check_index(index, "index_select");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  dim = at::maybe_wrap_dim(dim, self.dim());
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    sizes[dim] = index.numel();
  }
  at::native::resize_output(out, sizes);
  const Tensor table = at_least_1d(self);
  const Tensor result = at_least_1d(out);
  indexed_along(table,
                result,
                spread(index, result.sizes(), dim),
                Indexed::kGet,
                {.op = "index_select", .dim = dim});
  return out;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  Tensor out = at::empty({0}, self.options());
  return index_select_out(self, dim, index, out);
}

struct gather_out : at::meta::structured_gather {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            bool /*sparse_grad*/,
            const Tensor& out) {
    at::assert_no_internal_overlap(out);
    at::assert_no_overlap(out, self);
    at::assert_no_partial_overlap(out, index);
    indexed_along(at_least_1d(self),
                  at_least_1d(out),
                  at_least_1d(index),
                  Indexed::kGet,
                  {.op = "gather", .dim = dim});
  }
};

struct scatter_src_out : at::meta::structured_scatter_src {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Tensor& src,
            const Tensor& out) {
    scatter_into(
        self, index, src, out, Indexed::kPut, {.op = "scatter", .dim = dim});
  }
};

Tensor filled(const Scalar& value, const Tensor& like, IntArrayRef sizes) {
  return at::empty({}, like.options()).fill_(value).expand(sizes);
}

struct scatter_value_out : at::meta::structured_scatter_value {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Scalar& value,
            const Tensor& out) {
    scatter_into(self,
                 index,
                 filled(value, out, at_least_1d(index).sizes()),
                 out,
                 Indexed::kPut,
                 {.op = "scatter", .dim = dim});
  }
};

struct scatter_add_out : at::meta::structured_scatter_add {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Tensor& src,
            const Tensor& out) {
    scatter_into(self,
                 index,
                 src,
                 out,
                 Indexed::kAdd,
                 {.op = "scatter_add", .dim = dim});
  }
};

// Rows of `source` go to those that `index` names.
void scatter_rows(const Tensor& self,
                  const Tensor& index,
                  const Tensor& source,
                  const Tensor& out,
                  Indexed mode,
                  const IndexedBy& by,
                  const Scalar& alpha = 1) {
  const Tensor values = at_least_1d(source);
  scatter_into(self,
               spread(index, values.sizes(), by.dim),
               values,
               out,
               mode,
               by,
               alpha);
}

struct index_add_out : at::meta::structured_index_add {
  void impl(const meta_return_ty& precomputed,
            const Tensor& self,
            int64_t /*dim*/,
            const Tensor& index,
            const Tensor& source,
            const Scalar& alpha,
            const Tensor& out) {
    checked_scalar(alpha, out.scalar_type());
    scatter_rows(self,
                 index,
                 source,
                 out,
                 Indexed::kAdd,
                 {.op = "index_add", .dim = precomputed.dim},
                 alpha);
  }
};

struct index_copy_out : at::meta::structured_index_copy {
  void impl(const meta_return_ty& precomputed,
            const Tensor& self,
            int64_t /*dim*/,
            const Tensor& index,
            const Tensor& source,
            const Tensor& out) {
    scatter_rows(self,
                 index,
                 source,
                 out,
                 Indexed::kPut,
                 {.op = "index_copy", .dim = precomputed.dim});
  }
};

Tensor& index_fill_scalar(Tensor& self,
                          int64_t dim,
                          const Tensor& index,
                          const Scalar& value) {
  TORCH_CHECK_INDEX(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "index_fill_(): Expected dtype int32 or int64 for index.");
  TORCH_CHECK(index.dim() <= 1,
              "index_fill_(): Index has to be a vector/scalar");
  TORCH_CHECK(self.is_complex() || !value.isComplex(),
              "index_fill_(): Converting complex Scalar to non-complex type is "
              "not supported");
  at::assert_no_overlap(self, index);
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    TORCH_WARN(
        "Use of index_fill_ on expanded tensors is deprecated. Please clone() "
        "the tensor before performing this operation. This also applies to "
        "advanced indexing e.g. tensor[indices] = scalar");
  }
  const Tensor table = at_least_1d(self);
  dim = at::maybe_wrap_dim(dim, self.dim());
  std::vector<int64_t> sizes = table.sizes().vec();
  sizes[dim] = index.numel();
  indexed_along(table,
                filled(value, self, sizes),
                spread(index, sizes, dim),
                Indexed::kPut,
                {.op = "index_fill_", .dim = dim, .wraps = true});
  return self;
}

Tensor& index_fill_tensor(Tensor& self,
                          int64_t dim,
                          const Tensor& index,
                          const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "index_fill_ only supports a 0-dimensional value tensor, but got "
              "tensor with ",
              value.dim(),
              " dimension(s).");
  return index_fill_scalar(self, dim, index, value.item());
}

Tensor embedding(const Tensor& weight,
                 const Tensor& indices,
                 c10::SymInt padding_idx,
                 bool scale_grad_by_freq,
                 bool sparse) {
  const ReportAs report_as("embedding");
  return at::native::embedding_symint(
      weight, indices, std::move(padding_idx), scale_grad_by_freq, sparse);
}

// Rows of the gradient are summed in the order of the indices, so the same
// input gives the same bits.
Tensor embedding_dense_backward(const Tensor& grad_output,
                                const Tensor& indices,
                                int64_t num_weights,
                                int64_t padding_idx,
                                bool scale_grad_by_freq) {
  const Tensor flat = indices.reshape({-1}).to(at::kLong);
  Tensor grads = grad_output.reshape({flat.numel(), grad_output.size(-1)});
  const ReportAs report_as("embedding_dense_backward");
  if (scale_grad_by_freq) {
    const at::TensorOptions options = grads.options().dtype(at::kFloat);
    Tensor counts = at::zeros({num_weights}, options);
    counts.index_add_(0, flat, at::ones({flat.numel()}, options));
    grads = grads.div(counts.index_select(0, flat).unsqueeze(1))
                .to(grad_output.scalar_type());
  }
  Tensor grad_weight = at::zeros({num_weights, grads.size(1)}, grads.options());
  scatter_into(
      grad_weight,
      spread(flat, grads.sizes(), 0),
      grads,
      grad_weight,
      Indexed::kAdd,
      {.op = "embedding_dense_backward",
       .skipped = padding_idx < 0 ? std::nullopt
                                  : std::optional<int64_t>(padding_idx)});
  return grad_weight;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<index_out, at::_ops::index_Tensor_out, Numbers::kRealAndComplex>(
      m);
  structured<index_out, at::_ops::index_Tensor, Numbers::kRealAndComplex>(m);
  structured<gather_out, at::_ops::gather_out, Numbers::kRealAndComplex>(m);
  structured<scatter_src_out,
             at::_ops::scatter_src_out,
             Numbers::kRealAndComplex>(m);
  structured<scatter_value_out,
             at::_ops::scatter_value_out,
             Numbers::kRealAndComplex>(m);
  structured<scatter_add_out,
             at::_ops::scatter_add_out,
             Numbers::kRealAndComplex>(m);
  structured<index_add_out, at::_ops::index_add_out, Numbers::kRealAndComplex>(
      m);
  structured<index_copy_out,
             at::_ops::index_copy_out,
             Numbers::kRealAndComplex>(m);
  m.impl("_index_put_impl_",
         &WithFallback<at::_ops::_index_put_impl_,
                       &index_put_impl,
                       Numbers::kRealAndComplex>::call);
  m.impl("index_select",
         &WithFallback<at::_ops::index_select,
                       &index_select,
                       Numbers::kRealAndComplex>::call);
  m.impl("index_select.out",
         &WithFallback<at::_ops::index_select_out,
                       &index_select_out,
                       Numbers::kRealAndComplex>::call);
  m.impl("index_fill_.int_Scalar",
         &WithFallback<at::_ops::index_fill__int_Scalar,
                       &index_fill_scalar,
                       Numbers::kRealAndComplex>::call);
  m.impl("index_fill_.int_Tensor",
         &WithFallback<at::_ops::index_fill__int_Tensor,
                       &index_fill_tensor,
                       Numbers::kRealAndComplex>::call);
  m.impl("embedding", TORCH_FN(embedding));
  m.impl("embedding_dense_backward",
         &WithFallback<at::_ops::embedding_dense_backward,
                       &embedding_dense_backward>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(index_put_stub,
                              &torch_opencl::ops::index_put_kernel)

}  // namespace at::native
