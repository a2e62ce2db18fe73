#include "depthwise.h"
#include "kernel_sources.h"

#include "../common/integers.h"
#include "../common/non_temporal.h"
#include "../epilogue/epilogue.h"

#include <optional>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// The common sum of the forward and of its adjoint, see depthwise.cl.
struct Sum {
  const Tensor& source;
  const Tensor& weight;
  const Tensor bias;  // may be undefined
  const Tensor& out;
  int64_t sources;
  int64_t depth_multiplier;
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
  std::optional<EpilogueTarget> target;
  if (!aten::device_of(s.out).is_cpu()) {
    target.emplace(EpilogueTarget{
        "convolution", s.out, {s.source, s.weight, s.bias}, true});
  }
  launch_with_epilogue(
      target ? &*target : nullptr,
      s.out,
      source,
      kernel,
      defines,
      work,
      arg(s.out),
      arg_in(s.source),
      arg_in(s.weight),
      arg_in(s.bias),
      static_cast<int32_t>(s.out.size(1)),
      own...,
      strides(s.source),
      s.weight_strides,
      strides(s.out),
      static_cast<int32_t>(s.bias.defined() ? s.bias.stride(0) : 0),
      static_cast<int32_t>(s.bias.defined()),
      static_cast<int32_t>(last));
}

// What kernels of depthwise_3x3.cl take.
bool has_3x3_rows(const ConvolutionProblem& p, const Sum& s) {
  return aten::device_of(s.out).is_cpu() && p.kernel == Spatial{1, 3, 3} &&
         s.padding == Vector2{1, 1} && p.dilation == Spatial{1, 1, 1} &&
         s.sources == 1 && s.source.stride(4) == 1 && s.out.stride(4) == 1;
}

// Narrow outputs run into rows that follow.
bool is_3x3(const ConvolutionProblem& p, const Sum& s) {
  const int64_t width = s.out.size(4);
  return has_3x3_rows(p, s) && s.up == Vector2{1, 1} &&
         (width >= kLanes || s.out.stride(3) == width) &&
         ((s.down == Vector2{1, 1} && s.source.size(4) == width) ||
          (s.down == Vector2{2, 2} && s.source.size(4) == 2 * width));
}

// The data gradient of stride 2.
bool is_3x3_spread(const ConvolutionProblem& p, const Sum& s) {
  return has_3x3_rows(p, s) && s.up == Vector2{2, 2} &&
         s.down == Vector2{1, 1} && s.source.size(4) > kLanes &&
         s.out.size(4) == 2 * s.source.size(4);
}

void run_3x3(const Sum& s, const char* kernel) {
  const int64_t rows = (rows_of_item(s.out.size(4)) + 1) / 2 * 2;
  // Where all that is read and written passes through the caches. The last
  // vector of a row that ends within a line overlaps its neighbour's, which
  // would be read back: 13 times as slow.
  const bool non_temporal = s.out.size(4) % kLanes == 0 &&
                            is_non_temporal(aten::device_of(s.out),
                                            s.out.scalar_type(),
                                            s.source.numel() + s.out.numel());
  launch_sum(
      s,
      sources::depthwise_3x3,
      kernel,
      {{"DTYPE", dtype_of(s.out)},
       {"LANES", kLanes},
       {"STRIDE", s.down[0]},
       {"PREFETCH", s.source.nbytes() >= kFarBytes},
       {"NON_TEMPORAL", non_temporal}},
      range(ceil_div(s.out.size(3), rows), s.out.size(0) * s.out.size(1), 1, 1),
      rows,
      static_cast<int32_t>(s.depth_multiplier),
      plane_of(s.source),
      plane_of(s.out));
}

// Of depthwise_row_tiles.cl.
bool is_in_row_tiles(const ConvolutionProblem& p, const Sum& s) {
  const int64_t side = p.kernel[2];
  return aten::device_of(s.out).is_cpu() && is_channels_last(s.source, s.out) &&
         s.out.size(1) >= kLanes && s.sources == 1 && s.depth_multiplier == 1 &&
         p.kernel[1] == side && (side == 3 || side == 5 || side == 7) &&
         p.dilation[1] == p.dilation[2] &&
         (p.dilation[1] == 1 || (p.dilation[1] == 2 && side == 3)) &&
         ((s.up == Vector2{1, 1} &&
           (s.down == Vector2{1, 1} || s.down == Vector2{2, 2})) ||
          (s.up == Vector2{2, 2} && s.down == Vector2{1, 1} &&
           p.dilation[1] == 1));
}

