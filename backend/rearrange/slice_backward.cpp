// The gradient of a slice that is the whole tensor, as of a table of positions,
// is a copy.
#include <ATen/ops/slice_backward_native.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

Tensor slice_backward(const Tensor& grad_output,
                      at::IntArrayRef input_sizes,
                      int64_t dim,
                      int64_t start,
                      int64_t end,
                      int64_t step) {
  if (grad_output.sizes() != input_sizes) {
    return at::native::slice_backward(
        grad_output, input_sizes, dim, start, end, step);
  }
  // copy: a gradient is no alias of another
  return grad_output.clone(at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("slice_backward", TORCH_FN(slice_backward));
}

}  // namespace
}  // namespace torch_opencl::ops
