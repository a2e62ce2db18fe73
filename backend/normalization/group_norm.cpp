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
using OptionalTensor = std::optional<Tensor>;
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
  Tensor by_channel(const Tensor& tensor) const {
    return tensor.view({1, batch * channels, pixels});
  }
  Tensor by_group(const Tensor& tensor) const {
    return tensor.view({1, batch * groups, group_channels() * pixels});
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
  TORCH_CHECK(groups > 0 && channels % groups == 0,
              "Expected number of channels in input to be divisible by ",
              "num_groups, but got input of shape ",
              self.sizes(),
              " and num_groups=",
              groups);
  TORCH_CHECK(self.numel() == batch * channels * pixels,
              "Expected an input of ",
              batch * channels * pixels,
              " elements, but got ",
              self.sizes());
  check_params(self, weight, bias, channels);
  const Sizes sizes{batch, channels, pixels, groups};
  const Tensor input =
      self.contiguous();  // copy: a group is one run only in this format
  Tensor out = at::empty_like(input);
  const auto options = input.options().dtype(compute_type(input.scalar_type()));
  if (sizes.empty()) {
    return {out,
            at::zeros({batch, groups}, options),
            at::zeros({batch, groups}, options)};
  }
  const BatchNormProblem problem({sizes.by_group(out), sizes.by_group(input)});
  const at::ScalarType type = param_type(weight, bias, input);
  if (problem.is_by_kept_channels() && all_of_type(type, weight, bias)) {
    const Tensor mean = at::empty({batch, groups}, options);
    const Tensor inverse_deviation = at::empty({batch, groups}, options);
    with_compute_type(input, [&](auto number) {
      enqueue(
          input,
          problem.launch_channels(sources::group_norm,
                                  "group_norm",
                                  type,
                                  problem.kept_channels_tile(),
                                  static_cast<decltype(number)>(epsilon),
                                  static_cast<int32_t>(groups),
                                  static_cast<int32_t>(sizes.group_channels()),
                                  arg(out),
                                  arg(mean),
                                  arg(inverse_deviation),
                                  arg(input),
                                  arg(weight),
                                  arg(bias)));
    });
    return {in_format_of(self, out), mean, inverse_deviation};
  }
  const NormRows rows{
      batch * groups, sizes.group_channels() * pixels, type, pixels, groups};
  if (is_by_groups(input, rows) && all_of_type(type, weight, bias)) {
    const Tensor mean = at::empty({batch, groups}, options);
    const Tensor inverse_deviation = at::empty({batch, groups}, options);
    norm_by_groups(
        rows, input, weight, bias, epsilon, out, {mean, inverse_deviation});
    return {in_format_of(self, out), mean, inverse_deviation};
  }
  BatchNormParams params;
  params.epsilon = epsilon;
  const Statistics statistics = batch_statistics(sizes.by_group(input), params);
  const auto spread = [&](const Tensor& param) {
    return param.defined() ? sizes.spread_batch(param) : param;
  };
  batch_norm_transform(sizes.by_channel(input),
                       {sizes.spread_groups(statistics.mean),
                        sizes.spread_groups(statistics.inverse_deviation)},
                       spread(weight),
                       spread(bias),
                       sizes.by_channel(out));
  return {in_format_of(self, out),
          statistics.mean.view({batch, groups}),
          statistics.inverse_deviation.view({batch, groups})};
}

struct Gradients {
  Tensor input;  // where it is wanted
  // Of each channel of each image: the sum of grad_output, and of grad_output
  // times the normalised input.
  Tensor sums;
  Tensor products;
};

