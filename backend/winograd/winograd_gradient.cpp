// The gradient of a 3 x 3 weight by Winograd's algorithm: the adjoint of the
// forward (winograd.cpp) in its transformed weight is, for each frequency, a
// product of the transformed tiles of the image with those of the output's
// gradient, summed over the tiles.
#include "../convolution/chunks.h"
#include "winograd.h"

#include "../../cpp/aten/factories.h"
#include "../common/lanes.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Rows of tiles: of one image after the other.
struct TileRows {
  int64_t first;
  int64_t count;
};

// Panels of `width` channels along the tiles. Tiles of the image have 6
// elements a side, those of the output's gradient 4.
Tensor transform_tiles(const ConvolutionProblem& p,
                       const Tensor& image,
                       const Spatial& padding,
                       int64_t size,
                       int64_t width,
                       const TileRows& rows) {
  const bool is_cpu = aten::device_of(image).is_cpu();
  const int64_t lanes = is_cpu ? kLanes : 1;
  const int64_t channels = image.size(1);
  const int64_t padded = ceil_div(channels, width) * width;
  const int64_t depth = rows.count * tiling_of(p).columns;
  Tensor panels = empty_panels(image, kFrequencies, channels, depth, width);
  launch_tiles(p,
               image,
               sources::winograd_tiles,
               {is_cpu ? "winograd_tiles_cpu" : "winograd_tiles_gpu",
                {"SIZE", size},
                is_cpu ? range(ceil_div(padded, lanes), rows.count, 1, 1)
                       : range(padded, depth, 64, 1)},
               width,
               rows.first,
               depth,
               arg_in(image),
               arg(panels),
               as_int(padding[1]),
               as_int(padding[2]),
               as_int(extent_of(image)));
  return panels;
}

int64_t tile_rows_of_pass(const ConvolutionProblem& p, const Tensor& on) {
  const Tiling tiling = tiling_of(p);
  const int64_t bytes =
      kFrequencies * (p.channels + p.out_channels) * tiling.columns *
      static_cast<int64_t>(c10::elementSize(compute_type(p.dtype)));
  return std::clamp<int64_t>(
      workspace_bytes(on) / bytes, 1, p.images * tiling.rows);
}

}  // namespace

void winograd_backward_weight(const ConvolutionProblem& p,
                              const ConvolutionArguments& a) {
  const FrequencyMatrices sums =
      empty_frequency_matrices(a.weight, p.out_channels, p.channels, 16);
  const Output output{arg(sums.values),
                      sums.row_stride,
                      level(p.channels, 1),
                      sums.frequency_stride};
  const int64_t all = p.images * tiling_of(p).rows;
  const int64_t step = tile_rows_of_pass(p, a.weight);
  for (int64_t first = 0; first < all; first += step) {
    const TileRows rows{first, std::min(step, all - first)};
    const Tensor grads = transform_tiles(
        p, a.output, Spatial{}, 4, left_width(a.weight, p.out_channels), rows);
    const Tensor images = transform_tiles(
        p, a.input, p.padding, 6, right_width(a.weight, p.channels), rows);
    Addend addend;
    if (first > 0) {
      addend = {output.view, sums.row_stride, 1, sums.frequency_stride, 1, 1};
    }
    multiply(sums.values,
             {kFrequencies,
              p.out_channels,
              p.channels,
              rows.count * tiling_of(p).columns,
              kWinogradSumBlock},
             grads,
             images,
             output,
             addend,
             false);
  }
  const bool is_cpu = aten::device_of(a.weight).is_cpu();
  const int64_t lanes = is_cpu ? kLanes : 1;
  launch(a.weight,
         sources::winograd_sums,
         "winograd_sums",
         {{"DTYPE", dtype_of(a.weight)}, {"LANES", lanes}},
         range(ceil_div(p.channels, lanes), p.out_channels, is_cpu ? 1 : 64, 1),
         arg_in(sums.values),
         arg(a.weight),
         as_int(p.out_channels),
         as_int(p.channels),
         as_int(sums.row_stride),
         as_int(sums.frequency_stride),
         a.weight.stride(0),
         a.weight.stride(1),
         a.weight.stride(3),
         a.weight.stride(4));
}

}  // namespace torch_opencl::ops
