// Batch normalisation by work-groups, for GPUs: what batch_norm.h has, in one
// or two launches.
#pragma once

#include "batch_norm.h"

namespace torch_opencl::ops {

// False where nothing was launched: pixels have more than two strides, or
// parameters several dtypes. `statistics` is written.
bool batch_norm_by_groups(const at::Tensor& input,
                          const BatchNormParams& params,
                          const Statistics& statistics,
                          const at::Tensor& out);

// With the running statistics, which are not changed.
bool batch_norm_evaluation_by_groups(const at::Tensor& input,
                                     const BatchNormParams& params,
                                     const at::Tensor& out);

bool batch_norm_gradients_by_groups(const NormGradients& gradients);

}  // namespace torch_opencl::ops
