#include "kernel_sources.h"

#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"

#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
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
using OptionalTensor = std::optional<Tensor>;
using Outputs = std::tuple<Tensor, Tensor, Tensor>;

constexpr int kLanes = 16;
constexpr int kRowWorkGroup = 128;  // a work-group a row, on a GPU
constexpr int kItemWorkGroup = 64;
constexpr int64_t kChunkRows = 64;
constexpr int64_t kMostChunks = 128;

struct Problem {
  Problem(const Tensor& input, const Tensor& param, int64_t rows, int64_t size)
      : rows(rows),
        size(static_cast<int32_t>(size)),
        cpu(aten::device_of(input).is_cpu()),
        param_type(param.defined() ? param.scalar_type()
                                   : input.scalar_type()) {}

  template <class... Arguments>
  void launch_rows(const Tensor& input,
                   const char* kernel_name,
                   const Arguments&... arguments) const {
    const int work_group = cpu ? 1 : kRowWorkGroup;
    launch(input,
           sources::layer_norm,
           kernel_name,
           {{"DTYPE", dtype_of(input)},
            {"PARAM_DTYPE", dtype_of(param_type)},
            {"LANES", cpu ? kLanes : 1},
            {"WG_SIZE", work_group}},
           range(rows * work_group, work_group),
           size,
           arguments...);
  }

  int64_t rows;
  int32_t size;
  bool cpu;
  at::ScalarType param_type;
};

Tensor packed(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined()
             ? tensor->contiguous()  // copy: a row of numbers
             : Tensor();
}

void check_param(const Tensor& input, const Tensor& param) {
  const at::ScalarType type = input.scalar_type();
  TORCH_CHECK(!param.defined() || param.scalar_type() == type ||
                  param.scalar_type() == compute_type(type),
              "mixed dtype: expect parameter to have scalar type of ",
              c10::toString(compute_type(type)));
}

Tensor workspace(const Tensor& input, at::IntArrayRef sizes) {
  return at::empty(sizes,
                   input.options().dtype(compute_type(input.scalar_type())));
}

Outputs native_layer_norm(const Tensor& self,
                          at::IntArrayRef normalized_shape,
                          const OptionalTensor& weight_opt,
                          const OptionalTensor& bias_opt,
                          double epsilon) {
  const Tensor weight = packed(weight_opt);
  const Tensor bias = packed(bias_opt);
  const auto [rows, size] = at::native::_check_layer_norm_inputs(
      self, normalized_shape, weight, bias);
  check_floating("LayerNormKernelImpl", self);
  check_param(self, weight);
  check_param(self, bias);
  TORCH_CHECK(!weight.defined() || !bias.defined() ||
                  weight.scalar_type() == bias.scalar_type(),
              "expected scalar type ",
              c10::toString(weight.scalar_type()),
              " but found ",
              c10::toString(bias.scalar_type()));
  const Tensor input = self.contiguous();  // copy: a row has to be one run
  Tensor out = at::empty_like(input);
  std::vector<int64_t> statistics_sizes = self.sizes().vec();
  for (int64_t i = self.dim() - normalized_shape.size(); i < self.dim(); ++i) {
    statistics_sizes[i] = 1;
  }
  Tensor mean = workspace(input, statistics_sizes);
  Tensor inverse_deviation = workspace(input, statistics_sizes);
  if (rows > 0 && size > 0) {
    const Problem problem(input, weight.defined() ? weight : bias, rows, size);
    const auto launch_with = [&](auto number) {
      problem.launch_rows(input,
                          "layer_norm",
                          static_cast<decltype(number)>(epsilon),
                          arg(out),
                          arg(mean),
                          arg(inverse_deviation),
                          arg(input),
                          arg(weight),
                          arg(bias));
    };
    if (input.scalar_type() == at::kDouble) {
      launch_with(double());
    } else {
      launch_with(float());
    }
  }
  return {out, mean, inverse_deviation};
}

