// 3 x 3 convolutions by Winograd's F(4x4, 3x3): see winograd.clh. Weights,
// tiles of the image and outputs are transformed by kernels of their own; in
// between are 36 products of matrices, one a frequency.
#include "winograd.h"
#include "../common/lanes.h"
#include "../common/non_temporal.h"
#include "../convolution/chunks.h"

#include "../../cpp/aten/factories.h"
#include "../../cpp/aten/packed_weight.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Vectors of a work-item of winograd_weight: drivers spend up to 300 ns on one.
constexpr int64_t kWeightSteps = 32;
// BLOCKS of winograd_planes.cl: vectors of channels of a work-item.
constexpr int64_t kBlocks = 8;
// CHANNELS_AT_ONCE of winograd_channels.cl: of all tiles of a work-item.
constexpr int64_t kChannelsAtOnce = 2048;

bool has_vectors_innermost(const Tensor& image) {
  return image.stride(1) == 1 && image.size(1) >= kLanes;
}

// Whether each tile's row of outputs begins at a multiple of four, and is
// whole.
bool has_rows_of_fours(const Tensor& output) {
  const auto offset = static_cast<int64_t>(arg_in(output).offset);
  return output.stride(4) == 1 && are_fours({offset,
                                             output.size(4),
                                             output.stride(3),
                                             output.stride(1),
                                             output.stride(0)});
}

runtime::Define non_temporal_define(const Tensor& image) {
  return {"NON_TEMPORAL",
          is_non_temporal(
              aten::device_of(image), image.scalar_type(), image.numel())};
}

Tensor make_weight_panels(const ConvolutionProblem& p,
                          const Tensor& weight,
                          bool rotates_filter,
                          int64_t width) {
  const bool is_cpu = aten::device_of(weight).is_cpu();
  Tensor panels =
      empty_panels(weight, kFrequencies, p.out_channels, p.channels, width);
  const int64_t lanes = is_cpu ? kLanes : 1;
  const int64_t steps = is_cpu ? kWeightSteps : 1;
  const int64_t last_element = 2 * (weight.stride(3) + weight.stride(4));
  const int64_t first_element = rotates_filter ? last_element : 0;
  const int64_t direction = rotates_filter ? -1 : 1;
  BufferView filter = arg_in(weight);
  filter.offset += first_element;
  launch(weight,
         sources::winograd_weight,
         "winograd_weight",
         {{"DTYPE", dtype_of(weight)},
          {"ROWS", width},
          {"LANES", lanes},
          {"STEPS", steps}},
         range(ceil_div(p.channels * width, lanes * steps),
               ceil_div(p.out_channels, width),
               is_cpu ? 1 : 64,
               1),
         filter,
         arg(panels),
         as_int(p.out_channels),
         as_int(p.channels),
         weight.stride(0),
         weight.stride(1),
         direction * weight.stride(3),
         direction * weight.stride(4));
  return panels;
}

// Panels of `width` output channels, kept while the weight stands.
Tensor transform_weight(const ConvolutionProblem& p,
                        const Tensor& weight,
                        bool rotates_filter,
                        int64_t width) {
  return packed_weight(
      weight, sources::winograd_weight, {rotates_filter, width}, [&] {
        return make_weight_panels(p, weight, rotates_filter, width);
      });
}

// `tiles` of them from `first` on, as right operands, on a GPU.
Tensor transform_input(const ConvolutionProblem& p,
                       const Tensor& input,
                       int64_t first,
                       int64_t tiles) {
  const int64_t width = right_width(input, tiles);
  Tensor panels = empty_panels(input, kFrequencies, tiles, p.channels, width);
  launch_tiles(p,
               input,
               sources::winograd_input,
               {"winograd_input",
                non_temporal_define(input),
                range(ceil_div(tiles, width) * width, p.channels, 64, 1)},
               width,
               first,
               tiles,
               arg_in(input),
               arg(panels),
               as_int(p.padding[1]),
               as_int(p.padding[2]));
  return panels;
}

void transform_output(const ConvolutionProblem& p,
                      const FrequencyMatrices& products,
                      const Tensor& bias,
                      const Tensor& output,
                      int64_t first,
                      int64_t tiles,
                      const EpilogueTarget* target) {
  launch_tiles(p,
               output,
               sources::winograd_output,
               {"winograd_output",
                {"IS_WIDE", has_rows_of_fours(output)},
                range(tiles, p.out_channels, 64, 1),
                target},
               1,
               first,
               tiles,
               arg(output),
               arg_in(products.values),
               arg_in(bias),
               as_int(bias.defined()),
               as_int(bias.defined() ? bias.stride(0) : 0),
               as_int(products.row_stride),
               as_int(products.frequency_stride));
}

