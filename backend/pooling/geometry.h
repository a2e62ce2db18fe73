// The pooling problem as the kernels of window.clh take it: every pooling op
// is one over five dimensions (batch, channel, depth, height, width), with
// sizes of 1 for those that its tensors lack.
#pragma once

#include "../../cpp/aten/launch.h"
#include "../common/streamed.h"

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

// From int[2] or int[3] lists (or one number for all axes); an empty stride is
// the kernel's size.
inline Axes axes_of(at::IntArrayRef list, int spatial, int32_t missing) {
  Axes axes{missing, missing, missing};
  for (int i = 0; i < spatial; ++i)
    axes[3 - spatial + i] =
        static_cast<int32_t>(list.size() == 1 ? list[0] : list[i]);
  return axes;
}

inline Window window_of(int spatial,
                        at::IntArrayRef kernel_size,
                        at::IntArrayRef stride,
                        at::IntArrayRef padding,
                        at::IntArrayRef dilation = 1) {
  return {axes_of(kernel_size, spatial, 1),
          axes_of(stride.empty() ? kernel_size : stride, spatial, 1),
          axes_of(padding, spatial, 0),
          axes_of(dilation, spatial, 1)};
}

// Windows that divide `image` into the sizes of `pooled`: ordinary ones where
// they are all of one size.
inline Window adaptive_window(const at::Tensor& image,
                              const at::Tensor& pooled,
                              int spatial) {
  Window window;
  for (int i = 1; i <= spatial; ++i) {
    const int64_t size = image.size(-i);
    const int64_t parts = std::max<int64_t>(pooled.size(-i), 1);
    window.adaptive |= size % parts != 0;
    window.kernel_size[3 - i] = static_cast<int32_t>(size / parts);
  }
  if (window.adaptive) {
    window.kernel_size = {1, 1, 1};
  }
  window.stride = window.kernel_size;
  return window;
}

// geometry_t of window.clh.
template <class Index>
struct Geometry {
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

// A tensor of a pooling op with `spatial` spatial dimensions and maybe a batch.
struct Plane {
  Plane(const at::Tensor& tensor, int spatial) {
    const int64_t first = tensor.dim() - spatial - 1;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      const int64_t dim =
          i < first ? 0 : (i == first ? 1 : 5 - tensor.dim() + i);
      sizes[dim] = tensor.size(i);
      strides[dim] = tensor.stride(i);
    }
  }
  int64_t extent() const {
    int64_t last = 1;
    for (int i = 0; i < 5; ++i) last += (sizes[i] - 1) * std::abs(strides[i]);
    return last;
  }
  bool channels_last() const {
    return sizes[1] > 1 && strides[1] == 1 &&
           (sizes[4] > 1 ? strides[4] > 1 : sizes[1] >= 16);
  }
  // From one pixel to the next where pixels are evenly spaced, else 0.
  int64_t pixel_stride() const {
    int64_t step = 0;
    int64_t count = 1;
    for (int i = 4; i >= 2; --i) {
      if (sizes[i] == 1) continue;
      if (step == 0) step = strides[i];
      if (strides[i] != step * count) return 0;
      count *= sizes[i];
    }
    return step == 0 ? 1 : step;
  }
  std::array<int64_t, 5> sizes{1, 1, 1, 1, 1};
  std::array<int64_t, 5> strides{0, 0, 0, 0, 0};
};

inline constexpr int kPoolWorkGroup = 64;

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

inline PoolWork forward_work(const at::Tensor& out,
                             const Window& window,
                             int spatial) {
  // Adaptive windows differ in size, so that lanes would have little in common.
  return aten::device_of(out).is_cpu() &&
                 c10::isFloatingType(out.scalar_type()) &&
                 (!window.adaptive || Plane(out, spatial).channels_last())
             ? PoolWork::kRows
             : PoolWork::kBlock;
}

// How many windows of an axis an element lies in, at most.
inline int64_t overlap_of(const Window& window,
                          int axis,
                          const Plane& image,
                          const Plane& pooled) {
  if (window.adaptive) {
    // Where windows differ in size it depends on the element.
    const int64_t windows = std::max<int64_t>(pooled.sizes[2 + axis], 1);
    return image.sizes[2 + axis] % windows == 0 ? 1 : windows;
  }
  const int64_t reach =
      (window.kernel_size[axis] - 1) * window.dilation[axis] + 1;
  return (reach + window.stride[axis] - 1) / window.stride[axis];
}

