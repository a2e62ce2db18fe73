// Group normalisation: in one launch where a cache keeps a group
// (group_norm.cl), else through batch normalisation's kernels, where a group's
// statistics are those of a channel of the input viewed as [1, N * groups, *],
// and its passes are those over [1, N * C, *].
#include "batch_norm.h"
#include "batch_norm_problem.h"
#include "layer_norm_groups.h"
#include "params.h"

#include "../../cpp/aten/fallback.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using batch_norm::BatchNormProblem;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

// On GPUs a work-group takes a group where these keep it busy, or it is short.
constexpr int64_t kRowsOfGroups = 64;
constexpr int64_t kShortRow = 16384;

struct Sizes {
  int64_t batch;
  int64_t channels;
  int64_t pixels;
  int64_t groups;

  int64_t group_channels() const { return channels / groups; }
  // A number a group for each of its channels: [N * C].
  Tensor spread_groups(const Tensor& values) const {
    return values.reshape({batch, groups, 1})
        .expand({batch, groups, group_channels()})
        .reshape({batch * channels})
        .contiguous();  // copy: reshape may leave strides of 0
  }
  // A number a channel for each sample: [N * C].
  Tensor spread_batch(const Tensor& values) const {
    return values.expand({batch, channels}).reshape({batch * channels});
  }
  // Sums a number a channel over each group: [N, groups].
  Tensor sum_groups(const Tensor& values) const {
    return values.view({batch, groups, group_channels()}).sum(2);
  }
  // A number a group: [N, groups].
  Tensor group_numbers(const Tensor& values) const {
    return values.reshape({batch, groups})
        .contiguous();  // copy: a number a group
  }
  Tensor by_channel(const Tensor& tensor) const {
    return tensor.view({1, batch * channels, pixels});
  }
  Tensor by_group(const Tensor& tensor) const {
    return tensor.view({1, batch * groups, group_channels() * pixels});
  }
  NormRows rows(at::ScalarType param_type) const {
    return {
        batch * groups, group_channels() * pixels, param_type, pixels, groups};
  }
  bool empty() const { return batch == 0 || channels == 0 || pixels == 0; }
};

bool is_by_groups(const Tensor& input, const NormRows& rows) {
  return !aten::device_of(input).is_cpu() && fits_int32(rows.size) &&
         (rows.rows >= kRowsOfGroups || rows.size <= kShortRow);
}

Tensor in_compute_type(const Tensor& tensor, const Tensor& input) {
  return tensor.to(compute_type(input.scalar_type()));
}

void check_params(const Tensor& input,
                  const Tensor& weight,
                  const Tensor& bias,
                  int64_t channels) {
  const auto check_size = [&](const char* name, const Tensor& param) {
    TORCH_CHECK(
        !param.defined() || (param.dim() == 1 && param.numel() == channels),
        "Expected ",
        name,
        " to be a vector of size equal to the number of channels in input, "
        "but got ",
        name,
        " of shape ",
        param.sizes(),
        " and input of shape ",
        input.sizes());
  };
  check_size("weight", weight);
  check_size("bias", bias);
  check_param_pair(input, weight, bias);
}

// channels_last stays channels_last, as on the CPU.
Tensor in_format_of(const Tensor& input, const Tensor& out) {
  return out.contiguous(  // copy: a group is no run of channels_last
      input.suggest_memory_format());
}

// A problem of contiguous tensors.
struct GroupNorm {
  Sizes sizes;
  Tensor input;
  Tensor weight;
  Tensor bias;
  double epsilon;
  Tensor out;
};

Statistics empty_statistics(const GroupNorm& g) {
  const auto options =
      g.input.options().dtype(compute_type(g.input.scalar_type()));
  const Tensor mean = at::empty({g.sizes.batch, g.sizes.groups}, options);
  return {mean, at::empty({g.sizes.batch, g.sizes.groups}, options)};
}

// Where a cache keeps a group.
Statistics norm_by_kept_groups(const GroupNorm& g,
                               const BatchNormProblem& problem,
                               at::ScalarType param_type) {
  const Statistics statistics = empty_statistics(g);
  with_compute_type(g.input, [&](auto number) {
    enqueue(
        g.input,
        problem.launch_channels(sources::group_norm,
                                "group_norm",
                                param_type,
                                problem.kept_channels_tile(),
                                static_cast<decltype(number)>(g.epsilon),
                                static_cast<int32_t>(g.sizes.groups),
                                static_cast<int32_t>(g.sizes.group_channels()),
                                arg(g.out),
                                arg(statistics.mean),
                                arg(statistics.inverse_deviation),
                                arg(g.input),
                                arg(g.weight),
                                arg(g.bias)));
  });
  return statistics;
}

