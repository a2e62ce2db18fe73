// The pooling problem as the kernels of window.clh take it: every pooling op
// is one over five dimensions (batch, channel, depth, height, width), with
// sizes of 1 for those that its tensors lack.
#pragma once

#include "../../cpp/aten/launch.h"
#include "../common/int_size.h"
#include "../common/integers.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>

namespace torch_opencl::ops {

using Axes = std::array<int32_t, 3>;  // depth, height, width

struct Window {
  Axes kernel_size{1, 1, 1};
  Axes stride{1, 1, 1};
  Axes padding{0, 0, 0};
  Axes dilation{1, 1, 1};
  bool adaptive = false;
};

// geometry_t of window.clh.
template <class Index>
struct PoolGeometry {
  Index blocks;
  Index extent;
  Index pooled_strides[5];
  Index image_strides[5];
  Index indices_strides[5];
  int32_t channels;
  Axes image;
  Axes pooled;
  Axes kernel_size;
  Axes stride;
  Axes padding;
  Axes dilation;
  int32_t tile;
  int32_t parts;
};

// From int[2] or int[3] lists (or one number for all axes); an empty stride is
// the kernel's size.
Window window_of(int spatial,
                 at::IntArrayRef kernel_size,
                 at::IntArrayRef stride,
                 at::IntArrayRef padding,
                 at::IntArrayRef dilation = 1);

// Windows that divide `image` into the sizes of `pooled`: ordinary ones where
// they are all of one size.
Window adaptive_window(const at::Tensor& image,
                       const at::Tensor& pooled,
                       int spatial);

// A tensor of a pooling op with `spatial` spatial dimensions and maybe a batch.
struct Plane {
  Plane(const at::Tensor& tensor, int spatial);
  int64_t extent() const;
  bool channels_last() const;
  // From one pixel to the next where pixels are evenly spaced, else 0.
  int64_t pixel_stride() const;
  std::array<int64_t, 5> sizes{1, 1, 1, 1, 1};
  std::array<int64_t, 5> strides{0, 0, 0, 0, 0};
};

// Outputs of a row that are worth vectors along it.
inline constexpr int64_t kLongRow = 16;

// What a work-item makes.
enum class PoolWork {
  kBlock,  // some neighbouring elements
  kRows,   // rows of outputs: pool_rows.cl
  kBand,   // some lines of an image's gradient: pool_gather.cl
  kTiles,  // planes of it whose windows lie side by side: pool_tiles.cl
  kPlane,  // an image's gradient, or some channels of it: pool_scatter.cl
};

struct PoolTensors {
  const at::Tensor& pooled;
  const at::Tensor& image;
  at::Tensor indices;
  bool writes_image = false;  // backward
  PoolWork work = PoolWork::kBlock;
};

PoolWork forward_work(const at::Tensor& out, const Window& window, int spatial);

PoolWork backward_work(const PoolTensors& tensors,
                       const Window& window,
                       int spatial);

// What a launch does: its work-items and what its kernel is built with.
struct PoolPlan {
  PoolPlan(const Window& window, int spatial, const PoolTensors& tensors);
  Plane pooled;
  Plane image;
  Plane indices;
  bool channels_last;
  int block;  // elements of a work-item's vector
  int64_t blocks;
  int64_t tile = 1;   // blocks of a work-item
  int64_t parts = 1;  // of an image's channels or lines
  int work_group;
  int lane_stride;   // of windows along a dense width, 0 for all others
  int64_t unrolled;  // width of a window, 0 where it is not unrolled
  bool non_temporal;

 private:
  void divide(PoolWork work, int64_t units, const Plane& written);
};

template <class Index>
PoolGeometry<Index> geometry_of(const PoolPlan& plan, const Window& window) {
  PoolGeometry<Index> geometry;
  geometry.blocks = static_cast<Index>(plan.blocks);
  geometry.extent = static_cast<Index>(plan.image.extent());
  for (int i = 0; i < 5; ++i) {
    geometry.pooled_strides[i] = static_cast<Index>(plan.pooled.strides[i]);
    geometry.image_strides[i] = static_cast<Index>(plan.image.strides[i]);
    geometry.indices_strides[i] = static_cast<Index>(plan.indices.strides[i]);
  }
  geometry.channels = int_size("pooling", plan.image.sizes[1]);
  for (int i = 0; i < 3; ++i) {
    geometry.image[i] = int_size("pooling", plan.image.sizes[2 + i]);
    geometry.pooled[i] = int_size("pooling", plan.pooled.sizes[2 + i]);
  }
  geometry.kernel_size = window.kernel_size;
  geometry.stride = window.stride;
  geometry.padding = window.padding;
  geometry.dilation = window.dilation;
  geometry.tile = static_cast<int32_t>(plan.tile);
  geometry.parts = static_cast<int32_t>(plan.parts);
  return geometry;
}

// `arguments` follow the geometry.
template <class... Arguments>
void launch_pool(const aten::KernelSource& source,
                 const char* kernel_name,
                 const Window& window,
                 int spatial,
                 const PoolTensors& tensors,
                 bool count_include_pad,
                 const Arguments&... arguments) {
  const PoolPlan plan(window, spatial, tensors);
  const auto launch = [&](auto index) {
    using Index = decltype(index);
    aten::launch(tensors.image,
                 source,
                 kernel_name,
                 {{"DTYPE", aten::dtype_of(tensors.image)},
                  {"CHANNELS_LAST", plan.channels_last},
                  {"BLOCK", plan.block},
                  {"STRIDE", plan.lane_stride},
                  {"TAPS", plan.unrolled},
                  {"NON_TEMPORAL", plan.non_temporal},
                  {"MAXIMUM", tensors.indices.defined()},
                  {"ADAPTIVE", window.adaptive},
                  {"COUNT_INCLUDE_PAD", count_include_pad},
                  {"INDEX64", sizeof(Index) == 8},
                  {"WG_SIZE", plan.work_group}},
                 aten::range(ceil_div(plan.blocks, plan.tile), plan.work_group),
                 geometry_of<Index>(plan, window),
                 arguments...);
  };
  const int64_t extent = std::max(
      {plan.pooled.extent(), plan.image.extent(), plan.indices.extent()});
  aten::with_index(extent, launch);
}

}  // namespace torch_opencl::ops
