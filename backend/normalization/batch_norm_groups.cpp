#include "batch_norm_groups.h"

#include "../common/group_rows.h"
#include "../common/integers.h"
#include "../common/rows.h"
#include "../epilogue/epilogue.h"
#include "../pointwise/counter.h"
#include "kernel_sources.h"
#include "params.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kGroups = 1024;  // that keep any GPU busy
constexpr int64_t kMostChunks = 256;
// A channel of so many blocks is one chunk, where there are many and where not.
constexpr int64_t kManyGroups = 128;
constexpr int64_t kBlocksOfMany = 32;
constexpr int64_t kBlocksOfFew = 8;

// A tensor's channels over work-groups.
class Plan {
 public:
  // The first tensor is the one written; the second, the input.
  explicit Plan(std::initializer_list<Tensor> tensors)
      : rows_("batch_norm", tensors, 1),
        input_(tensors.begin()[1]),
        is_along_(rows_.row_size() == 1 || rows_.row_stride(1) != 1 ||
                  (rows_.inner_stride(1) == 1 && rows_.inner_size() > 1)),
        shape_(pixels(), is_along_ ? 1 : channels()) {
    const int64_t groups = shape_.groups(channels());
    const int64_t block = shape_.span * GroupRows::kItems;
    const int64_t whole =
        block * (groups >= kManyGroups ? kBlocksOfMany : kBlocksOfFew);
    const int64_t wanted =
        pixels() <= whole
            ? 1
            : std::clamp<int64_t>(
                  std::min(kGroups / groups, pixels() / (2 * block)),
                  1,
                  kMostChunks);
    chunk_ = ceil_div(pixels(), wanted);
    chunks_ = ceil_div(pixels(), chunk_);
  }

  bool is_supported() const { return rows_.rank() <= 2; }
  int64_t channels() const { return rows_.row_size(); }
  int64_t pixels() const { return rows_.count(); }
  int64_t chunks() const { return chunks_; }
  bool is_whole() const { return chunks_ == 1; }

  // A number a channel of each chunk, where there are several.
  Tensor workspace() const {
    return is_whole() ? Tensor()
                      : at::empty({chunks_, channels()},
                                  input_.options().dtype(
                                      compute_type(input_.scalar_type())));
  }

  // `kTensors`: of which tensors the kernel takes the layout; `arguments`
  // follow. The first parameter of a kernel with an epilogue is the output.
  template <size_t... kTensors, class... Arguments>
  void launch(const EpilogueTarget* target,
              const char* kernel,
              at::ScalarType param_type,
              std::index_sequence<kTensors...>,
              const Arguments&... arguments) const {
    const auto launch_indexed = [&](auto index) {
      using Index = decltype(index);
      const std::initializer_list<Define> defines = {
          {"DTYPE", dtype_of(input_)},
          {"PARAM_DTYPE", dtype_of(param_type)},
          {"INDEX64", sizeof(Index) == 8},
          {"WG_SIZE", shape_.work_group}};
      const NDRange all = range(shape_.groups(channels()) * shape_.work_group,
                                chunks_,
                                shape_.work_group,
                                1);
      const KernelSource& source = sources::batch_norm_groups;
      const auto launch_with = [&](const auto&... parameters) {
        if (target == nullptr) {
          aten::launch(input_, source, kernel, defines, all, parameters...);
        } else {
          launch_with_epilogue(target,
                               input_,
                               source,
                               kernel,
                               defines,
                               all,
                               arg(target->out),
                               parameters...);
        }
      };
      const auto with_strides = [&](const auto&... strides) {
        launch_with(static_cast<int32_t>(channels()),
                    static_cast<Index>(pixels()),
                    static_cast<Index>(rows_.inner_size()),
                    static_cast<Index>(chunk_),
                    static_cast<int32_t>(is_whole() ? 0 : chunks_),
                    static_cast<int32_t>(shape_.span),
                    static_cast<int32_t>(is_along_),
                    strides...,
                    arguments...);
      };
      std::apply(with_strides, std::tuple_cat(strides_of<Index>(kTensors)...));
    };
    // An item counts up to a block past the last pixel.
    const int64_t past = shape_.span * GroupRows::kItems;
    with_index(std::max(rows_.extent(), pixels() + past), launch_indexed);
  }

 private:
  // LAYOUT of batch_norm_groups.cl.
  template <class Index>
  std::tuple<Index, Index, Index> strides_of(int tensor) const {
    const auto strides = rows_.strides<Index>(tensor);
    return {
        static_cast<Index>(rows_.row_stride(tensor)), strides[1], strides[0]};
  }

  RowsProblem rows_;
  Tensor input_;
  bool is_along_;
  GroupRows shape_;
  int64_t chunk_ = 0;
  int64_t chunks_ = 0;
};

int64_t stride_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.stride(0) : 0;
}

at::ScalarType param_type_of(const BatchNormParams& params,
                             const Tensor& input) {
  return param_type(params.weight,
                    params.bias,
                    params.running_mean,
                    params.running_var,
                    input);
}

bool has_one_type(const BatchNormParams& params, const Tensor& input) {
  return all_of_type(param_type_of(params, input),
                     params.weight,
                     params.bias,
                     params.running_mean,
                     params.running_var);
}

// Of chunks that were not joined, and what the launch does beside.
struct ApplyOptions {
  bool uses_running = false;
  Tensor means;
  Tensor means_lost;
  Tensor squares;
  CounterAddition counted;
};

