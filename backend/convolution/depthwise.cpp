#include "../../cpp/aten/factories.h"
#include "convolution.h"
#include "kernel_sources.h"

#include <ATen/ops/sum.h>

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Of depthwise.clh.
constexpr int64_t kLanes = 16;
constexpr int64_t kMaxTaps = 64;
constexpr int64_t kSpan = 512;
constexpr int64_t kGroupSize = 64;

constexpr int64_t kRowsAtOnce = 8;         // of an output, by one work-item
constexpr int64_t kElementsAtOnce = 1568;  // and at least so many elements
constexpr int64_t kFactors = 4608;         // of a weight, by one work-item
// Pixels of more channels are too far apart for processors to guess, and images
// of more bytes come from memory.
constexpr int64_t kNearChannels = 64;
constexpr size_t kFarBytes = size_t(16) << 20;
constexpr int64_t kItems = 8;  // a core, of a weight's gradient
constexpr int64_t kMaxParts = 64;   // of the positions a weight sums over
constexpr int64_t kMaxSharing = 4;  // beyond, matrix products do better

using Vector2 = std::array<int32_t, 2>;
using Vector4 = std::array<int32_t, 4>;

Vector2 plane(const Spatial& spatial) {
  return {static_cast<int32_t>(spatial[1]), static_cast<int32_t>(spatial[2])};
}

Vector2 plane_of(const Tensor& t) {
  return {static_cast<int32_t>(t.size(3)), static_cast<int32_t>(t.size(4))};
}

Vector4 strides(const Tensor& t) {
  return {static_cast<int32_t>(t.stride(0)),
          static_cast<int32_t>(t.stride(1)),
          static_cast<int32_t>(t.stride(3)),
          static_cast<int32_t>(t.stride(4))};
}

// Side of the kernels that are built in.
int64_t built_in_kernel(const ConvolutionProblem& p) {
  return p.kernel[1] == 3 && p.kernel[2] == 3 ? 3 : 0;
}

bool is_channels_last(const Tensor& a, const Tensor& b) {
  return a.size(1) > 1 && a.stride(1) == 1 && b.stride(1) == 1;
}

int64_t rows_at_once(int64_t columns) {
  return std::max(kRowsAtOnce, ceil_div(kElementsAtOnce, columns));
}

// The common sum of the forward and of its adjoint, see depthwise.cl.
struct Sum {
  const Tensor& source;
  const Tensor& weight;
  const Tensor bias;  // may be undefined
  const Tensor& out;
  int64_t sources;
  int64_t sharing;
  Vector4 weight_strides;
  Vector2 up;
  Vector2 down;
  Vector2 padding;
};

// `own` are the kernel's parameters between the number of channels and strides.
template <class... Own>
void launch_sum(const Sum& s,
                const runtime::KernelSource& source,
                const char* kernel,
                std::initializer_list<Define> defines,
                const NDRange& work,
                int64_t last,
                const Own&... own) {
  launch(s.out,
         source,
         kernel,
         defines,
         work,
         arg(s.source),
         arg(s.weight),
         arg(s.bias),
         arg(s.out),
         static_cast<int32_t>(s.out.size(1)),
         own...,
         strides(s.source),
         s.weight_strides,
         strides(s.out),
         static_cast<int32_t>(s.bias.defined() ? s.bias.stride(0) : 0),
         static_cast<int32_t>(s.bias.defined()),
         static_cast<int32_t>(last));
}

// Of depthwise_3x3.cl. Narrow outputs run into rows that follow.
bool is_3x3(const ConvolutionProblem& p, const Sum& s) {
  const int64_t width = s.out.size(4);
  return aten::device_of(s.out).is_cpu() && p.kernel == Spatial{1, 3, 3} &&
         s.padding == Vector2{1, 1} && p.dilation == Spatial{1, 1, 1} &&
         s.up == Vector2{1, 1} && s.sources == 1 && s.source.stride(4) == 1 &&
         s.out.stride(4) == 1 &&
         (width >= kLanes || s.out.stride(3) == width) &&
         (s.down == Vector2{1, 1} ||
          (s.down == Vector2{2, 2} && s.source.size(4) == 2 * width));
}

void run_3x3(const Sum& s) {
  const int64_t rows = rows_at_once(s.out.size(4));
  launch_sum(
      s,
      sources::depthwise_3x3,
      "depthwise_3x3",
      {{"DTYPE", dtype_of(s.out)},
       {"LANES", kLanes},
       {"STRIDE", s.down[0]},
       {"PREFETCH", s.source.nbytes() >= kFarBytes}},
      range(ceil_div(s.out.size(3), rows), s.out.size(0) * s.out.size(1), 1, 1),
      rows,
      static_cast<int32_t>(s.sharing),
      plane_of(s.source),
      plane_of(s.out));
}

