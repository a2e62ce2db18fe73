// Batch normalisation over dimension 1, for the ops that reduce to it too.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

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

Statistics running_statistics(const at::Tensor& input,
                              const at::Tensor& running_mean,
                              const at::Tensor& running_var,
                              double epsilon);

// out = (input - mean) * inverse_deviation * weight + bias
void batch_norm_transform(const at::Tensor& input,
                          const Statistics& statistics,
                          const at::Tensor& weight,
                          const at::Tensor& bias,
                          const at::Tensor& out);

struct BatchNormGradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
};

// `train`: the statistics are functions of the input.
BatchNormGradients batch_norm_gradients(const at::Tensor& grad_output,
                                        const at::Tensor& input,
                                        const Statistics& statistics,
                                        const at::Tensor& weight,
                                        bool train,
                                        std::array<bool, 3> output_mask);

}  // namespace torch_opencl::ops
