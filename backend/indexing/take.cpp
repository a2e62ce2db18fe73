// take, put_, repeat_interleave, unfold_backward and trace, in terms of other
// indexing.
#include "../../cpp/aten/no_autocast.h"
#include "../../cpp/aten/reports.h"
#include "kernel_sources.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

void check_index(const char* name, const Tensor& self, const Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              name,
              "(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    name,
                    "(): tried to take from an empty tensor");
}

Tensor take(const Tensor& self, const Tensor& index) {
  check_index("take", self, index);
  if (index.numel() == 0) {
    return at::empty(index.sizes(), self.options());
  }
  const ReportAs report_as("take");
  const c10::List<std::optional<Tensor>> indices({index.reshape({-1})});
  return self.reshape({-1}).index(indices).view(index.sizes());
}

Tensor& take_out(const Tensor& self, const Tensor& index, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "take(): self and out expected to have the same dtype, but got "
              "self.dtype = ",
              self.scalar_type(),
              " and out.dtype = ",
              out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, index);
  at::assert_no_overlap(out, self);
  const Tensor result = take(self, index);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& put_(Tensor& self,
             const Tensor& index,
             const Tensor& source,
             bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong,
              "put_(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but "
              "got self.dtype = ",
              self.scalar_type(),
              " and source.dtype = ",
              source.scalar_type());
  TORCH_CHECK(index.numel() == source.numel(),
              "put_(): Expected source and index to have the same number of "
              "elements, but got source.numel() = ",
              source.numel(),
              ", index.numel() = ",
              index.numel());
  TORCH_CHECK_INDEX(self.numel() != 0 || index.numel() == 0,
                    "put_(): Tried to put elements into an empty tensor");
  at::assert_no_internal_overlap(self);
  if (index.numel() == 0) {
    return self;
  }
  const Tensor dense =
      self.contiguous();  // copy: indices count along the logical order
  const ReportAs report_as("put_");
  const c10::List<std::optional<Tensor>> indices({index.reshape({-1})});
  dense.view({-1}).index_put_(indices, source.reshape({-1}), accumulate);
  return dense.is_same(self) ? self : self.copy_(dense);
}

// Index i as often as repeats[i] says.
Tensor repeat_interleave(const Tensor& repeats,
                         std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1,
              "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
      "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) {
    TORCH_CHECK(output_size.value_or(0) == 0,
                "allocated size does not match required size");
    return at::empty({0}, repeats.options());
  }
  const Tensor ends = repeats.cumsum(0);
  // output_size is there to spare the wait.
  if (output_size.has_value()) {
    launch(ends,
           sources::range,
           "check_repeats",
           {{"DTYPE", DType::kInt64}},
           range(ends.numel(), 64),
           arg_in(ends),
           static_cast<uint64_t>(ends.numel()),
           *output_size,
           reports(ends, "repeat_interleave"));
  } else {
    TORCH_CHECK(repeats.min().item<int64_t>() >= 0,
                "repeats can not be negative");
    output_size = ends[-1].item<int64_t>();
  }
  const Tensor places = at::arange(*output_size, ends.options());
  return at::searchsorted(ends, places, false, /*right=*/true)
      .to(repeats.scalar_type());
}

Tensor unfold_backward(const Tensor& grad_in,
                       at::IntArrayRef input_sizes,
                       int64_t dim,
                       int64_t size,
                       int64_t step) {
  Tensor result = at::zeros(input_sizes, grad_in.options());
  if (input_sizes.empty()) {
    return result.copy_(grad_in.sum());
  }
  dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(input_sizes.size()));
  const at::TensorOptions integers = grad_in.options().dtype(at::kLong);
  const Tensor index = at::arange(grad_in.size(dim), integers)
                           .mul_(step)
                           .unsqueeze(1)
                           .add(at::arange(size, integers))
                           .reshape({-1});
  // (windows, size) side by side, as the index has them
  const Tensor values = grad_in.movedim(-1, dim + 1).flatten(dim, dim + 1);
  return result.index_add_(dim, index, values);
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix");
  const aten::NoAutocast guard;
  return self.diagonal().sum();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("take", TORCH_FN(take));
  m.impl("take.out", TORCH_FN(take_out));
  m.impl("put_", TORCH_FN(put_));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
  m.impl("unfold_backward", TORCH_FN(unfold_backward));
  m.impl("trace", TORCH_FN(trace));
}

}  // namespace torch_opencl::ops