Statistics norm_by_passes(const GroupNorm& g) {
  const Sizes& sizes = g.sizes;
  BatchNormParams params;
  params.epsilon = g.epsilon;
  const Statistics statistics =
      batch_statistics(sizes.by_group(g.input), params, false);
  const auto spread = [&](const Tensor& param) {
    return param.defined() ? sizes.spread_batch(param) : param;
  };
  batch_norm_transform(sizes.by_channel(g.input),
                       {sizes.spread_groups(statistics.mean),
                        sizes.spread_groups(statistics.inverse_deviation)},
                       spread(g.weight),
                       spread(g.bias),
                       sizes.by_channel(g.out));
  return {statistics.mean.view({sizes.batch, sizes.groups}),
          statistics.inverse_deviation.view({sizes.batch, sizes.groups})};
}

Statistics normalize_groups(const GroupNorm& g) {
  const BatchNormProblem problem(
      {g.sizes.by_group(g.out), g.sizes.by_group(g.input)});
  const at::ScalarType type = param_type(g.weight, g.bias, g.input);
  if (!all_of_type(type, g.weight, g.bias)) {
    return norm_by_passes(g);
  }
  if (problem.is_by_kept_channels()) {
    return norm_by_kept_groups(g, problem, type);
  }
  const NormRows rows = g.sizes.rows(type);
  if (!is_by_groups(g.input, rows)) {
    return norm_by_passes(g);
  }
  const Statistics statistics = empty_statistics(g);
  norm_by_groups(rows, g.input, g.weight, g.bias, g.epsilon, g.out, statistics);
  return statistics;
}

void check_input(const Tensor& input, const Sizes& sizes) {
  const auto& [batch, channels, pixels, groups] = sizes;
  TORCH_CHECK(groups > 0 && channels % groups == 0,
              "Expected number of channels in input to be divisible by ",
              "num_groups, but got input of shape ",
              input.sizes(),
              " and num_groups=",
              groups);
  TORCH_CHECK(input.numel() == batch * channels * pixels,
              "Expected an input of ",
              batch * channels * pixels,
              " elements, but got ",
              input.sizes());
}

Outputs native_group_norm(const Tensor& self,
                          const OptionalTensor& weight_opt,
                          const OptionalTensor& bias_opt,
                          int64_t batch,
                          int64_t channels,
                          int64_t pixels,
                          int64_t groups,
                          double epsilon) {
  check_floating("GroupNormKernelImpl", self);
  const Tensor weight = packed(weight_opt.value_or(Tensor()));
  const Tensor bias = packed(bias_opt.value_or(Tensor()));
  const Sizes sizes{batch, channels, pixels, groups};
  check_input(self, sizes);
  check_params(self, weight, bias, channels);
  const Tensor input =
      self.contiguous();  // copy: a group is one run only in this format
  const Tensor out = at::empty_like(input);
  if (sizes.empty()) {
    const auto options =
        input.options().dtype(compute_type(input.scalar_type()));
    return {out,
            at::zeros({batch, groups}, options),
            at::zeros({batch, groups}, options)};
  }
  const Statistics statistics =
      normalize_groups({sizes, input, weight, bias, epsilon, out});
  return {
      in_format_of(self, out), statistics.mean, statistics.inverse_deviation};
}

// Of each channel of each image: the sum of grad_output, and of grad_output
// times the normalised input.
struct ChannelSums {
  Tensor sums;
  Tensor products;
};

// Writes the sums and, where it is wanted, grad_input.
void gradients_by_passes(const Sizes& sizes,
                         const NormGradients& gradients,
                         const ChannelSums& of_channels) {
  const Tensor& inverse = gradients.statistics.inverse_deviation;
  NormGradients by_channel{sizes.by_channel(gradients.grad_output),
                           sizes.by_channel(gradients.input),
                           {sizes.spread_groups(gradients.statistics.mean),
                            sizes.spread_groups(inverse)}};
  by_channel.grad_weight = of_channels.products;
  by_channel.grad_bias = of_channels.sums;
  batch_norm_param_gradients(by_channel);
  if (gradients.grad_input.defined()) {
    Tensor weighted_sums = of_channels.sums;
    Tensor weighted_products = of_channels.products;
    if (gradients.weight.defined()) {
      by_channel.weight = sizes.spread_batch(gradients.weight);
      const Tensor numbers =
          in_compute_type(by_channel.weight, gradients.input);
      weighted_sums = at::mul(of_channels.sums, numbers);
      weighted_products = at::mul(of_channels.products, numbers);
    }
    const double count =
        static_cast<double>(sizes.group_channels() * sizes.pixels);
    const Tensor shifts =
        at::mul(sizes.sum_groups(weighted_sums).div_(count), inverse);
    const Tensor slopes = sizes.sum_groups(weighted_products)
                              .div_(count)
                              .mul_(inverse)
                              .mul_(inverse);
    by_channel.grad_input = sizes.by_channel(gradients.grad_input);
    batch_norm_input_gradient(
        by_channel, {sizes.spread_groups(shifts), sizes.spread_groups(slopes)});
  }
}