void run_row_tiles(const ConvolutionProblem& p, const Sum& s) {
  const int64_t images = s.out.size(0);
  const int64_t channels = s.out.size(1);
  // Of two outputs each: as many sums as registers hold. Of a source that is
  // spread, few filter elements meet them.
  const bool has_avx512_registers =
      aten::device_of(s.out).info().has_avx512_registers;
  const int64_t most_rows = has_avx512_registers || s.up[0] > 1 ? 4 : 2;
  const int64_t rows = p.kernel[2] == 3 ? most_rows / s.down[0] : s.up[0];
  const int64_t all_groups = images * ceil_div(s.out.size(3), rows);
  // All a pixel has, where that leaves each core some work and the weight fits
  // the nearest cache.
  const int64_t most = kFactors / p.filter_size() / kLanes * kLanes;
  const int64_t units = aten::device_of(s.out).info().compute_units;
  const int64_t shared = channels * all_groups * rows / (kItems * units);
  const int64_t at_once = std::clamp(
      ceil_div(shared, kLanes) * kLanes, std::min<int64_t>(64, most), most);
  const int64_t parts = ceil_div(channels, at_once);
  const int64_t groups = ceil_div(
      all_groups, std::min(all_groups, ceil_div(kItems * units, parts)));
  launch_sum(s,
             sources::depthwise_row_tiles,
             "depthwise_row_tiles",
             {{"DTYPE", dtype_of(s.out)},
              {"LANES", kLanes},
              {"KERNEL", p.kernel[2]},
              {"STRIDE", s.down[0]},
              {"DILATION", p.dilation[1]},
              {"UP", s.up[0]},
              {"ROWS", rows},
              {"PHASE_H", s.padding[0] & (s.up[0] - 1)},
              {"PHASE", s.padding[1] & (s.up[0] - 1)},
              {"CHANNELS", most},
              {"PREFETCH",
               channels > kNearChannels && s.source.nbytes() >= kFarBytes}},
             range(parts, ceil_div(all_groups, groups), 1, 1),
             groups,
             static_cast<int32_t>(at_once),
             plane_of(s.source),
             plane_of(s.out),
             s.padding,
             static_cast<int32_t>(images));
}

// Of depthwise_planes.cl.
int64_t most_pixels(const ConvolutionProblem& p, const Sum& s) {
  const auto reach = [&](int d) {
    return ((s.out.size(3 + d) - 1) * s.down[d] + p.kernel[1 + d]) / s.up[d] +
           1;
  };
  return std::max({reach(0) * reach(1),
                   s.out.size(3) * s.out.size(4),
                   s.source.size(3) * s.source.size(4)});
}

bool is_in_planes(const ConvolutionProblem& p, const Sum& s) {
  const int64_t side = p.kernel[2];
  return aten::device_of(s.out).is_cpu() && s.out.size(1) >= kLanes &&
         has_dense_planes(s.source) && has_dense_planes(s.out) &&
         s.sources == 1 && s.depth_multiplier == 1 && p.kernel[1] == side &&
         (side == 3 || side == 5 || side == 7) &&
         p.dilation == Spatial{1, 1, 1} && s.up[0] == s.up[1] &&
         s.down[0] == s.down[1] && s.up[0] <= 2 && s.padding[0] >= 0 &&
         s.padding[1] >= 0 && (s.padding[0] - s.padding[1]) % s.up[0] == 0 &&
         (s.up[0] == 2 || side > 3 || s.out.size(4) <= kShortRow) &&
         most_pixels(p, s) <= kPlanePixels;
}

// What is left to depthwise_3x3.cl and depthwise_planes.cl of contiguous
// images: see is_3x3 and is_in_planes.
bool is_3x3_in_rows(const ConvolutionProblem& p) {
  return p.kernel == Spatial{1, 3, 3} && p.padding == Spatial{0, 1, 1} &&
         p.dilation == Spatial{1, 1, 1} &&
         (p.stride == Spatial{1, 1, 1} ||
          (p.stride == Spatial{1, 2, 2} && p.input[2] == 2 * p.output[2]));
}