void gradients_by_passes(const Sizes& sizes,
                         const Tensor& grad_output,
                         const Tensor& input,
                         const Tensor& mean,
                         const Tensor& inverse,
                         const Tensor& weight,
                         const Gradients& gradients) {
  NormGradients by_channel{
      sizes.by_channel(grad_output),
      sizes.by_channel(input),
      {sizes.spread_groups(mean), sizes.spread_groups(inverse)}};
  by_channel.grad_weight = gradients.products;
  by_channel.grad_bias = gradients.sums;
  batch_norm_param_gradients(by_channel);
  if (gradients.input.defined()) {
    Tensor weighted_sums = gradients.sums;
    Tensor weighted_products = gradients.products;
    if (weight.defined()) {
      by_channel.weight = sizes.spread_batch(weight);
      const Tensor numbers = in_compute_type(by_channel.weight, input);
      weighted_sums = at::mul(gradients.sums, numbers);
      weighted_products = at::mul(gradients.products, numbers);
    }
    const double count =
        static_cast<double>(sizes.group_channels() * sizes.pixels);
    const Tensor shifts =
        at::mul(sizes.sum_groups(weighted_sums).div_(count), inverse);
    const Tensor slopes = sizes.sum_groups(weighted_products)
                              .div_(count)
                              .mul_(inverse)
                              .mul_(inverse);
    by_channel.grad_input = sizes.by_channel(gradients.input);
    batch_norm_input_gradient(
        by_channel, {sizes.spread_groups(shifts), sizes.spread_groups(slopes)});
  }
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
  Tensor grad_input = output_mask[0] ? at::empty_like(input) : Tensor();
  const auto params = (weight.defined() ? weight : input).options();
  if (sizes.empty()) {
    const auto zeros = [&](bool wanted) {
      return wanted ? at::zeros({channels}, params) : Tensor();
    };
    return {grad_input, zeros(output_mask[1]), zeros(output_mask[2])};
  }
  const Tensor mean = in_compute_type(mean_, input)
                          .reshape({batch, groups})
                          .contiguous();  // copy: a number a group
  const Tensor inverse = in_compute_type(inverse_deviation, input)
                             .reshape({batch, groups})
                             .contiguous();  // copy: a number a group
  const NormRows rows{batch * groups,
                      sizes.group_channels() * pixels,
                      param_type(weight, input),
                      pixels,
                      groups};
  if (is_by_groups(input, rows)) {
    const auto wanted = [&](bool is_wanted) {
      return is_wanted ? at::empty({channels}, params) : Tensor();
    };
    const Tensor grad_weight = wanted(output_mask[1]);
    const Tensor grad_bias = wanted(output_mask[2]);
    group_norm_gradients_by_groups(rows,
                                   {grad_output,
                                    input,
                                    {mean, inverse},
                                    weight,
                                    grad_input,
                                    grad_weight,
                                    grad_bias});
    return {grad_input, grad_weight, grad_bias};
  }
  const Tensor sums = at::empty({batch * channels}, mean.options());
  const Gradients gradients{grad_input, sums, at::empty_like(sums)};
  const BatchNormProblem problem({sizes.by_group(input),
                                  sizes.by_group(input),
                                  sizes.by_group(grad_output)});
  if (output_mask[0] && problem.is_by_kept_channels()) {
    enqueue(
        input,
        problem.launch_channels(sources::group_norm,
                                "group_norm_backward",
                                param_type(weight, input),
                                problem.kept_channels_tile(),
                                static_cast<int32_t>(groups),
                                static_cast<int32_t>(sizes.group_channels()),
                                arg(grad_input),
                                arg(gradients.sums),
                                arg(gradients.products),
                                arg(input),
                                arg(grad_output),
                                arg(mean),
                                arg(inverse),
                                arg(weight)));
  } else {
    gradients_by_passes(
        sizes, grad_output, input, mean, inverse, weight, gradients);
  }
  const auto over_batch = [&](bool wanted, const Tensor& values) {
    return wanted ? values.view({batch, channels}).sum(0).to(params.dtype())
                  : Tensor();
  };
  return {grad_input,
          over_batch(output_mask[1], gradients.products),
          over_batch(output_mask[2], gradients.sums)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::native_group_norm, &native_group_norm>(m);
  native<at::_ops::native_group_norm_backward, &native_group_norm_backward>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
