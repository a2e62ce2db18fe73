#include "batch_norm.h"
#include "params.h"

#include "../../cpp/aten/factories.h"
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;
using OutputRefs = std::tuple<Tensor&, Tensor&, Tensor&>;

// Contiguous where a tensor is that and channels_last at once.
std::optional<at::MemoryFormat> dense_format_of(const Tensor& tensor) {
  using at::MemoryFormat;
  for (const auto format : {MemoryFormat::Contiguous,
                            MemoryFormat::ChannelsLast,
                            MemoryFormat::ChannelsLast3d}) {
    if (tensor.is_contiguous(format)) {
      return format;
    }
  }
  return std::nullopt;
}

// As on the CPU: the input's strides of dimensions of one element count where a
// parameter is strided.
at::MemoryFormat format_of_output(const Tensor& input,
                                  const BatchNormParams& params) {
  for (const Tensor* param : {&params.weight,
                              &params.bias,
                              &params.running_mean,
                              &params.running_var}) {
    if (param->defined() && !param->is_contiguous()) {
      return input.suggest_memory_format();
    }
  }
  return dense_format_of(input).value_or(input.suggest_memory_format());
}

// As on the CPU: they count, too, where the gradient has another format.
at::MemoryFormat format_of_gradient(const Tensor& input,
                                    const Tensor& grad_output) {
  const auto suggested = input.suggest_memory_format();
  const bool agree = dense_format_of(grad_output).has_value() &&
                     grad_output.suggest_memory_format() == suggested;
  return agree ? dense_format_of(input).value_or(suggested) : suggested;
}

void check_params(const Tensor& input, const BatchNormParams& params) {
  const auto& [weight, bias, running_mean, running_var, momentum, epsilon] =
      params;
  check_floating("batch_norm", input);
  for (const Tensor* param : {&weight, &bias, &running_mean, &running_var}) {
    TORCH_CHECK(!param->defined() || param->numel() == input.size(1),
                "a parameter should contain ",
                input.size(1),
                " elements not ",
                param->numel());
  }
  check_param_pair(input, weight, bias);
  check_param_pair(input, running_mean, running_var);
}

// As on the CPU, evaluation saves nothing.
Statistics normalize_into(const Tensor& input,
                          const BatchNormParams& params,
                          bool training,
                          const Tensor& out) {
  const Tensor& running_mean = params.running_mean;
  const Tensor& running_var = params.running_var;
  check_params(input, params);
  for (const Tensor* statistics : {&running_mean, &running_var}) {
    TORCH_CHECK(!statistics->defined() || statistics->dim() == 1,
                "batch_norm: running statistics of 1 dimension expected, but "
                "one has ",
                statistics->dim());
  }
  TORCH_CHECK(!training || input.numel() != 0,
              "input tensor must have at least one element, but got "
              "input_sizes = ",
              input.sizes());
  TORCH_CHECK(training || (running_mean.defined() && running_var.defined()),
              "running_mean must be defined in evaluation mode");
  TORCH_CHECK_VALUE(
      running_mean.defined() == running_var.defined(),
      "running_mean and running_var must either both be None or neither be "
      "None");
  if (training) {
    if (running_mean.defined()) {
      at::assert_no_internal_overlap(running_mean);
      at::assert_no_internal_overlap(running_var);
    }
    return batch_norm_training(input, params, out);
  }
  if (input.numel() != 0) {
    batch_norm_evaluation(input, params, out);
  }
  const Tensor none =
      at::empty({0}, input.options().dtype(compute_type(input.scalar_type())));
  return {none, none.clone()};
}

Outputs normalized(const Tensor& input,
                   const BatchNormParams& params,
                   bool training) {
  const auto options =
      input.options().memory_format(format_of_output(input, params));
  const Tensor out = empty_like_meta(input.sizes(), {}, options);
  const Statistics saved = normalize_into(input, params, training, out);
  return {out, saved.mean, saved.inverse_deviation};
}

void copy_out(Tensor& out, const Tensor& value) {
  at::native::resize_output(out, value.sizes());
  out.copy_(value);
}