void launch_apply(const Plan& plan,
                  const Tensor& input,
                  const BatchNormParams& params,
                  const Statistics& statistics,
                  const ApplyOptions& options,
                  const Tensor& out) {
  const Tensor weight = packed(params.weight);
  const Tensor bias = packed(params.bias);
  const CounterAddition& counted = options.counted;
  const EpilogueTarget target{
      "native_batch_norm",
      out,
      {input, options.means, options.means_lost, options.squares, weight, bias},
      true,
      {statistics.mean,
       statistics.inverse_deviation,
       params.running_mean,
       params.running_var,
       counted.counter}};
  with_compute_type(out, [&](auto number) {
    using Number = decltype(number);
    plan.launch(&target,
                "batch_norm_apply",
                param_type_of(params, input),
                std::index_sequence<0, 1>(),
                static_cast<int32_t>(options.uses_running),
                static_cast<Number>(params.epsilon),
                static_cast<Number>(params.momentum),
                stride_of(params.running_mean),
                stride_of(params.running_var),
                counted.amount,
                arg(counted.counter),
                arg(statistics.mean),
                arg(statistics.inverse_deviation),
                arg(params.running_mean),
                arg(params.running_var),
                arg_in(input),
                arg_in(options.means),
                arg_in(options.means_lost),
                arg_in(options.squares),
                arg_in(weight),
                arg_in(bias));
  });
}

// An evaluation as a step of its input's epilogue.
bool join_evaluation(const Tensor& input,
                     const BatchNormParams& params,
                     const Tensor& out) {
  const at::ScalarType dtype = compute_type(out.scalar_type());
  return join_epilogue(
      out, [&](const EpilogueValues& values) -> std::optional<EpilogueStep> {
        EpilogueStep step{
            {"(self - mean) * (1 / sqrt(variance + epsilon) * "
             "weight) + bias",
             "self mean variance weight bias",
             "epsilon",
             false}};
        auto value = values.operand(input, out);
        if (!value || value->kind != OperandKind::kValue) {
          return std::nullopt;
        }
        step.operands.push_back(std::move(*value));
        step.scalars.push_back(scalar_argument(params.epsilon, dtype));
        step.out = alias_of(out);
        const auto add = [&](const Tensor& param, double missing) {
          if (!param.defined()) {
            step.operands.push_back({OperandKind::kNumber});
            step.operands.back().number = scalar_argument(missing, dtype);
            return true;
          }
          auto operand = values.channel_operand(param, out);
          if (operand.has_value()) {
            step.operands.push_back(std::move(*operand));
          }
          return operand.has_value();
        };
        const bool can_join = add(params.running_mean, 0) &&
                              add(params.running_var, 1) &&
                              add(params.weight, 1) && add(params.bias, 0);
        return can_join ? std::optional(std::move(step)) : std::nullopt;
      });
}

}  // namespace

bool batch_norm_by_groups(const Tensor& input,
                          const BatchNormParams& params,
                          const Statistics& statistics,
                          const Tensor& out) {
  const Plan plan({out, input});
  if (!plan.is_supported() || !has_one_type(params, input)) {
    return false;
  }
  ApplyOptions options;
  options.means = plan.workspace();
  options.means_lost = plan.workspace();
  options.squares = plan.workspace();
  options.counted = take_counter_addition(queue_of(input),
                                          {input,
                                           params.weight,
                                           params.bias,
                                           params.running_mean,
                                           params.running_var});
  if (!plan.is_whole()) {
    plan.launch(nullptr,
                "batch_norm_chunks",
                param_type_of(params, input),
                std::index_sequence<1>(),
                arg(options.means),
                arg(options.means_lost),
                arg(options.squares),
                arg_in(input));
  }
  launch_apply(plan, input, params, statistics, options, out);
  return true;
}

bool batch_norm_evaluation_by_groups(const Tensor& input,
                                     const BatchNormParams& params,
                                     const Tensor& out) {
  const Plan plan({out, input});
  if (!plan.is_supported() || !has_one_type(params, input)) {
    return false;
  }
  if (!join_evaluation(input, params, out)) {
    ApplyOptions options;
    options.uses_running = true;
    launch_apply(plan, input, params, {}, options, out);
  }
  return true;
}

bool batch_norm_gradients_by_groups(const NormGradients& gradients) {
  const Plan plan(
      {gradients.grad_input.defined() ? gradients.grad_input : gradients.input,
       gradients.input,
       gradients.grad_output});
  const at::ScalarType type = param_type(gradients.weight,
                                         gradients.grad_weight,
                                         gradients.grad_bias,
                                         gradients.input);
  if (!plan.is_supported() ||
      !all_of_type(
          type, gradients.weight, gradients.grad_weight, gradients.grad_bias)) {
    return false;
  }
  const Tensor sums = plan.workspace();
  const Tensor products = plan.workspace();
  if (!plan.is_whole()) {
    plan.launch(nullptr,
                "batch_norm_gradient_chunks",
                type,
                std::index_sequence<1, 2>(),
                arg(sums),
                arg(products),
                arg_in(gradients.input),
                arg_in(gradients.grad_output),
                arg_in(gradients.statistics.mean));
  }
  const Tensor packed_weight = packed(gradients.weight);
  plan.launch(nullptr,
              "batch_norm_gradient_apply",
              type,
              std::index_sequence<0, 1, 2>(),
              arg(gradients.grad_input),
              arg(gradients.grad_weight),
              arg(gradients.grad_bias),
              arg_in(gradients.input),
              arg_in(gradients.grad_output),
              arg_in(gradients.statistics.mean),
              arg_in(gradients.statistics.inverse_deviation),
              arg_in(sums),
              arg_in(products),
              arg_in(packed_weight));
  return true;
}

}  // namespace torch_opencl::ops
