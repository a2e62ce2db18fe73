// Groups of few channels on CPUs, without columns: see direct_grouped.clh.
#include "../../cpp/aten/factories.h"
#include "../depthwise/depthwise.h"
#include "convolution.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Of direct_grouped.cl, in elements.
constexpr int64_t kPlanesSize = 16384;
constexpr int64_t kTotalsSize = 16384;
constexpr int64_t kMaxDepth = 256;
constexpr int64_t kPlaneSlack = 16;
constexpr int64_t kTile = 4;         // of direct_grouped_weight.cl
constexpr int64_t kLineSize = 1024;  // and about the outputs it sums at once

// They do not fill the panels and vectors of other solvers.
constexpr int64_t kFewChannels = 16;

// geometry_t of direct_grouped.cl.
struct alignas(8) Geometry {
  Vector2 kernel_size;
  Vector2 stride;
  Vector2 padding;
  Vector2 dilation;
  Vector2 image_size;
  Vector2 out_size;
  int32_t channels;
  int32_t out_channels;
  int32_t rows;
  int32_t channels_at_once;
  int32_t out_channels_at_once;
  int32_t bundle;
  int32_t is_dense;
};

// The tile that vectors of outputs are computed in, and what a work-item takes.
struct Blocking {
  int64_t tile_rows;     // output channels
  int64_t tile_vectors;  // of outputs
  int64_t rows;          // of a row tile; 0 where nothing fits
  int64_t channels_at_once;
  int64_t out_channels_at_once;
  int64_t bundle;           // groups together
  int64_t multiplications;  // of a group's row tile
};

// How far the filter elements reach over planes along a dimension.
int64_t reach_of(const ConvolutionProblem& p, int d) {
  return (p.kernel[d] - 1) * p.dilation[d] / p.stride[d];
}

bool has_channels_innermost(const Tensor& image) {
  return image.stride(1) == 1 && image.stride(4) != 1;
}

Blocking blocking_of(const ConvolutionProblem& p, bool is_wide) {
  const int64_t channels = p.channels / p.groups;
  const int64_t outs = p.out_channels / p.groups;
  const int64_t pitch = p.output[2] + reach_of(p, 2);
  Blocking b{};
  // Vectors of sums that registers hold.
  const int64_t most_sums = is_wide ? 16 : 4;
  b.tile_rows = outs <= 2                                           ? outs
                : is_wide && round_up(outs, 8) == round_up(outs, 4) ? 8
                                                                    : 4;
  const auto line = [&](int64_t rows) {
    return (rows - 1) * pitch + p.output[2];
  };
  b.channels_at_once =
      std::clamp<int64_t>(kMaxDepth / p.filter_size(), 1, channels);
  b.out_channels_at_once = std::min(round_up(outs, b.tile_rows), int64_t{32});
  b.bundle = p.is_channels_last && channels <= b.channels_at_once
                 ? std::max<int64_t>(kLanes / std::max(channels, outs), 1)
                 : 1;
  const auto fits = [&](int64_t rows) {
    const int64_t plane = (rows + reach_of(p, 1)) * pitch + kPlaneSlack;
    return b.bundle * b.channels_at_once * plane * p.stride[1] * p.stride[2] +
                   256 <=
               kPlanesSize &&
           b.bundle * b.out_channels_at_once * round_up(line(rows), 128) <=
               kTotalsSize;
  };
  const auto most_rows = [&] {
    const int64_t row =
        b.bundle * b.channels_at_once * pitch * p.stride[1] * p.stride[2];
    int64_t rows = std::min(p.output[1], kPlanesSize / row);
    while (rows > 0 && !fits(rows)) {
      --rows;
    }
    return rows;
  };
  int64_t rows = most_rows();
  while (rows == 0 && (b.bundle > 1 || b.channels_at_once > 1)) {
    if (b.bundle > 1) {
      b.bundle = 1;
    } else {
      b.channels_at_once = ceil_div(b.channels_at_once, 2);
    }
    rows = most_rows();
  }
  if (rows == 0) {
    return b;
  }
  b.rows = ceil_div(p.output[1], ceil_div(p.output[1], rows));
  b.tile_vectors = most_sums / b.tile_rows;
  while (b.tile_vectors > 2 &&
         round_up(line(b.rows), 8 * b.tile_vectors) <
             round_up(line(b.rows), 16 * b.tile_vectors)) {
    b.tile_vectors /= 2;
  }
  b.tile_vectors = std::min<int64_t>(b.tile_vectors, 8);
  b.multiplications = round_up(line(b.rows), 16 * b.tile_vectors) *
                      b.out_channels_at_once * channels * p.filter_size();
  return b;
}

