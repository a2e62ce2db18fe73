#include "../../cpp/aten/factories.h"
#include "depthwise.h"
#include "kernel_sources.h"

#include <ATen/ops/sum.h>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Of GPUs: work-groups that keep any busy, and positions that one is worth.
constexpr int64_t kGroupsOfWeight = 2048;
constexpr int64_t kPositionsOfGroup = 8 * kGroupSize;

// Adds parts [part][element][channel] of a weight's gradient.
void total_weight(const ConvolutionProblem& p,
                  const ConvolutionArguments& a,
                  const Tensor& partial) {
  const int64_t units = aten::device_of(a.weight).info().compute_units;
  const int64_t at_once =
      ceil_div(ceil_div(p.channels, kLanes), 4 * units) * kLanes;
  launch(a.weight,
         sources::depthwise_weight_total,
         "depthwise_weight_total",
         {{"DTYPE", dtype_of(a.input)}, {"LANES", kLanes}},
         range(ceil_div(p.channels, at_once), 1),
         arg_in(partial),
         arg(a.weight),
         static_cast<int32_t>(p.channels),
         static_cast<int32_t>(at_once),
         static_cast<int32_t>(partial.size(0)),
         plane(p.kernel),
         weight_strides(p, a.weight, false));
}

// The kernels by channels have parameters in common. `groups` of `at_once`
// channels, `parts` of `rows` rows or images.
void launch_weight(const ConvolutionProblem& p,
                   const ConvolutionArguments& a,
                   const runtime::KernelSource& source,
                   const char* kernel,
                   std::initializer_list<Define> defines,
                   int64_t groups,
                   int64_t parts,
                   int64_t at_once,
                   int64_t rows) {
  const Tensor partial =
      empty_like_meta({parts, p.filter_size(), p.channels},
                      {},
                      a.weight.options().dtype(compute_type(p.dtype)));
  launch(a.weight,
         source,
         kernel,
         defines,
         range(groups, parts, 1, 1),
         arg_in(a.input),
         arg_in(a.output),
         arg(partial),
         static_cast<int32_t>(p.channels),
         static_cast<int32_t>(at_once),
         static_cast<int32_t>(p.images),
         static_cast<int32_t>(rows),
         plane(p.input),
         plane(p.output),
         plane(p.padding),
         strides(a.input),
         strides(a.output));
  total_weight(p, a, partial);
}

// Of depthwise_weight_row_tiles.cl.
bool is_weight_in_row_tiles(const ConvolutionProblem& p,
                            const ConvolutionArguments& a) {
  return p.stride[1] == p.stride[2] && p.dilation == Spatial{1, 1, 1} &&
         is_channels_last(a.input, a.output);
}

void run_weight_row_tiles(const ConvolutionProblem& p,
                          const ConvolutionArguments& a) {
  const int64_t most =
      std::max(kFactors / p.filter_size() / kLanes, int64_t{1}) * kLanes;
  const runtime::DeviceInfo& device = aten::device_of(a.weight).info();
  const int64_t units = device.compute_units;
  // Sums of three rows of filter elements need more than 16 registers of 8
  // floats.
  const bool sums_rows =
      device.has_avx512_registers && p.kernel[1] >= 3 && p.kernel[2] <= 3;
  const int64_t all_rows = p.images * p.output[1];
  const int64_t at_once = std::min(most, ceil_div(p.channels, kLanes) * kLanes);
  const int64_t groups = ceil_div(p.channels, at_once);
  const int64_t rows =
      ceil_div(all_rows, std::min(all_rows, ceil_div(kItems * units, groups)));
  launch_weight(
      p,
      a,
      sources::depthwise_weight_row_tiles,
      "depthwise_weight_row_tiles",
      {{"DTYPE", dtype_of(a.input)},
       {"LANES", kLanes},
       {"KERNEL_H", p.kernel[1]},
       {"KERNEL_W", p.kernel[2]},
       {"CHANNELS", most},
       {"ROWS", sums_rows ? 3 : 1},
       {"STRIDE", p.stride[1]},
       {"PREFETCH", a.input.nbytes() + a.output.nbytes() >= kFarBytes}},
      groups,
      ceil_div(all_rows, rows),
      at_once,
      rows);
}

// Of depthwise_planes.cl.
bool is_weight_in_planes(const ConvolutionProblem& p,
                         const ConvolutionArguments& a) {
  const int64_t side = p.kernel[2];
  const auto reach = [&](int d) {
    return (p.output[d] - 1) * p.stride[d] + p.kernel[d];
  };
  return has_dense_planes(a.input) && has_dense_planes(a.output) &&
         p.kernel[1] == side && (side == 3 || side == 5 || side == 7) &&
         p.stride[1] == p.stride[2] && p.dilation == Spatial{1, 1, 1} &&
         std::max(reach(1) * reach(2), p.input[1] * p.input[2]) <= kPlanePixels;
}

// `groups` of channels, `at_once` of them, and parts of images.
void launch_by_images(const ConvolutionProblem& p,
                      const ConvolutionArguments& a,
                      const runtime::KernelSource& source,
                      const char* kernel,
                      std::initializer_list<Define> defines,
                      int64_t at_once) {
  const int64_t groups = ceil_div(p.channels, at_once);
  const int64_t units = aten::device_of(a.weight).info().compute_units;
  const int64_t images =
      std::clamp<int64_t>(p.images * groups / (kItems * units), 1, p.images);
  launch_weight(p,
                a,
                source,
                kernel,
                defines,
                groups,
                ceil_div(p.images, images),
                at_once,
                images);
}

