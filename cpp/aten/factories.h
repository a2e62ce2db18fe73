// Allocation of tensors, and what structured kernels need of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace torch_opencl::aten {

// An output as a meta function describes it: contiguous (or of the options'
// memory format) where `strides` is empty.
at::Tensor empty_like_meta(at::IntArrayRef sizes,
                           at::IntArrayRef strides,
                           const at::TensorOptions& options);
// An out= tensor is checked for dtype and device and resized.
void resize_out(const at::Tensor& out,
                at::IntArrayRef sizes,
                at::IntArrayRef strides,
                const at::TensorOptions& options);
void check_inplace(const at::Tensor& self,
                   at::IntArrayRef sizes,
                   const at::TensorOptions& options);

}  // namespace torch_opencl::aten