// How many tiles are worked on at once.
int64_t tiles_of_pass(const ConvolutionProblem& p, const Tensor& on) {
  const int64_t all = p.images * tiling_of(p).tiles();
  const int64_t bytes =
      kFrequencies * (p.channels + p.out_channels) *
      static_cast<int64_t>(c10::elementSize(compute_type(p.dtype)));
  const int64_t step = 96;
  const int64_t fitting =
      std::max<int64_t>(workspace_bytes(on) / bytes / step, 1) * step;
  return std::min(all, fitting);
}

// Rows of channels, one a tile. Each has an odd number of cache lines, so that
// those of neighbours do not share the same few sets of the cache.
FrequencyMatrices matrices_by_channels(const Tensor& on,
                                       int64_t tiles,
                                       int64_t channels) {
  return empty_frequency_matrices(
      on, tiles, (ceil_div(channels, kLanes) | 1) * kLanes, kLanes);
}

// The work-items of winograd_channels.cl, or of winograd_planes.cl, which takes
// whole rows of tiles.
NDRange range_of(const ConvolutionProblem& p,
                 const Tensor& image,
                 int64_t tiles) {
  const int64_t channels = image.size(1);
  return has_vectors_innermost(image)
             ? range(ceil_div(tiles, ceil_div(kChannelsAtOnce, channels)),
                     1,
                     1,
                     1)
             : range(tiles / tiling_of(p).columns,
                     ceil_div(channels, kBlocks * kLanes),
                     1,
                     1);
}

// The transform of `tiles` tiles of an image from `first` on, on a CPU.
template <class... Arguments>
void launch_rows_of_channels(const ConvolutionProblem& p,
                             const Tensor& image,
                             const char* kernel,
                             const FrequencyMatrices& matrices,
                             int64_t first,
                             int64_t tiles,
                             const Arguments&... arguments) {
  launch_tiles(p,
               image,
               has_vectors_innermost(image) ? sources::winograd_channels
                                            : sources::winograd_planes,
               {kernel, non_temporal_define(image), range_of(p, image, tiles)},
               kLanes,
               first,
               tiles,
               arguments...,
               as_int(matrices.row_stride),
               as_int(matrices.frequency_stride));
}

// Into `matrices`, of `tiles` tiles from `first` on.
void transform_input_on_cpu(const ConvolutionProblem& p,
                            const Tensor& input,
                            const FrequencyMatrices& matrices,
                            int64_t first,
                            int64_t tiles) {
  const auto transform = [&](const char* kernel, const auto&... more) {
    launch_rows_of_channels(p,
                            input,
                            kernel,
                            matrices,
                            first,
                            tiles,
                            arg_in(input),
                            arg(matrices.values),
                            as_int(p.padding[1]),
                            as_int(p.padding[2]),
                            more...);
  };
  if (has_vectors_innermost(input)) {
    transform("winograd_input_channels");
  } else {
    transform("winograd_input_planes", as_int(extent_of(input)));
  }
}

void transform_output_on_cpu(const ConvolutionProblem& p,
                             const FrequencyMatrices& products,
                             const ConvolutionArguments& a,
                             int64_t first,
                             int64_t tiles) {
  launch_rows_of_channels(p,
                          a.output,
                          has_vectors_innermost(a.output)
                              ? "winograd_output_channels"
                              : "winograd_output_planes",
                          products,
                          first,
                          tiles,
                          arg_in(products.values),
                          arg_in(a.bias),
                          arg(a.output),
                          as_int(a.bias.defined()),
                          as_int(a.bias.defined() ? a.bias.stride(0) : 0));
}

