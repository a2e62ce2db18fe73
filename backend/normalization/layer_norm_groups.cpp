#include "layer_norm_groups.h"

#include "../common/group_rows.h"
#include "../common/integers.h"
#include "../epilogue/epilogue.h"
#include "kernel_sources.h"
#include "params.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstdint>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kColumns = 32;  // COLUMNS of layer_norm_groups.cl
constexpr int64_t kColumnsGroup = 256;
constexpr int64_t kGroups = 1024;  // that keep any GPU busy
constexpr int64_t kMostChunks = 256;
constexpr int64_t kLeastChunk = 64;  // rows
constexpr int64_t kRowGroup = 256;
constexpr int64_t kLeastSpan = 32;  // neighbours that read neighbours

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

void launch_grad_input(const NormRows& rows, const NormGradients& gradients) {
  const GroupRows groups(rows.size, 1);
  const auto& [mean, inverse_deviation] = gradients.statistics;
  const Tensor& input = gradients.input;
  const EpilogueTarget target{"native_layer_norm_backward",
                              gradients.grad_input,
                              {gradients.grad_output,
                               input,
                               mean,
                               inverse_deviation,
                               gradients.weight}};
  launch_with_epilogue(
      &target,
      input,
      sources::layer_norm_groups,
      groups.keeps ? "layer_norm_kept_backward" : "layer_norm_twice_backward",
      {{"DTYPE", dtype_of(input)},
       {"PARAM_DTYPE", dtype_of(rows.param_type)},
       {"BY_CHANNEL", false},
       {"WG_SIZE", groups.work_group}},
      range(groups.groups(rows.rows) * groups.work_group, groups.work_group),
      arg(gradients.grad_input),
      rows.rows,
      static_cast<int32_t>(rows.size),
      static_cast<int32_t>(groups.span),
      arg_in(gradients.grad_output),
      arg_in(input),
      arg_in(mean),
      arg_in(inverse_deviation),
      arg_in(gradients.weight));
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

// Adds up chunks' sums, which lie as [chunk][column].
void add_up(const NormRows& rows,
            const NormGradients& gradients,
            int64_t chunks,
            const Tensor& weight_sums,
            const Tensor& bias_sums) {
  launch_columns(rows,
                 gradients.input,
                 "layer_norm_parameters",
                 1,
                 static_cast<int32_t>(rows.size),
                 static_cast<int32_t>(chunks),
                 arg(gradients.grad_weight),
                 arg(gradients.grad_bias),
                 arg_in(weight_sums),
                 arg_in(bias_sums));
}

void launch_parameter_gradients(const NormRows& rows,
                                const NormGradients& gradients) {
  const Tensor& input = gradients.input;
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
                 arg_in(gradients.grad_output),
                 arg_in(input),
                 arg_in(gradients.statistics.mean),
                 arg_in(gradients.statistics.inverse_deviation));
  add_up(rows, gradients, chunks, weight_sums, bias_sums);
}

}  // namespace

void norm_by_groups(const NormRows& rows,
                    const Tensor& input,
                    const Tensor& weight,
                    const Tensor& bias,
                    double epsilon,
                    const Tensor& out,
                    const Statistics& statistics) {
  with_compute_type(input, [&](auto number) {
    const auto launch_over = [&](const auto&... channels) {
      launch_rows(rows,
                  input,
                  "layer_norm_kept",
                  "layer_norm_twice",
                  channels...,
                  static_cast<decltype(number)>(epsilon),
                  arg(out),
                  arg(statistics.mean),
                  arg(statistics.inverse_deviation),
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
                                    const NormGradients& gradients) {
  if (gradients.has_params()) {
    launch_parameter_gradients(rows, gradients);
  }
  // Last: it is pending, and what follows in the backward pass joins it.
  if (gradients.grad_input.defined()) {
    launch_grad_input(rows, gradients);
  }
}

void group_norm_gradients_by_groups(const NormRows& rows,
                                    const NormGradients& gradients) {
  const Tensor& input = gradients.input;
  const int64_t channels = rows.size / rows.pixels;  // of a row
  const int64_t images = rows.rows / rows.groups;
  const auto options = input.options().dtype(compute_type(input.scalar_type()));
  const Tensor sums = at::empty({images, rows.groups * channels}, options);
  const Tensor products = at::empty_like(sums);
  // All channels at once, but not more items a channel than pixels.
  const int64_t span = std::min(
      std::max<int64_t>(kRowGroup / power_of_two_from(channels), kLeastSpan),
      std::min(power_of_two_from(rows.pixels), kRowGroup));
  launch(input,
         sources::layer_norm_groups,
         "group_norm_by_groups_backward",
         {{"DTYPE", dtype_of(input)},
          {"PARAM_DTYPE", dtype_of(rows.param_type)},
          {"BY_CHANNEL", true},
          {"WG_SIZE", kRowGroup}},
         range(rows.rows * kRowGroup, kRowGroup),
         static_cast<int32_t>(channels),
         static_cast<int32_t>(span),
         static_cast<int32_t>(rows.pixels),
         static_cast<int32_t>(rows.groups),
         arg(gradients.grad_input),
         arg(sums),
         arg(products),
         arg_in(gradients.grad_output),
         arg_in(input),
         arg_in(gradients.statistics.mean),
         arg_in(gradients.statistics.inverse_deviation),
         arg_in(gradients.weight));
  if (gradients.has_params()) {
    add_up({images, rows.groups * channels, rows.param_type},
           gradients,
           images,
           products,
           sums);
  }
}

}  // namespace torch_opencl::ops
