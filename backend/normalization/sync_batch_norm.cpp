// The pieces of batch normalisation over several processes (SyncBatchNorm):
// statistics of a part, their combination, and the same of gradients.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/optional_tensor.h"

#include <ATen/ops/batch_norm_backward_elemt_ops.h>
#include <ATen/ops/batch_norm_backward_reduce_ops.h>
#include <ATen/ops/batch_norm_elemt_ops.h>
#include <ATen/ops/batch_norm_gather_stats_ops.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts_ops.h>
#include <ATen/ops/batch_norm_stats_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

Tensor computed(const Tensor& tensor) {
  return tensor.to(compute_type(tensor.scalar_type()));
}

std::vector<int64_t> all_but_channels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) {
      dims.push_back(d);
    }
  }
  return dims;
}

// A value a channel, against `input`.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> sizes(input.dim(), 1);
  sizes[1] = values.numel();
  return computed(values).view(sizes);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  const auto [variance, mean] = at::var_mean(
      computed(input), all_but_channels(input), at::Scalar(0), false);
  return {mean, variance.add(eps).rsqrt_()};
}

Tensor normalized(const Tensor& input,
                  const MaybeTensor& weight,
                  const MaybeTensor& bias,
                  const Tensor& mean,
                  const Tensor& invstd,
                  double) {
  Tensor out = computed(input)
                   .sub(by_channel(mean, input))
                   .mul_(by_channel(invstd, input));
  if (is_given(weight)) {
    out.mul_(by_channel(*weight, input));
  }
  if (is_given(bias)) {
    out.add_(by_channel(*bias, input));
  }
  return out.to(input.scalar_type());
}

// A row of `mean`, `invstd` and an element of `counts` for each part.
std::tuple<Tensor, Tensor> gathered(const Tensor&,
                                    const Tensor& mean,
                                    const Tensor& invstd,
                                    const MaybeTensor& running_mean,
                                    const MaybeTensor& running_var,
                                    double momentum,
                                    double eps,
                                    const Tensor& counts) {
  const Tensor means = computed(mean);
  const Tensor parts = counts.to(means.scalar_type()).view({-1, 1});
  const Tensor total = parts.sum();
  const Tensor average = means.mul(parts).sum(0).div_(total);
  const Tensor variances = computed(invstd).pow(-2).sub_(eps);
  const Tensor variance = variances.add(means.sub(average).square_())
                              .mul_(parts)
                              .sum(0)
                              .div_(total);
  if (is_given(running_mean)) {
    running_mean->mul_(1 - momentum).add_(average, momentum);
  }
  if (is_given(running_var)) {
    const Tensor unbiased = variance.mul(total.div(total.sub(1)));
    running_var->mul_(1 - momentum).add_(unbiased, momentum);
  }
  return {average, variance.add(eps).rsqrt_()};
}

std::tuple<Tensor, Tensor> gathered_of_equal_parts(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const MaybeTensor& running_mean,
    const MaybeTensor& running_var,
    double momentum,
    double eps,
    int64_t count) {
  const Tensor counts =
      at::full({mean.size(0)}, static_cast<double>(count), mean.options());
  return gathered(
      input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_sums(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const MaybeTensor& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  const auto dims = all_but_channels(input);
  const Tensor grad = computed(grad_out);
  const Tensor sum_dy = grad.sum(dims);
  const Tensor sum_dy_xmu =
      computed(input).sub(by_channel(mean, input)).mul_(grad).sum(dims);
  const at::ScalarType type =
      is_given(weight) ? weight->scalar_type() : sum_dy.scalar_type();
  return {input_g ? sum_dy : Tensor(),
          input_g ? sum_dy_xmu : Tensor(),
          weight_g ? sum_dy_xmu.mul(computed(invstd)).to(type) : Tensor(),
          bias_g ? sum_dy.to(type) : Tensor()};
}

Tensor backward_of_input(const Tensor& grad_out,
                         const Tensor& input,
                         const Tensor& mean,
                         const Tensor& invstd,
                         const MaybeTensor& weight,
                         const Tensor& sum_dy,
                         const Tensor& sum_dy_xmu,
                         const Tensor& count) {
  const Tensor total = count.to(sum_dy.scalar_type()).sum();
  const Tensor slope = sum_dy_xmu.div(total).mul_(computed(invstd).square());
  Tensor out = computed(grad_out).sub(by_channel(sum_dy.div(total), input));
  out.sub_(computed(input)
               .sub(by_channel(mean, input))
               .mul_(by_channel(slope, input)))
      .mul_(by_channel(invstd, input));
  if (is_given(weight)) {
    out.mul_(by_channel(*weight, input));
  }
  return out.to(input.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats",
         &WithFallback<at::_ops::batch_norm_stats, &stats>::call);
  m.impl("batch_norm_elemt",
         &WithFallback<at::_ops::batch_norm_elemt, &normalized>::call);
  m.impl("batch_norm_gather_stats",
         &WithFallback<at::_ops::batch_norm_gather_stats,
                       &gathered_of_equal_parts>::call);
  m.impl("batch_norm_gather_stats_with_counts",
         &WithFallback<at::_ops::batch_norm_gather_stats_with_counts,
                       &gathered>::call);
  m.impl("batch_norm_backward_reduce",
         &WithFallback<at::_ops::batch_norm_backward_reduce,
                       &backward_sums>::call);
  m.impl("batch_norm_backward_elemt",
         &WithFallback<at::_ops::batch_norm_backward_elemt,
                       &backward_of_input>::call);
}

}  // namespace torch_opencl::ops
