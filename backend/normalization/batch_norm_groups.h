// Batch normalisation by work-groups, for GPUs: what batch_norm.h has, in one
// or two launches.
#pragma once

#include "batch_norm.h"

namespace torch_opencl::ops {

// False where nothing was launched: pixels have more than two strides, or
// parameters several dtypes. `statistics` is written.
bool batch_norm_by_groups(const at::Tensor& input,
                          const at::Tensor& weight,
                          const at::Tensor& bias,
                          const at::Tensor& running_mean,
                          const at::Tensor& running_var,
                          double momentum,
                          double epsilon,
                          const Statistics& statistics,
                          const at::Tensor& out);

// With the running statistics, which are not changed.
bool batch_norm_evaluation_by_groups(const at::Tensor& input,
                                     const at::Tensor& weight,
                                     const at::Tensor& bias,
                                     const at::Tensor& running_mean,
                                     const at::Tensor& running_var,
                                     double epsilon,
                                     const at::Tensor& out);

// All gradients in training, those that are defined.
bool batch_norm_gradients_by_groups(const at::Tensor& grad_output,
                                    const at::Tensor& input,
                                    const Statistics& statistics,
                                    const at::Tensor& weight,
                                    const at::Tensor& grad_weight,
                                    const at::Tensor& grad_bias,
                                    const at::Tensor& grad_input);

}  // namespace torch_opencl::ops