inline PoolWork backward_work(const PoolTensors& tensors,
                              const Window& window,
                              int spatial) {
  const Plane image(tensors.image, spatial);
  const Plane pooled(tensors.pooled, spatial);
  const Plane indices =
      tensors.indices.defined() ? Plane(tensors.indices, spatial) : pooled;
  const at::ScalarType type = tensors.image.scalar_type();
  if (!aten::device_of(tensors.image).is_cpu() || !at::isFloatingType(type)) {
    return PoolWork::kBlock;
  }
  int64_t overlap[3];
  for (int i = 0; i < 3; ++i) overlap[i] = overlap_of(window, i, image, pooled);
  // WINDOWS of pool_gather.cl. Where more windows overlap, adding them up at
  // each element takes longer than adding each to its elements.
  const bool few_windows = overlap[0] * overlap[1] * overlap[2] <= 9;
  const int64_t step = image.pixel_stride();
  const auto dense = [&](int dim) {
    return image.strides[dim] == 1 && pooled.strides[dim] == 1 &&
           indices.strides[dim] == 1;
  };
  // Fewer numbers side by side than LANES of either file are not worth it.
  if (image.channels_last()) {
    if (few_windows && overlap[0] == 1 && dense(1) && step != 0 &&
        image.sizes[1] >= 16) {
      return PoolWork::kBand;
    }
  } else if (dense(4) && !window.adaptive && window.dilation == Axes{1, 1, 1} &&
             window.padding[2] == 0 && window.kernel_size[2] == 2 &&
             window.stride[2] == 2 && overlap[0] == 1 && overlap[1] == 1 &&
             image.sizes[4] >= 2 * pooled.sizes[4] &&
             pooled.sizes[4] >= kLongRow) {
    return PoolWork::kTiles;
  }
  // Half types would round each partial sum of a plane.
  return (type == at::kFloat || type == at::kDouble) &&
                 tensors.image.dim() > spatial &&
                 (image.channels_last() ? step != 0 : step == 1)
             ? PoolWork::kPlane
             : PoolWork::kBlock;
}

