#include "kernel_sources.h"
#include "layer_norm_groups.h"
#include "params.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../common/non_temporal.h"
#include "../common/optional_tensor.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

constexpr int kItemWorkGroup = 64;
// Jobs of the gradients, and rows of one.
constexpr int64_t kFewestRows = 16;
constexpr int64_t kMostJobs = 32;

struct LayerNormProblem {
  LayerNormProblem(const Tensor& input,
                   const Tensor& param,
                   int64_t rows,
                   int64_t size)
      : rows(rows),
        size(static_cast<int32_t>(size)),
        cpu(aten::device_of(input).is_cpu()),
        param_type(param.defined() ? param.scalar_type()
                                   : input.scalar_type()) {}

  NormRows for_groups() const { return {rows, size, param_type}; }

  // One row, or job, a work-item of a CPU.
  template <class... Arguments>
  void launch_rows(const Tensor& input,
                   const char* kernel_name,
                   int64_t jobs,
                   const Arguments&... arguments) const {
    launch(input,
           sources::layer_norm,
           kernel_name,
           {{"DTYPE", dtype_of(input)},
            {"PARAM_DTYPE", dtype_of(param_type)},
            {"LANES", kLanes},
            {"NON_TEMPORAL",
             is_non_temporal(
                 aten::device_of(input), input.scalar_type(), input.numel())},
            {"WG_SIZE", 1}},
           range(jobs, 1),
           size,
           arguments...);
  }

  // Of the gradients. Sums over rows take long jobs, few of them.
  int64_t rows_of_job(bool has_sums) const {
    return has_sums ? std::max(kFewestRows, ceil_div(rows, kMostJobs)) : 1;
  }

  int64_t rows;
  int32_t size;
  bool cpu;
  at::ScalarType param_type;
};

Tensor workspace(const Tensor& input, at::IntArrayRef sizes) {
  return at::empty(sizes,
                   input.options().dtype(compute_type(input.scalar_type())));
}

Outputs native_layer_norm(const Tensor& self,
                          at::IntArrayRef normalized_shape,
                          const OptionalTensor& weight_opt,
                          const OptionalTensor& bias_opt,
                          double epsilon) {
  const Tensor weight = packed(weight_opt.value_or(Tensor()));
  const Tensor bias = packed(bias_opt.value_or(Tensor()));
  const auto [rows, size] = at::native::_check_layer_norm_inputs(
      self, normalized_shape, weight, bias);
  int_size("layer_norm", size);
  check_floating("LayerNormKernelImpl", self);
  check_param_pair(self, weight, bias);
  const Tensor input = self.contiguous();  // copy: a row has to be one run
  Tensor out = at::empty_like(input);
  std::vector<int64_t> statistics_sizes = self.sizes().vec();
  for (int64_t i = self.dim() - normalized_shape.size(); i < self.dim(); ++i) {
    statistics_sizes[i] = 1;
  }
  Tensor mean = workspace(input, statistics_sizes);
  Tensor inverse_deviation = workspace(input, statistics_sizes);
  if (rows > 0 && size > 0) {
    const LayerNormProblem problem(
        input, weight.defined() ? weight : bias, rows, size);
    if (!problem.cpu) {
      norm_by_groups(problem.for_groups(),
                     input,
                     weight,
                     bias,
                     epsilon,
                     out,
                     {mean, inverse_deviation});
      return {out, mean, inverse_deviation};
    }
    with_compute_type(input, [&](auto number) {
      problem.launch_rows(input,
                          "layer_norm",
                          rows,
                          static_cast<decltype(number)>(epsilon),
                          arg(out),
                          arg(mean),
                          arg(inverse_deviation),
                          arg_in(input),
                          arg_in(weight),
                          arg_in(bias));
    });
  }
  return {out, mean, inverse_deviation};
}