void run_weight_planes(const ConvolutionProblem& p,
                       const ConvolutionArguments& a) {
  const int64_t side = p.kernel[2];
  const bool is_wide = aten::device_of(a.weight).info().has_avx512_registers;
  launch_by_images(p,
                   a,
                   sources::depthwise_planes,
                   "depthwise_weight_planes",
                   {{"DTYPE", dtype_of(a.input)},
                    {"LANES", kLanes},
                    {"KERNEL", side},
                    {"GROUP", is_wide && side < 7 ? side * side : side},
                    {"STRIDE", p.stride[1]}},
                   kLanes);
}

// Of depthwise_3x3_weight.cl.
bool is_weight_3x3(const ConvolutionProblem& p, const ConvolutionArguments& a) {
  const int64_t width = p.output[2];
  return p.kernel == Spatial{1, 3, 3} && p.padding == Spatial{0, 1, 1} &&
         p.dilation == Spatial{1, 1, 1} && a.input.stride(4) == 1 &&
         a.output.stride(4) == 1 && width > kShortRow &&
         p.stride[1] == p.stride[2] &&
         (p.stride[2] == 1 || (p.stride[2] == 2 && p.input[2] == 2 * width));
}

void run_weight_3x3(const ConvolutionProblem& p,
                    const ConvolutionArguments& a) {
  launch_by_images(p,
                   a,
                   sources::depthwise_3x3_weight,
                   "depthwise_weight_3x3",
                   {{"DTYPE", dtype_of(a.input)},
                    {"LANES", kLanes},
                    {"STRIDE", p.stride[1]},
                    {"PREFETCH", a.input.nbytes() >= kFarBytes}},
                   1);
}

// Rows of outputs whose sums are one part of the gradient, of
// depthwise_weight.cl. `groups` of a GPU sum each part.
int64_t rows_of_part(const ConvolutionProblem& p, bool is_cpu, int64_t groups) {
  const int64_t all_rows = p.images * p.output[1];
  const int64_t wanted =
      is_cpu ? all_rows / rows_of_item(p.output[2])
             : std::min(ceil_div(kGroupsOfWeight, groups),
                        all_rows * p.output[2] / kPositionsOfGroup);
  return ceil_div(all_rows, std::clamp<int64_t>(wanted, 1, kMaxParts));
}

// Adds parts whose layout is the weight's own.
void sum_parts(const Tensor& partial, Tensor weight) {
  if (partial.size(0) == 1) {
    weight.copy_(partial[0]);
  } else if (weight.scalar_type() == partial.scalar_type()) {
    at::sum_out(weight, partial, 0);
  } else {
    // A sum in a half type would round the parts.
    weight.copy_(at::sum(partial, 0));
  }
}

}  // namespace

void depthwise_backward_weight(const ConvolutionProblem& p,
                               const ConvolutionArguments& a) {
  const bool is_cpu = aten::device_of(a.weight).is_cpu();
  const int64_t depth_multiplier = p.out_channels / p.groups;
  if (is_cpu && depth_multiplier == 1 && p.channels >= kLanes) {
    if (is_weight_in_row_tiles(p, a)) return run_weight_row_tiles(p, a);
    if (is_weight_3x3(p, a)) return run_weight_3x3(p, a);
    if (is_weight_in_planes(p, a)) return run_weight_planes(p, a);
  }
  // Work-groups of a GPU for each part: one a channel of a filter that is built
  // in, else one a filter element.
  const int64_t groups =
      p.out_channels * (built_in_kernel(p) != 0 ? 1 : p.filter_size());
  const int64_t rows = rows_of_part(p, is_cpu, groups);
  const int64_t parts = ceil_div(p.images * p.output[1], rows);
  const Tensor partial =
      empty_like_meta({parts, p.out_channels, 1, 1, p.kernel[1], p.kernel[2]},
                      {},
                      a.weight.options().dtype(compute_type(p.dtype)));
  const bool by_channels =
      depth_multiplier == 1 && is_channels_last(a.input, a.output);
  const int64_t blocks = !is_cpu       ? groups * kGroupSize
                         : by_channels ? ceil_div(p.out_channels, kLanes)
                                       : p.out_channels;
  launch(a.weight,
         sources::depthwise_weight,
         !is_cpu       ? "depthwise_weight_taps"
         : by_channels ? "depthwise_weight_channels"
                       : "depthwise_weight_rows",
         {{"DTYPE", dtype_of(a.input)},
          {"LANES", is_cpu ? kLanes : 1},
          {"KERNEL", built_in_kernel(p)}},
         range(blocks, parts, is_cpu ? 1 : kGroupSize, 1),
         arg_in(a.input),
         arg_in(a.output),
         arg(partial),
         static_cast<int32_t>(p.out_channels),
         static_cast<int32_t>(depth_multiplier),
         static_cast<int32_t>(p.images),
         static_cast<int32_t>(rows),
         plane(p.input),
         plane(p.output),
         plane(p.kernel),
         plane(p.stride),
         plane(p.padding),
         plane(p.dilation),
         strides(a.input),
         strides(a.output));
  sum_parts(partial, a.weight);
}

}  // namespace torch_opencl::ops
