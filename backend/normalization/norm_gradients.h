// What the gradients of normalisations follow from, and where they go.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// A number a channel or a row, of the type that kernels compute with.
struct Statistics {
  at::Tensor mean;
  at::Tensor inverse_deviation;
};

// Undefined gradients are not wanted. An undefined weight is 1.
struct NormGradients {
  at::Tensor grad_output;
  at::Tensor input;
  Statistics statistics;
  at::Tensor weight;
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor grad_bias;

  bool has_params() const {
    return grad_weight.defined() || grad_bias.defined();
  }
};

}  // namespace torch_opencl::ops
