#include "geometry.h"

#include "../common/lanes.h"
#include "../common/non_temporal.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

constexpr int kPoolWorkGroup = 64;

Axes axes_of(at::IntArrayRef list, int spatial, int32_t missing) {
  Axes axes{missing, missing, missing};
  for (int i = 0; i < spatial; ++i)
    axes[3 - spatial + i] =
        static_cast<int32_t>(list.size() == 1 ? list[0] : list[i]);
  return axes;
}

// How many windows of an axis an element lies in, at most.
int64_t overlap_of(const Window& window,
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
  return ceil_div(reach, window.stride[axis]);
}

// Into how many bands an image is divided where there are few images. A band
// has at least two lines.
int64_t bands_of(int64_t units, const Plane& image) {
  constexpr int64_t kBandElements = int64_t{1} << 16;
  const auto& [images, channels, depth, height, width] = image.sizes;
  const int64_t most =
      std::min(depth * ((height + 1) / 2),
               channels * depth * height * width / kBandElements);
  return std::clamp<int64_t>(8 * units / images, 1, std::max<int64_t>(most, 1));
}

}  // namespace

Window window_of(int spatial,
                 at::IntArrayRef kernel_size,
                 at::IntArrayRef stride,
                 at::IntArrayRef padding,
                 at::IntArrayRef dilation) {
  return {axes_of(kernel_size, spatial, 1),
          axes_of(stride.empty() ? kernel_size : stride, spatial, 1),
          axes_of(padding, spatial, 0),
          axes_of(dilation, spatial, 1)};
}

Window adaptive_window(const at::Tensor& image,
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

Plane::Plane(const at::Tensor& tensor, int spatial) {
  const int64_t first = tensor.dim() - spatial - 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    const int64_t dim = i < first ? 0 : (i == first ? 1 : 5 - tensor.dim() + i);
    sizes[dim] = tensor.size(i);
    strides[dim] = tensor.stride(i);
  }
}

int64_t Plane::extent() const {
  int64_t last = 1;
  for (int i = 0; i < 5; ++i) last += (sizes[i] - 1) * std::abs(strides[i]);
  return last;
}

bool Plane::channels_last() const {
  return sizes[1] > 1 && strides[1] == 1 &&
         (sizes[4] > 1 ? strides[4] > 1 : sizes[1] >= 16);
}

int64_t Plane::pixel_stride() const {
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

PoolWork forward_work(const at::Tensor& out,
                      const Window& window,
                      int spatial) {
  // Adaptive windows differ in size, so that lanes would have little in common.
  return aten::device_of(out).is_cpu() &&
                 c10::isFloatingType(out.scalar_type()) &&
                 (!window.adaptive || Plane(out, spatial).channels_last())
             ? PoolWork::kRows
             : PoolWork::kBlock;
}

PoolWork backward_work(const PoolTensors& tensors,
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

PoolPlan::PoolPlan(const Window& window,
                   int spatial,
                   const PoolTensors& tensors)
    : pooled(tensors.pooled, spatial),
      image(tensors.image, spatial),
      indices(tensors.indices.defined() ? Plane(tensors.indices, spatial)
                                        : pooled) {
  const Plane& written = tensors.writes_image ? image : pooled;
  channels_last = written.channels_last();
  const runtime::Device& device = aten::device_of(tensors.image);
  const at::ScalarType type = tensors.image.scalar_type();
  // Integer dtypes have no vector form.
  const bool vectors = c10::isFloatingType(type);
  block = device.is_cpu() && (vectors || !channels_last) ? kLanes : 1;
  divide(tensors.work, device.info().compute_units, written);
  work_group = tensors.work == PoolWork::kBlock ? kPoolWorkGroup : 1;
  lane_stride = !channels_last && !window.adaptive && image.strides[4] == 1 &&
                        window.stride[2] <= 2
                    ? window.stride[2]
                    : 0;
  const int64_t width = window.kernel_size[2];
  const bool unrolls = (lane_stride != 0 || channels_last) &&
                       !window.adaptive && window.dilation[1] == 1 &&
                       window.dilation[2] == 1 && (width == 2 || width == 3);
  unrolled = unrolls ? width : 0;
  // Indices are twice as large as the maxima beside them, and read much later.
  // Bands whose channels are no full vectors write some of them twice. Rows of
  // tiles that end within a line of memory share it with the next one.
  // Gathered gradients of maxima fill lines of four pixels in turns: without
  // AVX-512, non-temporal stores of these take twice the time of plain ones.
  const bool gathers_maxima =
      tensors.work == PoolWork::kBand && tensors.indices.defined();
  non_temporal =
      tensors.writes_image
          ? (type == at::kFloat || type == at::kDouble) &&
                (!gathers_maxima || device.info().has_avx512_registers) &&
                written.sizes[tensors.work == PoolWork::kTiles ? 4 : 1] %
                        block ==
                    0 &&
                exceeds_caches(device, tensors.image.nbytes())
          : tensors.indices.defined() &&
                exceeds_caches(
                    device, tensors.pooled.nbytes() + tensors.indices.nbytes());
}

void PoolPlan::divide(PoolWork work, int64_t units, const Plane& written) {
  const int64_t channel_blocks = ceil_div(written.sizes[1], block);
  blocks = written.sizes[0];
  switch (work) {
    case PoolWork::kBlock: {
      const int inner = channels_last ? 1 : 4;
      blocks = ceil_div(written.sizes[inner], block);
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
      parts = bands_of(units, image);
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
}

}  // namespace torch_opencl::ops
