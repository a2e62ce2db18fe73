// Fourier transforms of lines of any length.
#pragma once

#include "../../cpp/runtime/fft_plan.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// By VkFFT, of contiguous tensors. False where it has no plan.
bool run_fft(runtime::FftProblem problem,
             const at::Tensor& in,
             const at::Tensor& out);

// Of the last dimension of a contiguous complex tensor, not normalised.
// Undefined where the device has no transform.
at::Tensor transform_lines(const at::Tensor& lines, bool forward);
// The same of any dimension of any complex tensor.
at::Tensor transform_axis(const at::Tensor& tensor, int64_t dim, bool forward);

}  // namespace torch_opencl::ops
