// Group normalisation through batch normalisation's kernels: a group's
// statistics are those of a channel of the input viewed as [1, N * groups, *],
// and its passes are those over [1, N * C, *].
#include "batch_norm.h"

#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
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
using OptionalTensor = std::optional<Tensor>;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

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

Tensor in_compute_type(const Tensor& tensor, const Tensor& input) {
  return tensor.to(compute_type(input.scalar_type()));
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
  const Statistics statistics =
      batch_statistics(sizes.by_group(input), Tensor(), Tensor(), 0.0, epsilon);
  const auto spread = [&](const OptionalTensor& param) {
    return param.has_value() && param->defined() ? sizes.spread_batch(*param)
                                                 : Tensor();
  };
  batch_norm_transform(sizes.by_channel(input),
                       {sizes.spread_groups(statistics.mean),
                        sizes.spread_groups(statistics.inverse_deviation)},
                       spread(weight_opt),
                       spread(bias_opt),
                       sizes.by_channel(out));
  return {out,
          statistics.mean.view({batch, groups}),
          statistics.inverse_deviation.view({batch, groups})};
}

Outputs native_group_norm_backward(const Tensor& grad_output_,
                                   const Tensor& self,
                                   const Tensor& mean,
                                   const Tensor& inverse_deviation,
                                   const OptionalTensor& weight_opt,
                                   int64_t batch,
                                   int64_t channels,
                                   int64_t pixels,
                                   int64_t groups,
                                   std::array<bool, 3> output_mask) {
  check_floating("GroupNormBackwardKernelImpl", self);
  const Sizes sizes{batch, channels, pixels, groups};
  const Tensor weight = weight_opt.value_or(Tensor());
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
  const Statistics by_channel{
      sizes.spread_groups(in_compute_type(mean, input)),
      sizes.spread_groups(in_compute_type(inverse_deviation, input))};
  // Of each channel of each sample: the sum of grad_output, and of grad_output
  // times the normalised input.
  const Tensor sums = at::empty_like(by_channel.mean);
  const Tensor products = at::empty_like(by_channel.mean);
  batch_norm_param_gradients(sizes.by_channel(grad_output),
                             sizes.by_channel(input),
                             by_channel,
                             Tensor(),
                             products,
                             sums);
  if (output_mask[0]) {
    Tensor weighted_sums = sums;
    Tensor weighted_products = products;
    Tensor weights;
    if (weight.defined()) {
      weights = sizes.spread_batch(weight);
      const Tensor numbers = in_compute_type(weights, input);
      weighted_sums = at::mul(sums, numbers);
      weighted_products = at::mul(products, numbers);
    }
    const double count = static_cast<double>(sizes.group_channels() * pixels);
    const Tensor inverse =
        in_compute_type(inverse_deviation, input).reshape({batch, groups});
    const Tensor shifts =
        at::mul(sizes.sum_groups(weighted_sums).div_(count), inverse);
    const Tensor slopes = sizes.sum_groups(weighted_products)
                              .div_(count)
                              .mul_(inverse)
                              .mul_(inverse);
    batch_norm_input_gradient(
        sizes.by_channel(grad_output),
        sizes.by_channel(input),
        by_channel,
        weights,
        {sizes.spread_groups(shifts), sizes.spread_groups(slopes)},
        sizes.by_channel(grad_input));
  }
  const auto over_batch = [&](bool wanted, const Tensor& values) {
    return wanted ? values.view({batch, channels}).sum(0).to(params.dtype())
                  : Tensor();
  };
  return {grad_input,
          over_batch(output_mask[1], products),
          over_batch(output_mask[2], sums)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_group_norm", TORCH_FN(native_group_norm));
  m.impl("native_group_norm_backward", TORCH_FN(native_group_norm_backward));
}

}  // namespace
}  // namespace torch_opencl::ops
