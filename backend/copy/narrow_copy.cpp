// narrow_copy of dense tensors, with the errors of the CPU's.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

Tensor& narrow_copy_out(const Tensor& self,
                        int64_t dim,
                        int64_t start,
                        int64_t length,
                        Tensor& out) {
  TORCH_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(self.dtype() == out.dtype());
  const at::IntArrayRef self_sizes = self.sizes();
  if (dim < 0) {
    dim = at::maybe_wrap_dim(dim, self.dim());
  } else {
    TORCH_CHECK(dim < static_cast<int64_t>(self_sizes.size()));
  }
  const int64_t size = self_sizes[dim];
  TORCH_CHECK_INDEX(-size <= start && start <= size,
                    "start out of range (expected to be in range of [",
                    -size,
                    ", ",
                    size,
                    "], but got ",
                    start,
                    ")");
  if (start < 0) {
    start += size;
  }
  TORCH_CHECK(length >= 0 && start <= size - length,
              "start (",
              start,
              ") + length (",
              length,
              ") exceeds dimension size (",
              size,
              ").");
  const Tensor part = self.narrow(dim, start, length);
  at::native::resize_output(out, part.sizes());
  return out.copy_(part);
}

Tensor narrow_copy(const Tensor& self,
                   int64_t dim,
                   int64_t start,
                   int64_t length) {
  Tensor out = at::empty({0}, self.options());
  return narrow_copy_out(self, dim, start, length, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("narrow_copy", TORCH_FN(narrow_copy));
  m.impl("narrow_copy.out", TORCH_FN(narrow_copy_out));
}

}  // namespace torch_opencl::ops