// On CPUs: by jobs of rows, whose sums a second launch adds up.
void gradients_by_rows(const LayerNormProblem& problem,
                       const NormGradients& gradients) {
  const Tensor& input = gradients.input;
  const bool has_sums = gradients.has_params();
  const int64_t chunk = problem.rows_of_job(has_sums);
  const int64_t jobs = ceil_div(problem.rows, chunk);
  const auto sums = [&] {
    return has_sums ? workspace(input, {jobs, problem.size}) : Tensor();
  };
  const Tensor weight_sums = sums();
  const Tensor bias_sums = sums();
  problem.launch_rows(input,
                      "layer_norm_backward",
                      jobs,
                      problem.rows,
                      chunk,
                      arg(gradients.grad_input),
                      arg(weight_sums),
                      arg(bias_sums),
                      arg_in(gradients.grad_output),
                      arg_in(input),
                      arg_in(gradients.statistics.mean),
                      arg_in(gradients.statistics.inverse_deviation),
                      arg_in(gradients.weight));
  if (has_sums) {
    launch(input,
           sources::layer_norm,
           "layer_norm_params_finish",
           {{"DTYPE", dtype_of(input)},
            {"PARAM_DTYPE", dtype_of(problem.param_type)},
            {"LANES", kLanes},
            {"WG_SIZE", kItemWorkGroup}},
           range(problem.size, kItemWorkGroup),
           problem.size,
           static_cast<int32_t>(jobs),
           arg(gradients.grad_weight),
           arg(gradients.grad_bias),
           arg_in(weight_sums),
           arg_in(bias_sums));
  }
}

Outputs native_layer_norm_backward(const Tensor& grad_output_,
                                   const Tensor& self,
                                   at::IntArrayRef normalized_shape,
                                   const Tensor& mean_,
                                   const Tensor& inverse_deviation_,
                                   const OptionalTensor& weight_opt,
                                   const OptionalTensor& bias_opt,
                                   std::array<bool, 3> output_mask) {
  const Tensor weight = packed(weight_opt.value_or(Tensor()));
  const Tensor bias = packed(bias_opt.value_or(Tensor()));
  const auto [rows, size] = at::native::_check_layer_norm_inputs(
      self, normalized_shape, weight, bias);
  int_size("layer_norm", size);
  check_floating("LayerNormBackwardKernelImpl", self);
  check_param(self, weight);
  check_scalar_type(grad_output_, self.scalar_type());
  const Tensor input = self.contiguous();  // copy: a row has to be one run
  const Tensor grad_output = grad_output_.contiguous();  // copy: as above
  const at::ScalarType type = compute_type(self.scalar_type());
  const Tensor mean = mean_.to(type).contiguous();  // copy: a number a row
  const Tensor inverse_deviation =
      inverse_deviation_.to(type).contiguous();  // copy: a number a row
  const Tensor& param = weight.defined() ? weight : bias;
  const LayerNormProblem problem(input, param, rows, size);
  const bool empty = rows == 0 || size == 0;
  const auto new_param = [&](bool wanted) {
    const auto options = self.options().dtype(problem.param_type);
    return !wanted ? Tensor()
           : empty ? at::zeros(normalized_shape, options)
                   : at::empty(normalized_shape, options);
  };
  const Tensor grad_input = output_mask[0] ? at::empty_like(input) : Tensor();
  const Tensor grad_weight = new_param(output_mask[1]);
  const Tensor grad_bias = new_param(output_mask[2]);
  if (!empty) {
    const NormGradients gradients{grad_output,
                                  input,
                                  {mean, inverse_deviation},
                                  weight,
                                  grad_input,
                                  grad_weight,
                                  grad_bias};
    if (problem.cpu) {
      gradients_by_rows(problem, gradients);
    } else {
      layer_norm_gradients_by_groups(problem.for_groups(), gradients);
    }
  }
  return {grad_input, grad_weight, grad_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::native_layer_norm, &native_layer_norm>(m);
  native<at::_ops::native_layer_norm_backward, &native_layer_norm_backward>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