// Into how many bands an image is divided where there are few images. A band
// has at least two lines.
inline int64_t bands_of(const runtime::Device& device, const Plane& image) {
  constexpr int64_t kBandElements = int64_t{1} << 16;
  const auto& [images, channels, depth, height, width] = image.sizes;
  const int64_t most =
      std::min(depth * ((height + 1) / 2),
               channels * depth * height * width / kBandElements);
  return std::clamp<int64_t>(8 * int64_t{device.info().compute_units} / images,
                             1,
                             std::max<int64_t>(most, 1));
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
  const Plane pooled(tensors.pooled, spatial);
  const Plane image(tensors.image, spatial);
  const Plane indices =
      tensors.indices.defined() ? Plane(tensors.indices, spatial) : pooled;
  const Plane& written = tensors.writes_image ? image : pooled;
  const bool channels_last = written.channels_last();
  const auto& device = aten::device_of(tensors.image);
  // Integer dtypes have no vector form.
  const bool vectors = c10::isFloatingType(tensors.image.scalar_type());
  const int block = device.is_cpu() && (vectors || !channels_last) ? 16 : 1;

  const int64_t units = device.info().compute_units;
  const int64_t channel_blocks = (written.sizes[1] + block - 1) / block;
  int64_t blocks = written.sizes[0];
  int64_t tile = 1;
  int64_t parts = 1;
  switch (tensors.work) {
    case PoolWork::kBlock: {
      const int inner = channels_last ? 1 : 4;
      blocks = (written.sizes[inner] + block - 1) / block;
      for (int i = 0; i < 5; ++i)
        if (i != inner) blocks *= written.sizes[i];
      break;
    }
    case PoolWork::kRows:
      blocks *= pooled.sizes[2] * pooled.sizes[3];
      // Few rows: channels are divided too.
      parts = channels_last
                  ? std::clamp<int64_t>(8 * units / blocks, 1, channel_blocks)
                  : written.sizes[1];
      blocks *= parts;
      tile = std::max<int64_t>(1, blocks / (32 * units));
      break;
    case PoolWork::kBand:
      parts = bands_of(device, image);
      blocks *= parts;
      break;
    case PoolWork::kTiles:
      blocks *= written.sizes[1];
      tile = std::max<int64_t>(1, blocks / (32 * units));
      break;
    case PoolWork::kPlane:
      // Fewer images than cores: channels are divided too, no further, because
      // prefetchers read those of the other parts in vain.
      parts = channels_last
                  ? std::clamp<int64_t>(units / blocks, 1, channel_blocks)
                  : written.sizes[1];
      blocks *= parts;
      break;
  }
  const int64_t items = (blocks + tile - 1) / tile;
  const int work_group = tensors.work == PoolWork::kBlock ? kPoolWorkGroup : 1;
  const int lane_stride = !channels_last && !window.adaptive &&
                                  image.strides[4] == 1 && window.stride[2] <= 2
                              ? window.stride[2]
                              : 0;
  const int64_t taps = window.kernel_size[2];
  const bool unrolls = (lane_stride != 0 || channels_last) &&
                       !window.adaptive && window.dilation[1] == 1 &&
                       window.dilation[2] == 1 && (taps == 2 || taps == 3);
  // Indices are twice as large as the maxima beside them, and read much later.
  // Bands whose channels are no whole vectors write some of them twice.
  // Gathered gradients of maxima fill lines of four pixels in turns, which past
  // the caches takes twice the time of plain stores without AVX-512.
  const at::ScalarType type = tensors.image.scalar_type();
  const bool gathers_maxima =
      tensors.work == PoolWork::kBand && tensors.indices.defined();
  const bool streams =
      tensors.writes_image
          ? (type == at::kFloat || type == at::kDouble) &&
                (!gathers_maxima || device.info().has_wide_registers) &&
                (tensors.work == PoolWork::kTiles ||
                 written.sizes[1] % block == 0) &&
                exceeds_caches(device, tensors.image.nbytes())
          : tensors.indices.defined() &&
                exceeds_caches(
                    device, tensors.pooled.nbytes() + tensors.indices.nbytes());
  const auto with_index = [&](auto index) {
    using Index = decltype(index);
    Geometry<Index> geometry;
    geometry.blocks = static_cast<Index>(blocks);
    geometry.extent = static_cast<Index>(image.extent());
    for (int i = 0; i < 5; ++i) {
      geometry.pooled_strides[i] = static_cast<Index>(pooled.strides[i]);
      geometry.image_strides[i] = static_cast<Index>(image.strides[i]);
      geometry.indices_strides[i] = static_cast<Index>(indices.strides[i]);
    }
    geometry.channels = static_cast<int32_t>(image.sizes[1]);
    for (int i = 0; i < 3; ++i) {
      geometry.image[i] = static_cast<int32_t>(image.sizes[2 + i]);
      geometry.pooled[i] = static_cast<int32_t>(pooled.sizes[2 + i]);
    }
    geometry.kernel_size = window.kernel_size;
    geometry.stride = window.stride;
    geometry.padding = window.padding;
    geometry.dilation = window.dilation;
    geometry.tile = static_cast<int32_t>(tile);
    geometry.parts = static_cast<int32_t>(parts);
    aten::launch(tensors.image,
                 source,
                 kernel_name,
                 {{"DTYPE", aten::dtype_of(tensors.image)},
                  {"CHANNELS_LAST", channels_last},
                  {"BLOCK", block},
                  {"STRIDE", lane_stride},
                  {"TAPS", unrolls ? taps : 0},
                  {"STREAM", streams},
                  {"MAXIMUM", tensors.indices.defined()},
                  {"ADAPTIVE", window.adaptive},
                  {"COUNT_INCLUDE_PAD", count_include_pad},
                  {"INDEX64", sizeof(Index) == 8},
                  {"WG_SIZE", work_group}},
                 aten::range(items, work_group),
                 geometry,
                 arguments...);
  };
  const int64_t extent =
      std::max({pooled.extent(), image.extent(), indices.extent()});
  if (aten::fits_int32(extent))
    with_index(int32_t());
  else
    with_index(int64_t());
}

}  // namespace torch_opencl::ops
