#include "layer_norm_groups.h"

#include "../common/group_rows.h"
#include "../common/integers.h"
#include "kernel_sources.h"
#include "params.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kColumns = 32;  // COLUMNS of layer_norm_groups.cl
constexpr int64_t kColumnsGroup = 256;
constexpr int64_t kGroups = 1024;  // that keep any GPU busy
constexpr int64_t kMostChunks = 256;
constexpr int64_t kLeastChunk = 64;  // rows

template <class... Arguments>
void launch_rows(const NormRows& rows,
                 const Tensor& input,
                 const char* kept,
                 const char* twice,
                 const Arguments&... arguments) {
  const GroupRows groups(rows.size, 1);
  launch(input,
         sources::layer_norm_groups,
         groups.keeps ? kept : twice,
         {{"DTYPE", dtype_of(input)},
          {"PARAM_DTYPE", dtype_of(rows.param_type)},
          {"BY_CHANNEL", rows.pixels > 0},
          {"WG_SIZE", groups.work_group}},
         range(groups.groups(rows.rows) * groups.work_group, groups.work_group),
         rows.rows,
         static_cast<int32_t>(rows.size),
         static_cast<int32_t>(groups.span),
         arguments...);
}

template <class... Arguments>
void launch_columns(const NormRows& rows,
                    const Tensor& input,
                    const char* kernel,
                    int64_t chunks,
                    const Arguments&... arguments) {
  launch(input,
         sources::layer_norm_groups,
         kernel,
         {{"DTYPE", dtype_of(input)},
          {"PARAM_DTYPE", dtype_of(rows.param_type)},
          {"BY_CHANNEL", false},
          {"WG_SIZE", kColumnsGroup}},
         range(ceil_div(rows.size, kColumns) * kColumnsGroup,
               chunks,
               kColumnsGroup,
               1),
         arguments...);
}

}  // namespace

void norm_by_groups(const NormRows& rows,
                    const Tensor& input,
                    const Tensor& weight,
                    const Tensor& bias,
                    double epsilon,
                    const Tensor& out,
                    const Tensor& mean,
                    const Tensor& inverse_deviation) {
  with_compute_type(input, [&](auto number) {
    const auto launch_over = [&](const auto&... channels) {
      launch_rows(rows,
                  input,
                  "layer_norm_kept",
                  "layer_norm_twice",
                  channels...,
                  static_cast<decltype(number)>(epsilon),
                  arg(out),
                  arg(mean),
                  arg(inverse_deviation),
                  arg_in(input),
                  arg_in(weight),
                  arg_in(bias));
    };
    if (rows.pixels > 0) {
      launch_over(static_cast<int32_t>(rows.pixels),
                  static_cast<int32_t>(rows.groups));
    } else {
      launch_over();
    }
  });
}

void layer_norm_gradients_by_groups(const NormRows& rows,
                                    const Tensor& grad_output,
                                    const Tensor& input,
                                    const Tensor& mean,
                                    const Tensor& inverse_deviation,
                                    const Tensor& weight,
                                    const Tensor& grad_input,
                                    const Tensor& grad_weight,
                                    const Tensor& grad_bias) {
  if (grad_input.defined()) {
    launch_rows(rows,
                input,
                "layer_norm_kept_backward",
                "layer_norm_twice_backward",
                arg(grad_input),
                arg_in(grad_output),
                arg_in(input),
                arg_in(mean),
                arg_in(inverse_deviation),
                arg_in(weight));
  }
  if (!grad_weight.defined() && !grad_bias.defined()) {
    return;
  }
  const int64_t wanted =
      std::clamp<int64_t>(std::min(kGroups / ceil_div(rows.size, kColumns),
                                   rows.rows / kLeastChunk),
                          1,
                          kMostChunks);
  const int64_t chunk = ceil_div(rows.rows, wanted);
  const int64_t chunks = ceil_div(rows.rows, chunk);
  const auto options = input.options().dtype(compute_type(input.scalar_type()));
  const Tensor weight_sums = at::empty({chunks, rows.size}, options);
  const Tensor bias_sums = at::empty({chunks, rows.size}, options);
  const auto size = static_cast<int32_t>(rows.size);
  launch_columns(rows,
                 input,
                 "layer_norm_parameter_chunks",
                 chunks,
                 rows.rows,
                 size,
                 chunk,
                 arg(weight_sums),
                 arg(bias_sums),
                 arg_in(grad_output),
                 arg_in(input),
                 arg_in(mean),
                 arg_in(inverse_deviation));
  launch_columns(rows,
                 input,
                 "layer_norm_parameters",
                 1,
                 size,
                 static_cast<int32_t>(chunks),
                 arg(grad_weight),
                 arg(grad_bias),
                 arg_in(weight_sums),
                 arg_in(bias_sums));
}

}  // namespace torch_opencl::ops
