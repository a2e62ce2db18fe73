// The launches of batch normalisation.
#include "batch_norm.h"
#include "batch_norm_groups.h"
#include "batch_norm_problem.h"
#include "params.h"

#include "../../cpp/aten/clamp_epilogue.h"
#include "../../cpp/aten/factories.h"

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

using batch_norm::BatchNormProblem;
using batch_norm::kItemWorkGroup;

Tensor workspace(const Tensor& input, at::IntArrayRef sizes) {
  return empty_like_meta(
      sizes, {}, input.options().dtype(compute_type(input.scalar_type())));
}

Statistics new_statistics(const Tensor& input) {
  return {workspace(input, {input.size(1)}), workspace(input, {input.size(1)})};
}

int64_t stride_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.stride(0) : 0;
}

// Launches record(lower, upper), which writes all of `out` within these bounds,
// in the type of its arithmetic; `tensors` are what else it uses.
template <class Record>
void launch_normalized(const Tensor& out,
                       TensorReferences tensors,
                       const Record& record) {
  with_compute_type(out, [&](auto number) {
    ClampArguments<decltype(number)> bounds;
    const runtime::KernelLaunch launch = record(bounds.lower(), bounds.upper());
    launch_clampable("native_batch_norm", out, launch, bounds, tensors);
  });
}

}  // namespace

Statistics batch_statistics(const Tensor& input,
                            const BatchNormParams& params,
                            bool zero_inverse) {
  const BatchNormProblem problem({input, input});
  const int64_t channels = problem.channels();
  const Statistics statistics = new_statistics(input);
  const Tensor means = workspace(input, {problem.chunks(), channels});
  const Tensor means_lost = workspace(input, {problem.chunks(), channels});
  const Tensor squares = workspace(input, {problem.chunks(), channels});
  problem.reduce(sources::batch_norm_statistics,
                 "batch_norm_partials",
                 "batch_norm_partials_lines",
                 arg(means),
                 arg(means_lost),
                 arg(squares),
                 arg(input));
  with_compute_type(input, [&](auto number) {
    using Number = decltype(number);
    problem.finish(sources::batch_norm_statistics,
                   "batch_norm_finish",
                   param_type(params.running_mean, params.running_var, input),
                   problem.pixels(),
                   problem.chunk(),
                   static_cast<int32_t>(problem.chunks()),
                   static_cast<Number>(params.epsilon),
                   static_cast<int32_t>(zero_inverse),
                   static_cast<Number>(params.momentum),
                   stride_of(params.running_mean),
                   stride_of(params.running_var),
                   arg(statistics.mean),
                   arg(statistics.inverse_deviation),
                   arg(params.running_mean),
                   arg(params.running_var),
                   arg(means),
                   arg(means_lost),
                   arg(squares));
  });
  return statistics;
}

Statistics batch_norm_training(const Tensor& input,
                               const BatchNormParams& params,
                               const Tensor& out) {
  if (!aten::device_of(input).is_cpu()) {
    const Statistics statistics = new_statistics(input);
    if (batch_norm_by_groups(input, params, statistics, out)) {
      return statistics;
    }
  }
  const BatchNormProblem problem({out, input});
  const Tensor weight = packed(params.weight);
  const Tensor bias = packed(params.bias);
  const at::ScalarType type =
      param_type(weight, bias, params.running_mean, params.running_var, input);
  if (!problem.is_by_kept_channels() ||
      !all_of_type(
          type, weight, bias, params.running_mean, params.running_var)) {
    const Statistics statistics = batch_statistics(input, params, true);
    batch_norm_transform(input, statistics, weight, bias, out);
    return statistics;
  }
  const Statistics statistics = new_statistics(input);
  launch_normalized(out,
                    {input,
                     statistics.mean,
                     statistics.inverse_deviation,
                     params.running_mean,
                     params.running_var,
                     weight,
                     bias},
                    [&](auto lower, auto upper) {
                      using Number = decltype(lower.value);
                      return problem.launch_channels(
                          sources::batch_norm_channels,
                          "batch_norm_channels",
                          type,
                          problem.kept_channels_tile(),
                          static_cast<Number>(params.epsilon),
                          static_cast<Number>(params.momentum),
                          lower,
                          upper,
                          stride_of(params.running_mean),
                          stride_of(params.running_var),
                          arg(out),
                          arg(statistics.mean),
                          arg(statistics.inverse_deviation),
                          arg(params.running_mean),
                          arg(params.running_var),
                          arg(input),
                          arg(weight),
                          arg(bias));
                    });
  return statistics;
}

Statistics running_statistics(const Tensor& input,
                              const BatchNormParams& params) {
  const int64_t channels = input.size(1);
  const Statistics statistics = new_statistics(input);
  with_compute_type(input, [&](auto number) {
    launch(input,
           sources::batch_norm_statistics,
           "batch_norm_running",
           {{"DTYPE", dtype_of(input)},
            {"PARAM_DTYPE", dtype_of(params.running_mean)},
            {"WG_SIZE", kItemWorkGroup}},
           range(channels, kItemWorkGroup),
           static_cast<int32_t>(channels),
           static_cast<decltype(number)>(params.epsilon),
           stride_of(params.running_mean),
           stride_of(params.running_var),
           arg(statistics.mean),
           arg(statistics.inverse_deviation),
           arg(params.running_mean),
           arg(params.running_var));
  });
  return statistics;
}