bool is_small(const ConvolutionProblem& p) {
  const int64_t side = p.kernel[2];
  const auto reach = [&p](int d) {
    return (p.output[d] - 1) * p.stride[d] + p.kernel[d] + 1;
  };
  return p.channels >= kLanes && p.out_channels == p.channels &&
         p.kernel[1] == side && (side == 3 || side == 5 || side == 7) &&
         p.dilation == Spatial{1, 1, 1} && p.stride[1] == p.stride[2] &&
         (side > 3 || p.output[2] <= kShortRow) &&
         std::max({reach(1) * reach(2), p.pixels(), p.input[1] * p.input[2]}) <=
             kPlanePixels;
}

void run_planes(const ConvolutionProblem& p, const Sum& s) {
  const int64_t images = s.out.size(0);
  const int64_t groups = ceil_div(s.out.size(1), kLanes);
  const int64_t units = aten::device_of(s.out).info().compute_units;
  const int64_t at_once =
      std::clamp<int64_t>(images * groups / (kItems * units), 1, images);
  launch_sum(s,
             sources::depthwise_planes,
             "depthwise_planes",
             {{"DTYPE", dtype_of(s.out)},
              {"LANES", kLanes},
              {"KERNEL", p.kernel[2]},
              {"STRIDE", s.down[0]},
              {"UP", s.up[0]},
              {"PHASE", s.padding[1] & (s.up[0] - 1)}},
             range(groups, ceil_div(images, at_once), 1, 1),
             at_once,
             static_cast<int32_t>(images),
             plane_of(s.source),
             plane_of(s.out),
             s.padding);
}

// Tiles of GPUs, see depthwise_tiles.
struct Tile {
  int64_t columns;
  int64_t row_blocks;  // of 4 rows
  int64_t planes;
};
constexpr int64_t kTileGroup = 256;
constexpr int64_t kTileBytes = 16384;  // of local memory

// None where a small tile reaches too far.
std::optional<Tile> tile_of(const ConvolutionProblem& p, const Sum& s) {
  const bool is_across = is_channels_last(s.source, s.out);
  // Neighbours read whole sectors: of a row, or of 16 channels.
  Tile tile{};
  tile.columns =
      std::min<int64_t>(power_of_two_from(s.out.size(4)), is_across ? 8 : 64);
  tile.row_blocks = std::min(power_of_two_from(ceil_div(s.out.size(3), 4)),
                             (is_across ? 16 : kTileGroup) / tile.columns);
  const auto from = [&](int d, int64_t outputs) {
    return ((outputs - 1) * s.down[d] +
            (p.kernel[1 + d] - 1) * p.dilation[1 + d] + s.up[d] - 1) /
               s.up[d] +
           1;
  };
  const int64_t room =
      kTileBytes / (s.out.scalar_type() == at::kDouble ? 8 : 4);
  while (true) {
    tile.planes = kTileGroup / (tile.columns * tile.row_blocks);
    const int64_t each = from(0, 4 * tile.row_blocks) * from(1, tile.columns);
    while (tile.planes > 1 && tile.planes * each > room) {
      tile.planes /= 2;
    }
    if (tile.planes * each <= room) {
      return tile;
    }
    if (tile.columns * tile.row_blocks == 1) {
      return std::nullopt;
    }
    (tile.row_blocks > 1 ? tile.row_blocks : tile.columns) /= 2;
  }
}

// A kernel of depthwise.cl.
void launch_depthwise(const ConvolutionProblem& p,
                      const Sum& s,
                      const char* kernel,
                      std::initializer_list<Define> defines,
                      const NDRange& work,
                      int64_t last) {
  launch_sum(s,
             sources::depthwise,
             kernel,
             defines,
             work,
             last,
             static_cast<int32_t>(s.sources),
             static_cast<int32_t>(s.depth_multiplier),
             plane_of(s.source),
             plane_of(s.out),
             plane(p.kernel),
             s.up,
             s.down,
             s.padding,
             plane(p.dilation));
}