// Of depthwise_strips.cl.
bool is_in_strips(const ConvolutionProblem& p, const Sum& s) {
  const int64_t side = p.kernel[2];
  return aten::device_of(s.out).is_cpu() && is_channels_last(s.source, s.out) &&
         s.out.size(1) >= kLanes && s.sources == 1 && s.sharing == 1 &&
         p.kernel[1] == side && (side == 3 || side == 5 || side == 7) &&
         p.dilation == Spatial{1, 1, 1} &&
         ((s.up == Vector2{1, 1} &&
           (s.down == Vector2{1, 1} || s.down == Vector2{2, 2})) ||
          (s.up == Vector2{2, 2} && s.down == Vector2{1, 1}));
}

void run_strips(const ConvolutionProblem& p, const Sum& s) {
  const int64_t images = s.out.size(0);
  const int64_t channels = s.out.size(1);
  const int64_t rows = rows_at_once(s.out.size(4));
  const int64_t blocks = ceil_div(s.out.size(3), rows);
  // All a pixel has, where that leaves each core some work and the weight fits
  // the nearest cache.
  const int64_t most = kFactors / p.taps() / kLanes * kLanes;
  const int64_t units = aten::device_of(s.out).info().compute_units;
  const int64_t shared = channels * blocks * images / (4 * units);
  const int64_t at_once = std::clamp(
      ceil_div(shared, kLanes) * kLanes, std::min<int64_t>(64, most), most);
  launch_sum(s,
             sources::depthwise_strips,
             "depthwise_strips",
             {{"DTYPE", dtype_of(s.out)},
              {"LANES", kLanes},
              {"KERNEL", p.kernel[2]},
              {"STRIDE", s.down[0]},
              {"UP", s.up[0]},
              {"PHASE", s.padding[1] & (s.up[0] - 1)},
              {"CHANNELS", most},
              {"PREFETCH",
               channels > kNearChannels && s.source.nbytes() >= kFarBytes}},
             range(ceil_div(channels, at_once), blocks, images, 1, 1, 1),
             rows,
             static_cast<int32_t>(at_once),
             plane_of(s.source),
             plane_of(s.out),
             s.padding);
}

void run_sum(const ConvolutionProblem& p, const Sum& s) {
  if (is_3x3(p, s)) {
    run_3x3(s);
    return;
  }
  if (is_in_strips(p, s)) {
    run_strips(p, s);
    return;
  }
  const bool is_cpu = aten::device_of(s.out).is_cpu();
  const bool channels_last = is_channels_last(s.source, s.out);
  const auto run = [&](const char* name, const NDRange& work, int64_t last) {
    launch_sum(s,
               sources::depthwise,
               name,
               {{"DTYPE", dtype_of(s.out)},
                {"LANES", is_cpu ? kLanes : 1},
                {"KERNEL", built_in_kernel(p)}},
               work,
               last,
               static_cast<int32_t>(s.sources),
               static_cast<int32_t>(s.sharing),
               plane_of(s.source),
               plane_of(s.out),
               plane(p.kernel),
               s.up,
               s.down,
               s.padding,
               plane(p.dilation));
  };
  const int64_t images = s.out.size(0);
  const int64_t channels = s.out.size(1);
  const int64_t rows = rows_at_once(s.out.size(4));
  const int64_t blocks = ceil_div(s.out.size(3), rows);
  if (!is_cpu) {
    run("depthwise_each",
        range(channels * s.out.size(3) * s.out.size(4), images, kGroupSize, 1),
        channels_last);
  } else if (channels_last && s.sources == 1 && s.sharing == 1) {
    run("depthwise_channels",
        range(ceil_div(channels, kLanes), blocks, images, 1, 1, 1),
        rows);
  } else {
    run("depthwise_rows", range(blocks, images * channels, 1, 1), rows);
  }
}

// The offset of the first tap, the strides of output channels, rows and
// columns.
Vector4 weight_strides(const ConvolutionProblem& p,
                       const Tensor& weight,
                       bool reverses_taps) {
  const int64_t last_tap = (p.kernel[1] - 1) * weight.stride(3) +
                           (p.kernel[2] - 1) * weight.stride(4);
  const int64_t direction = reverses_taps ? -1 : 1;
  return {static_cast<int32_t>(reverses_taps ? last_tap : 0),
          static_cast<int32_t>(weight.stride(0)),
          static_cast<int32_t>(direction * weight.stride(3)),
          static_cast<int32_t>(direction * weight.stride(4))};
}

}  // namespace

bool prefers_depthwise(const ConvolutionProblem& p,
                       const runtime::DeviceInfo&) {
  return p.out_channels <= kMaxSharing * p.channels;
}

bool supports_depthwise(const ConvolutionProblem& p,
                        const runtime::DeviceInfo&) {
  return p.groups > 1 && p.groups == p.channels && p.input[0] == 1 &&
         p.output[0] == 1 && p.kernel[0] == 1 && p.taps() <= kMaxTaps &&
         (kLanes - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] <
             kSpan &&
         !p.is_large;
}

void depthwise_forward(const ConvolutionProblem& p,
                       const ConvolutionArguments& a) {
  run_sum(p,
          {a.input,
           a.weight,
           a.bias,
           a.output,
           1,
           p.out_channels / p.groups,
           weight_strides(p, a.weight, a.reverses_taps),
           {1, 1},
           plane(p.stride),
           plane(p.padding)});
}