// Of half types they are float, or of the input's type as on the CPU.
void check_statistics_out(const Tensor& statistics, const Tensor& input) {
  if (statistics.scalar_type() != compute_type(input.scalar_type())) {
    check_scalar_type(statistics, input.scalar_type());
  }
}

OutputRefs normalized_out(const Tensor& input,
                          const BatchNormParams& params,
                          bool training,
                          const OutputRefs& outs) {
  const auto& [out, save_mean, save_invstd] = outs;
  check_scalar_type(out, input.scalar_type());
  check_statistics_out(save_mean, input);
  check_statistics_out(save_invstd, input);
  at::native::resize_output(out, input.sizes());
  const Statistics saved = normalize_into(input, params, training, out);
  if (training) {
    copy_out(save_mean, saved.mean);
    copy_out(save_invstd, saved.inverse_deviation);
  }
  return outs;
}

BatchNormParams params_of(const OptionalTensor& weight,
                          const OptionalTensor& bias,
                          const OptionalTensor& running_mean,
                          const OptionalTensor& running_var,
                          double momentum,
                          double epsilon) {
  return {value_or_undefined(weight),
          value_or_undefined(bias),
          value_or_undefined(running_mean),
          value_or_undefined(running_var),
          momentum,
          epsilon};
}

Outputs native_batch_norm(const Tensor& input,
                          const OptionalTensor& weight,
                          const OptionalTensor& bias,
                          const OptionalTensor& mean,
                          const OptionalTensor& var,
                          bool training,
                          double momentum,
                          double epsilon) {
  return normalized(
      input, params_of(weight, bias, mean, var, momentum, epsilon), training);
}

OutputRefs native_batch_norm_out(const Tensor& input,
                                 const OptionalTensor& weight,
                                 const OptionalTensor& bias,
                                 const OptionalTensor& mean,
                                 const OptionalTensor& var,
                                 bool training,
                                 double momentum,
                                 double epsilon,
                                 Tensor& out,
                                 Tensor& save_mean,
                                 Tensor& save_invstd) {
  return normalized_out(input,
                        params_of(weight, bias, mean, var, momentum, epsilon),
                        training,
                        {out, save_mean, save_invstd});
}

Outputs native_batch_norm_no_stats(const Tensor& input,
                                   const OptionalTensor& weight,
                                   const OptionalTensor& bias,
                                   bool training,
                                   double momentum,
                                   double epsilon) {
  return native_batch_norm(
      input, weight, bias, {}, {}, training, momentum, epsilon);
}

OutputRefs native_batch_norm_no_stats_out(const Tensor& input,
                                          const OptionalTensor& weight,
                                          const OptionalTensor& bias,
                                          bool training,
                                          double momentum,
                                          double epsilon,
                                          Tensor& out,
                                          Tensor& save_mean,
                                          Tensor& save_invstd) {
  return normalized_out(input,
                        params_of(weight, bias, {}, {}, momentum, epsilon),
                        training,
                        {out, save_mean, save_invstd});
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    Tensor& mean,
    Tensor& var,
    double momentum,
    double epsilon) {
  const Tensor reserve = at::empty({0}, input.options().dtype(at::kByte));
  return std::tuple_cat(
      native_batch_norm(
          input, weight, bias, mean, var, true, momentum, epsilon),
      std::make_tuple(reserve));
}

// What the input was normalised with: saved by training, or running.
Statistics statistics_of(const Tensor& input,
                         const BatchNormParams& params,
                         bool train,
                         const OptionalTensor& save_mean,
                         const OptionalTensor& save_invstd) {
  if (!train) {
    TORCH_CHECK(params.running_mean.defined() && params.running_var.defined(),
                "running_mean must be defined in evaluation mode");
    return running_statistics(input, params);
  }
  const at::ScalarType type = compute_type(input.scalar_type());
  TORCH_CHECK(save_mean.has_value() && save_invstd.has_value(),
              "when train=True, save_mean and save_invstd are required");
  TORCH_CHECK(save_mean->numel() == input.size(1) &&
                  save_invstd->numel() == input.size(1),
              "save_mean and save_invstd should contain ",
              input.size(1),
              " elements");
  return {save_mean->to(type).contiguous(),     // copy: one number a channel
          save_invstd->to(type).contiguous()};  // copy: one number a channel
}

