// Batch normalisation over dimension 1, for the ops that reduce to it too.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

struct Statistics {
  at::Tensor mean;
  at::Tensor inverse_deviation;
};

// Of the batch; the running statistics, where defined, are updated.
Statistics batch_statistics(const at::Tensor& input,
                            const at::Tensor& running_mean,
                            const at::Tensor& running_var,
                            double momentum,
                            double epsilon);

// Those statistics, and `out` transformed with them.
Statistics batch_norm_training(const at::Tensor& input,
                               const at::Tensor& weight,
                               const at::Tensor& bias,
                               const at::Tensor& running_mean,
                               const at::Tensor& running_var,
                               double momentum,
                               double epsilon,
                               const at::Tensor& out);

Statistics running_statistics(const at::Tensor& input,
                              const at::Tensor& running_mean,
                              const at::Tensor& running_var,
                              double epsilon);

// `out` transformed with the running statistics.
void batch_norm_evaluation(const at::Tensor& input,
                           const at::Tensor& weight,
                           const at::Tensor& bias,
                           const at::Tensor& running_mean,
                           const at::Tensor& running_var,
                           double epsilon,
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

// Writes grad_weight and grad_bias where they are defined.
GradientTerms batch_norm_param_gradients(const at::Tensor& grad_output,
                                         const at::Tensor& input,
                                         const Statistics& statistics,
                                         const at::Tensor& weight,
                                         const at::Tensor& grad_weight,
                                         const at::Tensor& grad_bias);

// All gradients in training, those that are defined.
void batch_norm_training_gradients(const at::Tensor& grad_output,
                                   const at::Tensor& input,
                                   const Statistics& statistics,
                                   const at::Tensor& weight,
                                   const at::Tensor& grad_weight,
                                   const at::Tensor& grad_bias,
                                   const at::Tensor& grad_input);

// grad_input = grad_output * inverse_deviation * weight less `terms`
void batch_norm_input_gradient(const at::Tensor& grad_output,
                               const at::Tensor& input,
                               const Statistics& statistics,
                               const at::Tensor& weight,
                               const GradientTerms& terms,
                               const at::Tensor& grad_input);

}  // namespace torch_opencl::ops