void depthwise_backward_data(const ConvolutionProblem& p,
                             const ConvolutionArguments& a) {
  const auto padding = [&p](int d) {
    return static_cast<int32_t>((p.kernel[d] - 1) * p.dilation[d] -
                                p.padding[d]);
  };
  run_sum(p,
          {a.output,
           a.weight,
           {},
           a.input,
           p.out_channels / p.groups,
           1,
           weight_strides(p, a.weight, true),
           plane(p.stride),
           {1, 1},
           {padding(1), padding(2)}});
}

namespace {

// Of depthwise_weight_strips.cl.
void run_weight_strips(const ConvolutionProblem& p,
                       const ConvolutionArguments& a) {
  const int64_t channels = p.channels;
  const int64_t taps = p.taps();
  const int64_t most = std::max(kFactors / taps / kLanes, int64_t{1}) * kLanes;
  const int64_t units = aten::device_of(a.weight).info().compute_units;
  const int64_t all_rows = p.images * p.output[1];
  const int64_t at_once = std::min(most, ceil_div(channels, kLanes) * kLanes);
  const int64_t groups = ceil_div(channels, at_once);
  const int64_t rows = ceil_div(
      all_rows, std::min(all_rows, ceil_div(kItems * units, groups)));
  const int64_t parts = ceil_div(all_rows, rows);
  const Tensor partial =
      empty_like_meta({parts, taps, channels},
                      {},
                      a.weight.options().dtype(compute_type(p.dtype)));
  const std::initializer_list<Define> defines = {
      {"DTYPE", dtype_of(a.input)},
      {"LANES", kLanes},
      {"KERNEL_H", p.kernel[1]},
      {"KERNEL_W", p.kernel[2]},
      {"CHANNELS", most},
      {"STRIDE", p.stride[1]}};
  launch(a.weight,
         sources::depthwise_weight_strips,
         "depthwise_weight_strips",
         defines,
         range(groups, parts, 1, 1),
         arg(a.input),
         arg(a.output),
         arg(partial),
         static_cast<int32_t>(channels),
         static_cast<int32_t>(at_once),
         static_cast<int32_t>(p.images),
         static_cast<int32_t>(rows),
         plane(p.input),
         plane(p.output),
         plane(p.padding),
         strides(a.input),
         strides(a.output));
  const int64_t totals =
      ceil_div(ceil_div(channels, kLanes), 4 * units) * kLanes;
  launch(a.weight,
         sources::depthwise_weight_strips,
         "depthwise_weight_total",
         defines,
         range(ceil_div(channels, totals), 1),
         arg(partial),
         arg(a.weight),
         static_cast<int32_t>(channels),
         static_cast<int32_t>(totals),
         static_cast<int32_t>(parts),
         weight_strides(p, a.weight, false));
}

}  // namespace

void depthwise_backward_weight(const ConvolutionProblem& p,
                               const ConvolutionArguments& a) {
  const bool is_cpu = aten::device_of(a.weight).is_cpu();
  const int64_t sharing = p.out_channels / p.groups;
  if (is_cpu && sharing == 1 && p.channels >= kLanes &&
      p.stride[1] == p.stride[2] && p.dilation == Spatial{1, 1, 1} &&
      is_channels_last(a.input, a.output)) {
    run_weight_strips(p, a);
    return;
  }
  const int64_t all_rows = p.images * p.output[1];
  const int64_t rows = ceil_div(
      all_rows,
      std::clamp<int64_t>(
          all_rows / (is_cpu ? rows_at_once(p.output[2]) : kRowsAtOnce),
          1,
          kMaxParts));
  const int64_t parts = ceil_div(all_rows, rows);
  const Tensor partial =
      empty_like_meta({parts, p.out_channels, 1, 1, p.kernel[1], p.kernel[2]},
                      {},
                      a.weight.options().dtype(compute_type(p.dtype)));
  const bool by_channels = sharing == 1 && is_channels_last(a.input, a.output);
  const int64_t blocks = !is_cpu       ? p.out_channels * p.taps() * kGroupSize
                         : by_channels ? ceil_div(p.out_channels, kLanes)
                                       : p.out_channels;
  launch(a.weight,
         sources::depthwise_weight,
         !is_cpu       ? "depthwise_weight_each"
         : by_channels ? "depthwise_weight_channels"
                       : "depthwise_weight_rows",
         {{"DTYPE", dtype_of(a.input)},
          {"LANES", is_cpu ? kLanes : 1},
          {"KERNEL", built_in_kernel(p)}},
         range(blocks, parts, is_cpu ? 1 : kGroupSize, 1),
         arg(a.input),
         arg(a.output),
         arg(partial),
         static_cast<int32_t>(p.out_channels),
         static_cast<int32_t>(sharing),
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
  a.weight.copy_(at::sum(partial, 0));
}

}  // namespace torch_opencl::ops