void params_backward(const Problem& problem,
                     const Tensor& grad_output,
                     const Tensor& input,
                     const Tensor& mean,
                     const Tensor& inverse_deviation,
                     const Tensor& grad_weight,
                     const Tensor& grad_bias) {
  const int64_t chunk =
      std::max(kChunkRows, (problem.rows + kMostChunks - 1) / kMostChunks);
  const int64_t chunks = (problem.rows + chunk - 1) / chunk;
  const int lanes = problem.cpu ? kLanes : 1;
  const int64_t jobs = chunks * ((problem.size + lanes - 1) / lanes);
  const int work_group = problem.cpu ? 1 : kItemWorkGroup;
  const Tensor weight_sums = workspace(input, {chunks, problem.size});
  const Tensor bias_sums = workspace(input, {chunks, problem.size});
  launch(
      input,
      sources::layer_norm,
      "layer_norm_params",
      {{"DTYPE", dtype_of(input)}, {"LANES", lanes}, {"WG_SIZE", work_group}},
      range(jobs, work_group),
      problem.rows,
      problem.size,
      static_cast<int32_t>(chunk),
      static_cast<int32_t>(jobs),
      arg(weight_sums),
      arg(bias_sums),
      arg(grad_output),
      arg(input),
      arg(mean),
      arg(inverse_deviation));
  launch(input,
         sources::layer_norm,
         "layer_norm_params_finish",
         {{"DTYPE", dtype_of(input)},
          {"PARAM_DTYPE", dtype_of(problem.param_type)},
          {"WG_SIZE", kItemWorkGroup}},
         range(problem.size, kItemWorkGroup),
         problem.size,
         static_cast<int32_t>(chunks),
         arg(grad_weight),
         arg(grad_bias),
         arg(weight_sums),
         arg(bias_sums));
}

Outputs native_layer_norm_backward(const Tensor& grad_output_,
                                   const Tensor& self,
                                   at::IntArrayRef normalized_shape,
                                   const Tensor& mean_,
                                   const Tensor& inverse_deviation_,
                                   const OptionalTensor& weight_opt,
                                   const OptionalTensor& bias_opt,
                                   std::array<bool, 3> output_mask) {
  const Tensor weight = packed(weight_opt);
  const Tensor bias = packed(bias_opt);
  const auto [rows, size] = at::native::_check_layer_norm_inputs(
      self, normalized_shape, weight, bias);
  check_floating("LayerNormBackwardKernelImpl", self);
  check_param(self, weight);
  TORCH_CHECK(grad_output_.scalar_type() == self.scalar_type(),
              "expected scalar type ",
              c10::toString(self.scalar_type()),
              " but found ",
              c10::toString(grad_output_.scalar_type()));
  const Tensor input = self.contiguous();  // copy: a row has to be one run
  const Tensor grad_output = grad_output_.contiguous();  // copy: as above
  const at::ScalarType type = compute_type(self.scalar_type());
  const Tensor mean = mean_.to(type).contiguous();  // copy: a number a row
  const Tensor inverse_deviation =
      inverse_deviation_.to(type).contiguous();  // copy: a number a row
  const Tensor& param = weight.defined() ? weight : bias;
  const Problem problem(input, param, rows, size);
  const bool empty = rows == 0 || size == 0;
  const auto new_param = [&](bool wanted) {
    const auto options = self.options().dtype(problem.param_type);
    return !wanted ? Tensor()
           : empty ? at::zeros(normalized_shape, options)
                   : at::empty(normalized_shape, options);
  };
  Tensor grad_input = output_mask[0] ? at::empty_like(input) : Tensor();
  Tensor grad_weight = new_param(output_mask[1]);
  Tensor grad_bias = new_param(output_mask[2]);
  if (!empty && output_mask[0]) {
    problem.launch_rows(input,
                        "layer_norm_backward",
                        arg(grad_input),
                        arg(grad_output),
                        arg(input),
                        arg(mean),
                        arg(inverse_deviation),
                        arg(weight));
  }
  if (!empty && (output_mask[1] || output_mask[2])) {
    params_backward(problem,
                    grad_output,
                    input,
                    mean,
                    inverse_deviation,
                    grad_weight,
                    grad_bias);
  }
  return {grad_input, grad_weight, grad_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", TORCH_FN(native_layer_norm));
  m.impl("native_layer_norm_backward", TORCH_FN(native_layer_norm_backward));
}

}  // namespace
}  // namespace torch_opencl::ops
