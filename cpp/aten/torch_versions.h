// What differs between the versions of torch that the source builds against.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/Padding.h>
#include <torch/version.h>

namespace torch_opencl::aten {

// Raises for a padding that does not fit a tensor of `dim` spatial dimensions.
template <int dim>
void check_valid_padding(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_VERSION_MINOR >= 15
  at::native::padding::check_valid_input(input, padding, dim);
#else
  at::native::padding::check_valid_input<dim>(input, padding);
#endif
}

}  // namespace torch_opencl::aten
