// Batch normalisation over dimension 1, for the ops that reduce to it too.
#pragma once

#include "norm_gradients.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// An undefined weight is 1, an undefined bias 0.
struct BatchNormParams {
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  double momentum = 0;
  double epsilon = 0;
};

// Of the batch; the running statistics, where defined, are updated. Of a
// channel of equal values and an epsilon of 0, the inverse deviation is
// infinite, or 0 with `zero_inverse`.
Statistics batch_statistics(const at::Tensor& input,
                            const BatchNormParams& params,
                            bool zero_inverse);

// Those statistics, and `out` transformed with them.
Statistics batch_norm_training(const at::Tensor& input,
                               const BatchNormParams& params,
                               const at::Tensor& out);

Statistics running_statistics(const at::Tensor& input,
                              const BatchNormParams& params);

// `out` transformed with the running statistics.
void batch_norm_evaluation(const at::Tensor& input,
                           const BatchNormParams& params,
                           const at::Tensor& out);

// out = (input - mean) * inverse_deviation * weight + bias
void batch_norm_transform(const at::Tensor& input,
                          const Statistics& statistics,
                          const at::Tensor& weight,
                          const at::Tensor& bias,
                          const at::Tensor& out);

// What grad_input loses because the statistics follow the input, a number a
// channel: shifts + (input - mean) * slopes. Undefined in evaluation.
struct GradientTerms {
  at::Tensor shifts;
  at::Tensor slopes;
};

// Writes grad_weight and grad_bias.
GradientTerms batch_norm_param_gradients(const NormGradients& gradients);

// Writes all of them, in training.
void batch_norm_training_gradients(const NormGradients& gradients);

// grad_input = grad_output * inverse_deviation * weight less `terms`
void batch_norm_input_gradient(const NormGradients& gradients,
                               const GradientTerms& terms);

}  // namespace torch_opencl::ops