void run_tiles(const ConvolutionProblem& p, const Sum& s, const Tile& tile) {
  const int64_t images = s.out.size(0);
  const int64_t channels = s.out.size(1);
  const int64_t items = tile.columns * tile.row_blocks * tile.planes;
  const int64_t tiles = ceil_div(s.out.size(4), tile.columns) *
                        ceil_div(s.out.size(3), 4 * tile.row_blocks);
  launch_depthwise(
      p,
      s,
      "depthwise_tiles",
      {{"DTYPE", dtype_of(s.out)},
       {"LANES", 1},
       {"CHANNELS_INNERMOST", is_channels_last(s.source, s.out)},
       {"TILE_GROUP", items},
       {"TILE_COLUMNS", tile.columns},
       {"ROW_BLOCKS", tile.row_blocks},
       {"PLANES", tile.planes},
       {"FILTER_H", p.kernel[1]},
       {"FILTER_W", p.kernel[2]},
       {"UP_H", s.up[0]},
       {"UP_W", s.up[1]},
       {"DOWN_H", s.down[0]},
       {"DOWN_W", s.down[1]},
       {"DILATION_H", p.dilation[1]},
       {"DILATION_W", p.dilation[2]}},
      range(tiles * items, ceil_div(images * channels, tile.planes), items, 1),
      images);
}

// What the kernels for some shapes leave.
void run_any_shape(const ConvolutionProblem& p, const Sum& s) {
  const bool is_cpu = aten::device_of(s.out).is_cpu();
  const bool channels_last = is_channels_last(s.source, s.out);
  const auto run = [&](const char* kernel, const NDRange& work, int64_t last) {
    launch_depthwise(p,
                     s,
                     kernel,
                     {{"DTYPE", dtype_of(s.out)},
                      {"LANES", is_cpu ? kLanes : 1},
                      {"KERNEL", built_in_kernel(p)}},
                     work,
                     last);
  };
  const int64_t images = s.out.size(0);
  const int64_t channels = s.out.size(1);
  const int64_t rows = rows_of_item(s.out.size(4));
  const int64_t blocks = ceil_div(s.out.size(3), rows);
  if (!is_cpu) {
    run("depthwise_each",
        range(channels * s.out.size(3) * s.out.size(4), images, kGroupSize, 1),
        channels_last);
  } else if (channels_last && s.sources == 1 && s.depth_multiplier == 1) {
    run("depthwise_channels",
        range(ceil_div(channels, kLanes), blocks, images, 1, 1, 1),
        rows);
  } else {
    run("depthwise_rows", range(blocks, images * channels, 1, 1), rows);
  }
}

void run_sum(const ConvolutionProblem& p, const Sum& s) {
  if (is_in_planes(p, s)) {
    run_planes(p, s);
  } else if (is_3x3(p, s)) {
    run_3x3(s, "depthwise_3x3");
  } else if (is_3x3_spread(p, s)) {
    run_3x3(s, "depthwise_3x3_spread");
  } else if (is_in_row_tiles(p, s)) {
    run_row_tiles(p, s);
  } else if (const auto tile = aten::device_of(s.out).is_cpu()
                                   ? std::nullopt
                                   : tile_of(p, s)) {
    run_tiles(p, s, *tile);
  } else {
    run_any_shape(p, s);
  }
}

}  // namespace

bool prefers_depthwise(const ConvolutionProblem& p,
                       const runtime::DeviceInfo& device) {
  return p.out_channels <= kMaxSharing * p.channels &&
         (p.is_channels_last || !supports_direct_grouped(p, device) ||
          is_3x3_in_rows(p) || is_small(p));
}

bool prefers_depthwise_data(const ConvolutionProblem& p,
                            const runtime::DeviceInfo& device) {
  return p.out_channels <= kMaxSharing * p.channels &&
         (p.is_channels_last || !supports_direct_grouped_data(p, device) ||
          is_3x3_in_rows(p) || is_small(p));
}

bool prefers_depthwise_weight(const ConvolutionProblem& p,
                              const runtime::DeviceInfo&) {
  return p.out_channels <= kMaxSharing * p.channels;
}

bool supports_depthwise(const ConvolutionProblem& p,
                        const runtime::DeviceInfo&) {
  return p.groups > 1 && p.groups == p.channels && p.input[0] == 1 &&
         p.output[0] == 1 && p.kernel[0] == 1 && p.padding[0] == 0 &&
         p.filter_size() <= kMaxFilterSize &&
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
           weight_strides(p, a.weight, a.rotates_filter),
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

}  // namespace torch_opencl::ops
