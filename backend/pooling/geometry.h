// The pooling problem as the kernels of window.clh take it: every pooling op
// is one over five dimensions (batch, channel, depth, height, width), with
// sizes of 1 for those that its tensors lack.
#pragma once

#include "../../cpp/aten/launch.h"

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

inline Window adaptive_window() {
  Window window;
  window.adaptive = true;
  return window;
}

// geometry_t of window.clh.
template <class Index>
struct Geometry {
  Index blocks;
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
  // The spatial dimensions lie in memory as in a contiguous tensor.
  bool is_dense() const {
    int64_t stride = 1;
    for (int i = 4; i >= 2; --i) {
      if (sizes[i] > 1 && strides[i] != stride) return false;
      stride *= sizes[i];
    }
    return true;
  }
  std::array<int64_t, 5> sizes{1, 1, 1, 1, 1};
  std::array<int64_t, 5> strides{0, 0, 0, 0, 0};
};

inline constexpr int kPoolWorkGroup = 64;

struct PoolTensors {
  const at::Tensor& pooled;
  const at::Tensor& image;
  at::Tensor indices;
  bool writes_image = false;  // backward
  bool by_planes = false;     // a work-item a plane, instead of a block
};

// Whether a work-item may make a whole plane of the image's gradient, as
// pool_scatter.cl does. Half types would round each partial sum.
inline bool scatters(const at::Tensor& grad_input, int spatial) {
  const Plane image(grad_input, spatial);
  const at::ScalarType type = grad_input.scalar_type();
  const auto& info = aten::device_of(grad_input).info();
  return aten::device_of(grad_input).is_cpu() && !image.channels_last() &&
         (type == at::kFloat || type == at::kDouble) &&
         grad_input.dim() > spatial && image.is_dense() &&
         image.sizes[0] * image.sizes[1] >= info.compute_units;
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
  // Integer dtypes have no vector form.
  const bool vectors = c10::isFloatingType(tensors.image.scalar_type());
  const int block =
      aten::device_of(tensors.image).is_cpu() && (vectors || !channels_last)
          ? 16
          : 1;

  int64_t blocks = written.sizes[0] * written.sizes[1];
  if (!tensors.by_planes) {
    const int inner = channels_last ? 1 : 4;
    blocks = (written.sizes[inner] + block - 1) / block;
    for (int i = 0; i < 5; ++i)
      if (i != inner) blocks *= written.sizes[i];
  }
  const int work_group = tensors.by_planes ? 1 : kPoolWorkGroup;
  const auto with_index = [&](auto index) {
    using Index = decltype(index);
    Geometry<Index> geometry;
    geometry.blocks = static_cast<Index>(blocks);
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
    aten::launch(tensors.image,
                 source,
                 kernel_name,
                 {{"DTYPE", aten::dtype_of(tensors.image)},
                  {"CHANNELS_LAST", channels_last},
                  {"BLOCK", block},
                  {"ADAPTIVE", window.adaptive},
                  {"COUNT_INCLUDE_PAD", count_include_pad},
                  {"INDEX64", sizeof(Index) == 8},
                  {"WG_SIZE", work_group}},
                 aten::range(blocks, work_group),
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
