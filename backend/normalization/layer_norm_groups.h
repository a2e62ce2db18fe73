// Layer normalisation by work-groups, for GPUs.
#pragma once

#include "norm_gradients.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// Contiguous rows of `size` elements. Parameters follow each other and are of
// `param_type`; undefined ones are ones and zeros.
struct NormRows {
  int64_t rows;
  int64_t size;
  at::ScalarType param_type;
  // Of group normalisation, whose parameters are a number a channel: the
  // elements of a channel, and the groups of an image.
  int64_t pixels = 0;
  int64_t groups = 0;
};

void norm_by_groups(const NormRows& rows,
                    const at::Tensor& input,
                    const at::Tensor& weight,
                    const at::Tensor& bias,
                    double epsilon,
                    const at::Tensor& out,
                    const Statistics& statistics);

void layer_norm_gradients_by_groups(const NormRows& rows,
                                    const NormGradients& gradients);

void group_norm_gradients_by_groups(const NormRows& rows,
                                    const NormGradients& gradients);

}  // namespace torch_opencl::ops