// What a work-item of direct_grouped_weight.cl lays at once. All but the last
// channels are laid by tiles, so that products are summed by tiles.
struct WeightBlocking {
  int64_t rows;  // of a row tile; 0 where nothing fits
  int64_t images_at_once;
  int64_t channels_at_once;
};

WeightBlocking weight_blocking_of(const ConvolutionProblem& p) {
  const int64_t channels = p.channels / p.groups;
  const int64_t outs = p.out_channels / p.groups;
  const int64_t pitch = p.output[2] + reach_of(p, 2);
  const auto image_size = [&](int64_t rows) {
    return (rows + reach_of(p, 1)) * pitch;
  };
  if (round_up(outs, kTile) * round_up(p.depth(), kTile) > kTotalsSize) {
    return {};
  }
  // Lines of eight operands stay in the nearest cache.
  const int64_t row_tiles = ceil_div(image_size(p.output[1]), kLineSize);
  WeightBlocking b{ceil_div(p.output[1], row_tiles), 1, channels};
  const auto fits = [&] {
    const int64_t plane = b.images_at_once * image_size(b.rows) + kPlaneSlack;
    return outs * plane <= kPlanesSize &&
           b.channels_at_once * plane * p.stride[1] * p.stride[2] + kLanes <=
               kPlanesSize;
  };
  while (!fits()) {
    if (b.channels_at_once > kTile) {
      b.channels_at_once = round_up(ceil_div(b.channels_at_once, 2), kTile);
    } else if (b.rows > 1) {
      b.rows = ceil_div(b.rows, 2);
    } else {
      return {};
    }
  }
  if (b.rows == p.output[1]) {
    b.images_at_once = std::clamp<int64_t>(
        kLineSize / image_size(b.rows), 1, std::max<int64_t>(p.images, 1));
    while (!fits()) {
      if (b.channels_at_once > 2 * kTile) {
        b.channels_at_once = round_up(ceil_div(b.channels_at_once, 2), kTile);
      } else {
        b.images_at_once = ceil_div(b.images_at_once, 2);
      }
    }
  }
  return b;
}

// For whole groups, one at a time.
Geometry geometry_of(const ConvolutionProblem& p,
                     int64_t rows,
                     int64_t channels_at_once) {
  const auto outs = static_cast<int32_t>(p.out_channels / p.groups);
  return {plane(p.kernel),
          plane(p.stride),
          plane(p.padding),
          plane(p.dilation),
          plane(p.input),
          plane(p.output),
          static_cast<int32_t>(p.channels / p.groups),
          outs,
          static_cast<int32_t>(rows),
          static_cast<int32_t>(channels_at_once),
          outs,
          1,
          0};
}

}  // namespace

bool supports_direct_grouped(const ConvolutionProblem& p,
                             const runtime::DeviceInfo& device) {
  return device.device_class == runtime::DeviceClass::kCpu && p.input[0] == 1 &&
         p.output[0] == 1 && p.kernel[0] == 1 && p.padding[0] == 0 &&
         p.filter_size() <= kMaxDepth && !p.is_large &&
         blocking_of(p, device.has_avx512_registers).rows > 0;
}

// Elsewhere so many output channels share an image that reading it where it
// lies, columns or Winograd's algorithm are faster. Images of halves are not
// read where they lie.
bool prefers_direct_grouped(const ConvolutionProblem& p,
                            const runtime::DeviceInfo&) {
  if (p.groups > 1 || p.out_channels < kFewChannels) {
    return p.filter_size() > 1;
  }
  const bool is_small = p.channels < 32 && p.out_channels <= 32;
  return p.filter_size() > 1 &&
         (p.is_channels_last
              ? at::isReducedFloatingType(p.dtype) && p.channels < kFewChannels
              : is_small || p.channels < kFewChannels);
}