void batch_norm_evaluation(const Tensor& input,
                           const BatchNormParams& params,
                           const Tensor& out) {
  if (!aten::device_of(input).is_cpu() &&
      batch_norm_evaluation_by_groups(input, params, out)) {
    return;
  }
  const BatchNormProblem problem({out, input});
  const Tensor weight = packed(params.weight);
  const Tensor bias = packed(params.bias);
  const at::ScalarType type = params.running_mean.scalar_type();
  if (!problem.is_by_channels() ||
      !all_of_type(type, weight, bias, params.running_var)) {
    const Statistics statistics = running_statistics(input, params);
    batch_norm_transform(input, statistics, weight, bias, out);
    return;
  }
  const auto record = [&](auto lower, auto upper) {
    using Number = decltype(lower.value);
    return problem.launch_channels(sources::batch_norm_channels,
                                   "batch_norm_channels_running",
                                   type,
                                   problem.channels_tile(),
                                   static_cast<Number>(params.epsilon),
                                   lower,
                                   upper,
                                   stride_of(params.running_mean),
                                   stride_of(params.running_var),
                                   arg(out),
                                   arg(params.running_mean),
                                   arg(params.running_var),
                                   arg(input),
                                   arg(weight),
                                   arg(bias));
  };
  launch_normalized(
      out,
      {input, params.running_mean, params.running_var, weight, bias},
      record);
}

void batch_norm_transform(const Tensor& input,
                          const Statistics& statistics,
                          const Tensor& weight,
                          const Tensor& bias,
                          const Tensor& out) {
  const Tensor packed_weight = packed(weight);
  const Tensor packed_bias = packed(bias);
  launch_normalized(out,
                    {input,
                     statistics.mean,
                     statistics.inverse_deviation,
                     packed_weight,
                     packed_bias},
                    [&](auto lower, auto upper) {
                      return BatchNormProblem({out, input})
                          .transform("batch_norm_transform",
                                     "batch_norm_transform_lines",
                                     true,
                                     param_type(weight, bias, input),
                                     lower,
                                     upper,
                                     arg(out),
                                     arg(input),
                                     arg(statistics.mean),
                                     arg(statistics.inverse_deviation),
                                     arg(packed_weight),
                                     arg(packed_bias));
                    });
}

GradientTerms batch_norm_param_gradients(const NormGradients& gradients) {
  const BatchNormProblem problem(
      {gradients.input, gradients.input, gradients.grad_output});
  const int64_t channels = problem.channels();
  const GradientTerms result{workspace(gradients.input, {channels}),
                             workspace(gradients.input, {channels})};
  const Tensor sums = workspace(gradients.input, {problem.chunks(), channels});
  const Tensor products =
      workspace(gradients.input, {problem.chunks(), channels});
  problem.reduce(sources::batch_norm_gradients,
                 "batch_norm_gradient_partials",
                 "batch_norm_gradient_partials_lines",
                 arg(sums),
                 arg(products),
                 arg(gradients.input),
                 arg(gradients.grad_output),
                 arg(gradients.statistics.mean));
  const Tensor packed_weight = packed(gradients.weight);
  problem.finish(sources::batch_norm_gradients,
                 "batch_norm_gradient_finish",
                 param_type(gradients.weight,
                            gradients.grad_weight,
                            gradients.grad_bias,
                            gradients.input),
                 problem.pixels(),
                 static_cast<int32_t>(problem.chunks()),
                 arg(result.shifts),
                 arg(result.slopes),
                 arg(gradients.grad_weight),
                 arg(gradients.grad_bias),
                 arg(sums),
                 arg(products),
                 arg(gradients.statistics.inverse_deviation),
                 arg(packed_weight));
  return result;
}

void batch_norm_training_gradients(const NormGradients& gradients) {
  if (!aten::device_of(gradients.input).is_cpu() &&
      batch_norm_gradients_by_groups(gradients)) {
    return;
  }
  if (gradients.grad_input.defined()) {
    const BatchNormProblem problem(
        {gradients.grad_input, gradients.input, gradients.grad_output});
    if (problem.is_by_kept_channels()) {
      const Tensor packed_weight = packed(gradients.weight);
      enqueue(
          gradients.input,
          problem.launch_channels(sources::batch_norm_channels,
                                  "batch_norm_channels_backward",
                                  param_type(gradients.weight,
                                             gradients.grad_weight,
                                             gradients.grad_bias,
                                             gradients.input),
                                  problem.kept_channels_tile(),
                                  arg(gradients.grad_input),
                                  arg(gradients.grad_weight),
                                  arg(gradients.grad_bias),
                                  arg(gradients.input),
                                  arg(gradients.grad_output),
                                  arg(gradients.statistics.mean),
                                  arg(gradients.statistics.inverse_deviation),
                                  arg(packed_weight)));
      return;
    }
  }
  const GradientTerms terms = batch_norm_param_gradients(gradients);
  if (gradients.grad_input.defined()) {
    batch_norm_input_gradient(gradients, terms);
  }
}

void batch_norm_input_gradient(const NormGradients& gradients,
                               const GradientTerms& terms) {
  const Tensor packed_weight = packed(gradients.weight);
  enqueue(gradients.input,
          BatchNormProblem(
              {gradients.grad_input, gradients.input, gradients.grad_output})
              .transform("batch_norm_transform_backward",
                         "batch_norm_transform_backward_lines",
                         terms.shifts.defined(),
                         param_type(packed_weight, gradients.input),
                         arg(gradients.grad_input),
                         arg(gradients.input),
                         arg(gradients.grad_output),
                         arg(gradients.statistics.mean),
                         arg(gradients.statistics.inverse_deviation),
                         arg(terms.shifts),
                         arg(terms.slopes),
                         arg(packed_weight)));
}

}  // namespace torch_opencl::ops