// The same, on CPUs in one launch where a cache keeps a group.
ChannelSums gradients_by_channel(const Sizes& sizes,
                                 const NormGradients& gradients) {
  const auto& [mean, inverse] = gradients.statistics;
  const Tensor& input = gradients.input;
  const Tensor sums = at::empty({sizes.batch * sizes.channels}, mean.options());
  const ChannelSums of_channels{sums, at::empty_like(sums)};
  const BatchNormProblem problem({sizes.by_group(input),
                                  sizes.by_group(input),
                                  sizes.by_group(gradients.grad_output)});
  if (gradients.grad_input.defined() && problem.is_by_kept_channels()) {
    enqueue(
        input,
        problem.launch_channels(sources::group_norm,
                                "group_norm_backward",
                                param_type(gradients.weight, input),
                                problem.kept_channels_tile(),
                                static_cast<int32_t>(sizes.groups),
                                static_cast<int32_t>(sizes.group_channels()),
                                arg(gradients.grad_input),
                                arg(of_channels.sums),
                                arg(of_channels.products),
                                arg(input),
                                arg(gradients.grad_output),
                                arg(mean),
                                arg(inverse),
                                arg(gradients.weight)));
  } else {
    gradients_by_passes(sizes, gradients, of_channels);
  }
  return of_channels;
}

Outputs native_group_norm_backward(const Tensor& grad_output_,
                                   const Tensor& self,
                                   const Tensor& mean_,
                                   const Tensor& inverse_deviation,
                                   const OptionalTensor& weight_opt,
                                   int64_t batch,
                                   int64_t channels,
                                   int64_t pixels,
                                   int64_t groups,
                                   std::array<bool, 3> output_mask) {
  check_floating("GroupNormBackwardKernelImpl", self);
  const Sizes sizes{batch, channels, pixels, groups};
  const Tensor weight = packed(weight_opt.value_or(Tensor()));
  check_params(self, weight, Tensor(), channels);
  check_scalar_type(grad_output_, self.scalar_type());
  TORCH_CHECK(grad_output_.numel() == self.numel() &&
                  mean_.numel() == batch * groups &&
                  inverse_deviation.numel() == batch * groups,
              "Expected a gradient, means and deviations of the input's sizes ",
              self.sizes());
  const Tensor input =
      self.contiguous();  // copy: a group is one run only in this format
  const Tensor grad_output = grad_output_.contiguous();  // copy: as above
  const Tensor grad_input = output_mask[0] ? at::empty_like(input) : Tensor();
  const auto params = (weight.defined() ? weight : input).options();
  if (sizes.empty()) {
    const auto zeros = [&](bool wanted) {
      return wanted ? at::zeros({channels}, params) : Tensor();
    };
    return {grad_input, zeros(output_mask[1]), zeros(output_mask[2])};
  }
  NormGradients gradients{
      grad_output,
      input,
      {sizes.group_numbers(in_compute_type(mean_, input)),
       sizes.group_numbers(in_compute_type(inverse_deviation, input))},
      weight,
      grad_input};
  const NormRows rows = sizes.rows(param_type(weight, input));
  if (is_by_groups(input, rows)) {
    const auto new_param = [&](bool wanted) {
      return wanted ? at::empty({channels}, params) : Tensor();
    };
    gradients.grad_weight = new_param(output_mask[1]);
    gradients.grad_bias = new_param(output_mask[2]);
    group_norm_gradients_by_groups(rows, gradients);
    return {grad_input, gradients.grad_weight, gradients.grad_bias};
  }
  const ChannelSums of_channels = gradients_by_channel(sizes, gradients);
  const auto over_batch = [&](bool wanted, const Tensor& values) {
    return wanted ? values.view({batch, channels}).sum(0).to(params.dtype())
                  : Tensor();
  };
  return {grad_input,
          over_batch(output_mask[1], of_channels.products),
          over_batch(output_mask[2], of_channels.sums)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::native_group_norm, &native_group_norm>(m);
  native<at::_ops::native_group_norm_backward, &native_group_norm_backward>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