void direct_grouped_forward(const ConvolutionProblem& p,
                            const ConvolutionArguments& a) {
  const Blocking b =
      blocking_of(p, aten::device_of(a.output).info().has_avx512_registers);
  const int64_t outs = p.out_channels / p.groups;
  const Tensor weight = with_pixel_stride(a.weight);
  const int64_t element_stride = weight.stride(4);
  const Tensor panels =
      pack_kept(weight,
                a.rotates_filter ? (p.filter_size() - 1) * element_stride : 0,
                {{},
                 level(outs, weight.stride(0)),
                 {p.filter_size(),
                  weight.stride(1),
                  a.rotates_filter ? -element_stride : element_stride},
                 outs * weight.stride(0)},
                p.groups,
                outs,
                p.depth(),
                b.tile_rows);
  Geometry geometry = geometry_of(p, b.rows, b.channels_at_once);
  geometry.out_channels_at_once = static_cast<int32_t>(b.out_channels_at_once);
  geometry.bundle = static_cast<int32_t>(b.bundle);
  geometry.is_dense = a.output.stride(3) == p.output[2];
  const int64_t row_tiles =
      ceil_div(p.output[1], b.rows) * ceil_div(outs, b.out_channels_at_once);
  const int64_t at_once =
      round_up(tiles_at_once(
                   a.output, p.groups, p.images * row_tiles, b.multiplications),
               b.bundle);
  launch(a.output,
         sources::direct_grouped,
         "direct_grouped_forward",
         {{"DTYPE", dtype_of(a.output)},
          {"LANES", kLanes},
          {"ROWS", b.tile_rows},
          {"VECTORS", b.tile_vectors},
          {"BY_CHANNELS_IN", has_channels_innermost(a.input)},
          {"BY_CHANNELS_OUT", has_channels_innermost(a.output)},
          {"PLANES_SIZE", kPlanesSize},
          {"TOTALS_SIZE", kTotalsSize}},
         range(row_tiles, ceil_div(p.groups, at_once), p.images, 1, 1, 1),
         arg_in(a.input),
         arg_in(panels),
         arg_in(a.bias),
         arg(a.output),
         geometry,
         static_cast<int32_t>(p.groups),
         static_cast<int32_t>(at_once),
         strides(a.input),
         strides(a.output),
         static_cast<int32_t>(extent_of(a.input)),
         static_cast<int32_t>(a.bias.defined()),
         static_cast<int32_t>(a.bias.defined() ? a.bias.stride(0) : 0));
}

bool supports_direct_grouped_weight(const ConvolutionProblem& p,
                                    const runtime::DeviceInfo& device) {
  return supports_direct_grouped(p, device) && weight_blocking_of(p).rows > 0;
}

// The zeros between stacked images of few pixels are as many as these.
bool prefers_direct_grouped_weight(const ConvolutionProblem& p,
                                   const runtime::DeviceInfo&) {
  if (p.groups > 1) {
    return p.filter_size() > 1 && p.pixels() > 64;
  }
  const bool has_few_outputs = p.out_channels < kFewChannels;
  return p.filter_size() > 1 && p.filter_size() <= 9 &&
         (p.is_channels_last
              ? at::isReducedFloatingType(p.dtype) && has_few_outputs
              : has_few_outputs ||
                    (p.channels <= kFewChannels && p.out_channels <= 32));
}

void direct_grouped_backward_weight(const ConvolutionProblem& p,
                                    const ConvolutionArguments& a) {
  const WeightBlocking b = weight_blocking_of(p);
  const int64_t outs = p.out_channels / p.groups;
  const int64_t out_tiles = ceil_div(outs, kTile);
  const int64_t depth_tiles = ceil_div(p.depth(), kTile);
  const int64_t row_tiles = ceil_div(p.output[1], b.rows);
  const int64_t items = row_tiles * ceil_div(p.images, b.images_at_once);
  const int64_t units = aten::device_of(a.weight).info().compute_units;
  const int64_t at_once =
      ceil_div(items, std::min(items, ceil_div(kItems * units, p.groups)));
  const int64_t parts = ceil_div(items, at_once);
  const Tensor partial =
      empty_like_meta({parts, p.groups, out_tiles, depth_tiles, kTile, kTile},
                      {},
                      a.weight.options().dtype(compute_type(p.dtype)));
  launch(a.weight,
         sources::direct_grouped_weight,
         "direct_grouped_weight",
         {{"DTYPE", dtype_of(a.weight)},
          {"LANES", kLanes},
          {"BY_CHANNELS_IN",
           has_channels_innermost(a.input) && has_channels_innermost(a.output)},
          {"PLANES_SIZE", kPlanesSize},
          {"TOTALS_SIZE", kTotalsSize}},
         range(p.groups, parts, 1, 1),
         arg_in(a.input),
         arg_in(a.output),
         arg(partial),
         geometry_of(p, b.rows, b.channels_at_once),
         static_cast<int32_t>(p.images),
         static_cast<int32_t>(b.images_at_once),
         static_cast<int32_t>(row_tiles),
         static_cast<int32_t>(items),
         static_cast<int32_t>(at_once),
         strides(a.input),
         strides(a.output),
         static_cast<int32_t>(extent_of(a.input)),
         static_cast<int32_t>(extent_of(a.output)));
  const Tensor total = parts > 1 ? partial.sum(0) : partial.select(0, 0);
  const Tensor rows = total.transpose(2, 3).reshape(
      {p.groups, out_tiles * kTile, depth_tiles * kTile});
  a.weight.copy_(rows.narrow(1, 0, outs)
                     .narrow(2, 0, p.depth())
                     .reshape(a.weight.sizes()));
}

}  // namespace torch_opencl::ops