Outputs native_batch_norm_backward(const Tensor& grad_output,
                                   const Tensor& input,
                                   const OptionalTensor& weight_opt,
                                   const OptionalTensor& running_mean,
                                   const OptionalTensor& running_var,
                                   const OptionalTensor& save_mean,
                                   const OptionalTensor& save_invstd,
                                   bool train,
                                   double epsilon,
                                   std::array<bool, 3> output_mask) {
  const BatchNormParams params =
      params_of(weight_opt, {}, running_mean, running_var, 0, epsilon);
  const Tensor& weight = params.weight;
  check_params(input, params);
  check_scalar_type(grad_output, input.scalar_type());
  TORCH_CHECK(grad_output.sizes() == input.sizes(),
              "batch_norm_backward: a gradient of sizes ",
              grad_output.sizes(),
              " of an input of sizes ",
              input.sizes());
  if (input.numel() == 0) {
    const auto options = (weight.defined() ? weight : input).options();
    const auto zeros = [&](bool wanted) {
      return wanted ? at::zeros({input.size(1)}, options) : Tensor();
    };
    return {output_mask[0] ? at::zeros_like(input) : Tensor(),
            zeros(output_mask[1]),
            zeros(output_mask[2])};
  }
  const Statistics statistics =
      statistics_of(input, params, train, save_mean, save_invstd);
  const auto options =
      input.options().dtype((weight.defined() ? weight : input).scalar_type());
  const auto new_param = [&](bool wanted) {
    return wanted ? at::empty({input.size(1)}, options) : Tensor();
  };
  NormGradients gradients{grad_output, input, statistics, weight};
  gradients.grad_weight = new_param(output_mask[1]);
  gradients.grad_bias = new_param(output_mask[2]);
  if (output_mask[0]) {
    gradients.grad_input =
        at::empty_like(input, format_of_gradient(input, grad_output));
  }
  if (train) {
    batch_norm_training_gradients(gradients);
  } else {
    if (output_mask[1] || output_mask[2]) {
      batch_norm_param_gradients(gradients);
    }
    if (output_mask[0]) {
      batch_norm_input_gradient(gradients, GradientTerms());
    }
  }
  return {gradients.grad_input, gradients.grad_weight, gradients.grad_bias};
}

Outputs batch_norm_backward(const Tensor& grad_output,
                            const Tensor& input,
                            const Tensor& weight,
                            const OptionalTensor& running_mean,
                            const OptionalTensor& running_var,
                            const OptionalTensor& save_mean,
                            const OptionalTensor& save_var,
                            bool update,
                            double epsilon,
                            std::array<bool, 3> output_mask,
                            const Tensor&) {
  return native_batch_norm_backward(grad_output,
                                    input,
                                    weight,
                                    running_mean,
                                    running_var,
                                    save_mean,
                                    save_var,
                                    update,
                                    epsilon,
                                    output_mask);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::native_batch_norm, &native_batch_norm>(m);
  native<at::_ops::native_batch_norm_out, &native_batch_norm_out>(m);
  // Theirs are running statistics that are never undefined.
  native<at::_ops::_native_batch_norm_legit,
         &WithConversions<at::_ops::_native_batch_norm_legit,
                          &native_batch_norm>::call>(m);
  native<at::_ops::_native_batch_norm_legit_out,
         &WithConversions<at::_ops::_native_batch_norm_legit_out,
                          &native_batch_norm_out>::call>(m);
  native<at::_ops::_native_batch_norm_legit_no_stats,
         &native_batch_norm_no_stats>(m);
  native<at::_ops::_native_batch_norm_legit_no_stats_out,
         &native_batch_norm_no_stats_out>(m);
  native<at::_ops::_batch_norm_with_update, &batch_norm_with_update>(m);
  native<at::_ops::native_batch_norm_backward, &native_batch_norm_backward>(m);
  native<at::_ops::batch_norm_backward, &batch_norm_backward>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