// The products have tiles as their rows, which are read where they lie, and
// output channels as columns.
void forward_on_cpu(const ConvolutionProblem& p,
                    const ConvolutionArguments& a) {
  const Tensor weight = transform_weight(
      p, a.weight, a.rotates_filter, right_width(a.weight, p.out_channels));
  const Tiling tiling = tiling_of(p);
  const int64_t all = p.images * tiling.tiles();
  const int64_t step =
      ceil_div(tiles_of_pass(p, a.output), tiling.columns) * tiling.columns;
  for (int64_t first = 0; first < all; first += step) {
    const int64_t tiles = std::min(step, all - first);
    const int64_t rows = std::max(tiles, kFewestRows);
    const FrequencyMatrices images =
        matrices_by_channels(a.input, rows, p.channels);
    const FrequencyMatrices products =
        matrices_by_channels(a.output, rows, p.out_channels);
    transform_input_on_cpu(p, a.input, images, first, tiles);
    multiply(products.values,
             {.batch = kFrequencies,
              .rows = rows,
              .columns = p.out_channels,
              .depth = p.channels,
              .sum_block = kWinogradSumBlock,
              .in_place = InPlace::kLeft,
              .in_place_stride = images.row_stride,
              .in_place_batch_stride = images.frequency_stride,
              .shares_panels = false},
             images.values,
             weight,
             {arg(products.values),
              products.row_stride,
              level(p.out_channels, 1),
              products.frequency_stride},
             {},
             false);
    transform_output_on_cpu(p, products, a, first, tiles);
  }
}

}  // namespace

FrequencyMatrices empty_frequency_matrices(const Tensor& on,
                                           int64_t rows,
                                           int64_t columns,
                                           int64_t width) {
  const int64_t row_stride = ceil_div(columns, width) * width;
  // An odd number of cache lines: the transforms read all frequencies at once,
  // and multiples of a page would share the same few sets of the cache.
  const int64_t frequency_stride = (ceil_div(rows * row_stride, 16) | 1) * 16;
  return {empty_like_meta({kFrequencies * frequency_stride},
                          {},
                          on.options().dtype(compute_type(on.scalar_type()))),
          row_stride,
          frequency_stride};
}

bool supports_winograd(const ConvolutionProblem& p,
                       const runtime::DeviceInfo&) {
  return p.input[0] == 1 && p.padding[0] == 0 && p.kernel == Spatial{1, 3, 3} &&
         p.stride == Spatial{1, 1, 1} && p.dilation == Spatial{1, 1, 1} &&
         p.groups == 1 && p.dtype != at::kDouble && !p.is_large;
}

bool prefers_winograd(const ConvolutionProblem& p,
                      const runtime::DeviceInfo& device) {
  // The transformed weight, or its gradient, takes four times the memory: so
  // many multiplications of a weight have to be saved. Tiles that reach over
  // the edges of small images save fewer.
  constexpr int64_t kFewestSaved = 2000;
  // On GPUs, matrices for the frequencies go through memory: each channel has
  // to save so many multiplications a pixel. A GPU does about 30 operations in
  // the time of a byte.
  constexpr int64_t kFewestChannels = 36;
  const int64_t saved = 9 * p.pixels() - kFrequencies * tiling_of(p).tiles();
  const bool is_worth_traffic =
      device.device_class == runtime::DeviceClass::kCpu ||
      p.channels * p.out_channels >=
          kFewestChannels * (p.channels + p.out_channels);
  return p.channels >= 16 && p.out_channels >= 16 && is_worth_traffic &&
         p.images * saved >= kFewestSaved;
}

void winograd_forward(const ConvolutionProblem& p,
                      const ConvolutionArguments& a) {
  if (aten::device_of(a.output).is_cpu()) {
    forward_on_cpu(p, a);
    return;
  }
  const Tensor weight = transform_weight(
      p, a.weight, a.rotates_filter, left_width(a.weight, p.out_channels));
  const int64_t all = p.images * tiling_of(p).tiles();
  const int64_t step = tiles_of_pass(p, a.output);
  for (int64_t first = 0; first < all; first += step) {
    const int64_t tiles = std::min(step, all - first);
    const Tensor input = transform_input(p, a.input, first, tiles);
    const FrequencyMatrices products = empty_frequency_matrices(
        a.output, p.out_channels, tiles, right_width(a.output, tiles));
    multiply(
        products.values,
        {kFrequencies, p.out_channels, tiles, p.channels, kWinogradSumBlock},
        weight,
        input,
        {arg(products.values),
         products.row_stride,
         level(tiles, 1),
         products.frequency_stride},
        {},
        false);
    const EpilogueTarget target{
        "convolution", a.output, {products.values, a.bias}, true};
    transform_output(p,
                     products,
                     a.bias,
                     a.output,
                     first,
                     tiles,
                     tiles == all ? &target : nullptr);
  }
}

}  // namespace torch_opencl::ops
