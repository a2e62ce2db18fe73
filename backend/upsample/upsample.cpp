// upsample_* and _upsample_nearest_exact*: one problem over five dimensions,
// with sizes of 1 for those that a tensor lacks.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_ops.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_backward_ops.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_ops.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_ops.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_ops.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

// MOST_COLUMNS of upsample_rows.cl and MOST_READERS of upsample_pixels.cl.
constexpr int kMostColumns = 1024;
constexpr int64_t kItems = 512;  // of a launch by rows or pixels, about
constexpr int kColumns = 64;     // of a work-item by pixels

// MODE of upsample.cl.
enum class Mode { kNearest, kNearestExact, kLinear, kCubic };

// geometry_t of upsample.cl.
template <class Scale>
struct UpsampleGeometry {
  int64_t large_strides[5];
  int64_t small_strides[5];
  Scale scale[3];
  int32_t channels;
  int32_t large[3];
  int32_t small[3];
};

// What follows the sizes in the schemas: align_corners where the mode has it,
// a scale for each axis, and the result.
struct Rest {
  bool align_corners = false;
  std::vector<std::optional<double>> scales;
  Tensor result;

  void take(bool value) { align_corners = value; }
  void take(const std::optional<double>& scale) { scales.push_back(scale); }
  void take(const Tensor& tensor) { result = tensor; }
};

template <class... T>
Rest rest_of(const T&... arguments) {
  Rest rest;
  (rest.take(arguments), ...);
  return rest;
}

template <class Scale>
Scale scale_of(
    Mode mode, const Rest& rest, int axis, int64_t small, int64_t large) {
  const std::optional<double> given = rest.scales[axis];
  if (mode == Mode::kNearest || mode == Mode::kNearestExact) {
    return at::native::compute_scales_value<Scale>(given, small, large);
  }
  // As torch's CPU, which copies an axis of the same size, whatever the scale.
  const bool is_byte = rest.result.scalar_type() == at::kByte;
  if (small == large && (mode == Mode::kLinear || is_byte)) {
    return 1;
  }
  return at::native::area_pixel_compute_scale<Scale>(
      small, large, rest.align_corners, given);
}

template <class Scale>
UpsampleGeometry<Scale> geometry_of(Mode mode,
                                    const Rest& rest,
                                    const Tensor& large,
                                    const Tensor& small) {
  const int spatial = static_cast<int>(large.dim()) - 2;
  UpsampleGeometry<Scale> geometry{};
  for (int d = 0; d < 2; ++d) {
    geometry.large_strides[d] = large.stride(d);
    geometry.small_strides[d] = small.stride(d);
  }
  for (int axis = 0; axis < 3; ++axis) {
    const int given = axis - (3 - spatial);
    const bool exists = given >= 0;
    geometry.large_strides[2 + axis] = exists ? large.stride(2 + given) : 0;
    geometry.small_strides[2 + axis] = exists ? small.stride(2 + given) : 0;
    const int64_t large_size = exists ? large.size(2 + given) : 1;
    const int64_t small_size = exists ? small.size(2 + given) : 1;
    geometry.large[axis] = static_cast<int32_t>(large_size);
    geometry.small[axis] = static_cast<int32_t>(small_size);
    geometry.scale[axis] =
        exists ? scale_of<Scale>(mode, rest, given, small_size, large_size)
               : Scale(1);
  }
  geometry.channels = int_size("upsample", large.size(1));
  return geometry;
}

template <class Scale>
struct UpsampleProblem {
  Mode mode;
  bool align_corners;
  bool separable;
  bool writes_large;
  const Tensor& read;
  const Tensor& written;
  UpsampleGeometry<Scale> geometry;

  bool is_on_cpu() const { return aten::device_of(written).is_cpu(); }
  size_t batches() const { return written.size(0); }
  size_t channels() const { return geometry.channels; }
  // Of what is written: its sizes, and rows of a channel.
  const int32_t* size() const {
    return writes_large ? geometry.large : geometry.small;
  }
  size_t plane() const { return static_cast<size_t>(size()[0]) * size()[1]; }
};

template <class Scale>
bool goes_by_rows(const UpsampleProblem<Scale>& p) {
  const UpsampleGeometry<Scale>& geometry = p.geometry;
  return p.is_on_cpu() && geometry.large_strides[4] == 1 &&
         geometry.small_strides[4] == 1 &&
         std::max(geometry.large[2], geometry.small[2]) <= kMostColumns;
}

template <class Scale>
void launch_rows(const UpsampleProblem<Scale>& p) {
  // Few rows share their taps with many planes.
  const int64_t planes = static_cast<int64_t>(p.batches() * p.channels());
  const int64_t planes_of_item =
      std::clamp<int64_t>(planes * p.plane() / kItems, 1, planes);
  launch(p.written,
         sources::upsample_rows,
         p.writes_large ? "upsample_forward_rows" : "upsample_backward_rows",
         {{"DTYPE", dtype_of(p.written)},
          {"MODE", static_cast<int>(p.mode)},
          {"ALIGN_CORNERS", p.align_corners},
          {"SEPARABLE", p.separable},
          {"ROUND", p.written.scalar_type() == at::kByte}},
         range(p.plane(), ceil_div(planes, planes_of_item), 1, 1),
         p.geometry,
         int_size("upsample", planes),
         static_cast<int32_t>(planes_of_item),
         arg(p.written),
         arg_in(p.read));
}

template <class Scale>
bool goes_by_pixels(const UpsampleProblem<Scale>& p) {
  const UpsampleGeometry<Scale>& geometry = p.geometry;
  return p.is_on_cpu() && p.written.is_floating_point() &&
         geometry.large_strides[1] == 1 && geometry.small_strides[1] == 1 &&
         geometry.channels > 1 &&
         (p.writes_large ||
          std::max(geometry.large[1], geometry.large[2]) <= kMostColumns);
}

template <class Scale>
void launch_pixels(const UpsampleProblem<Scale>& p) {
  const int64_t rows = static_cast<int64_t>(p.batches() * p.plane());
  const int64_t rows_of_item = std::clamp<int64_t>(rows / kItems, 1, rows);
  launch(
      p.written,
      sources::upsample_pixels,
      p.writes_large ? "upsample_forward_pixels" : "upsample_backward_pixels",
      {{"DTYPE", dtype_of(p.written)},
       {"MODE", static_cast<int>(p.mode)},
       {"ALIGN_CORNERS", p.align_corners},
       {"SEPARABLE", p.separable},
       {"HAS_DEPTH", p.geometry.large[0] > 1 || p.geometry.small[0] > 1},
       {"COLUMNS", kColumns},
       {"LANES", 16}},
      range(
          ceil_div(rows, rows_of_item), ceil_div(p.size()[2], kColumns), 1, 1),
      p.geometry,
      int_size("upsample", p.batches()),
      static_cast<int32_t>(rows_of_item),
      arg(p.written),
      arg_in(p.read));
}

template <class Scale>
void launch_elements(const UpsampleProblem<Scale>& p) {
  const Tensor& written = p.written;
  const bool channels_last = written.stride(1) == 1 && written.size(1) > 1;
  const size_t width = p.size()[2];
  const NDRange work =
      channels_last
          ? range(
                p.channels(), p.plane() * width, p.batches(), kWorkGroup, 1, 1)
          : range(
                width, p.plane(), p.batches() * p.channels(), kWorkGroup, 1, 1);
  launch(written,
         sources::upsample,
         p.writes_large ? "upsample_forward" : "upsample_backward",
         {{"DTYPE", dtype_of(written)},
          {"MODE", static_cast<int>(p.mode)},
          {"ALIGN_CORNERS", p.align_corners},
          {"SEPARABLE", p.separable},
          {"CHANNELS_LAST", channels_last},
          {"ROUND", written.scalar_type() == at::kByte},
          {"WG_SIZE", kWorkGroup}},
         work,
         p.geometry,
         arg(written),
         arg_in(p.read));
}

// torch's CPU has two kernels that find the nearest neighbour, which differ
// where a scale is given: one takes sizes that stay or double for scales of 1
// and 2, the other computes positions of float64 in float64. The first has
// gradients, channels that are innermost, and small images.
bool is_separable(const Tensor& read,
                  const Tensor& written,
                  bool writes_large) {
  if (!writes_large || read.dim() == 3) {
    return writes_large;
  }
  const bool is_image = read.dim() == 4;
  const bool is_channels_last =
      read.size(1) > 3 &&
      read.is_contiguous(is_image ? at::MemoryFormat::ChannelsLast
                                  : at::MemoryFormat::ChannelsLast3d);
  const bool is_small = is_image && written.size(2) + written.size(3) <= 128;
  return !is_channels_last && !is_small;
}

template <class Scale>
void launch_upsample(Mode mode,
                     const Rest& rest,
                     const Tensor& large,
                     const Tensor& small,
                     bool writes_large,
                     bool separable) {
  const UpsampleProblem<Scale> problem{
      mode,
      rest.align_corners,
      separable,
      writes_large,
      writes_large ? small : large,
      writes_large ? large : small,
      geometry_of<Scale>(mode, rest, large, small)};
  if (goes_by_rows(problem)) {
    launch_rows(problem);
  } else if (goes_by_pixels(problem)) {
    launch_pixels(problem);
  } else {
    launch_elements(problem);
  }
}

void resample(Mode mode,
              const Rest& rest,
              const Tensor& read,
              const Tensor& written,
              bool writes_large) {
  if (written.scalar_type() != at::kByte || !writes_large) {
    check_floating("upsample", written);
  }
  check_pixels("upsample", read);
  check_pixels("upsample", written);
  Tensor source = read;
  Tensor result = written;
  // Kernels for CPUs walk rows or pixels of both sides.
  const bool has_rows = written.stride(-1) == 1 && read.stride(-1) == 1;
  const bool has_pixels = written.stride(1) == 1 && read.stride(1) == 1;
  if (!has_rows && !has_pixels && aten::device_of(written).is_cpu()) {
    if (read.stride(1) == 1 && written.is_floating_point()) {
      // The gradient of bicubic is contiguous in torch, whatever it is of.
      result = at::empty_like(written, read.suggest_memory_format());
    } else {
      // copy: several elements are made of each
      source = read.contiguous(written.suggest_memory_format());
    }
  }
  const Tensor& large = writes_large ? result : source;
  const Tensor& small = writes_large ? source : result;
  const bool separable =
      (mode == Mode::kNearest || mode == Mode::kNearestExact) &&
      is_separable(read, written, writes_large);
  const bool is_by_float =
      (mode == Mode::kNearest || mode == Mode::kNearestExact) && !separable;
  if (written.scalar_type() == at::kDouble && !is_by_float) {
    launch_upsample<double>(mode, rest, large, small, writes_large, separable);
  } else {
    launch_upsample<float>(mode, rest, large, small, writes_large, separable);
  }
  if (!result.is_same(written)) {
    written.copy_(result);
  }
}

template <class Meta, Mode kMode>
struct Forward : Meta {
  template <class... T>
  void impl(const Tensor& self, IntArrayRef, const T&... arguments) {
    const Rest rest = rest_of(arguments...);
    if (rest.result.numel() > 0) {
      resample(kMode, rest, self, rest.result, true);
    }
  }
};

template <class Meta, Mode kMode>
struct Backward : Meta {
  template <class... T>
  void impl(const Tensor& grad_output,
            IntArrayRef,
            IntArrayRef,
            const T&... arguments) {
    const Rest rest = rest_of(arguments...);
    if (rest.result.numel() > 0) {
      resample(kMode, rest, grad_output, rest.result, false);
    }
  }
};

}  // namespace

#define UPSAMPLE(name, mode)                                         \
  structured<Forward<at::meta::structured_##name, mode>,             \
             at::_ops::name##_out>(m);                               \
  structured<Backward<at::meta::structured_##name##_backward, mode>, \
             at::_ops::name##_backward_grad_input>(m)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  UPSAMPLE(upsample_nearest1d, Mode::kNearest);
  UPSAMPLE(upsample_nearest2d, Mode::kNearest);
  UPSAMPLE(upsample_nearest3d, Mode::kNearest);
  UPSAMPLE(_upsample_nearest_exact1d, Mode::kNearestExact);
  UPSAMPLE(_upsample_nearest_exact2d, Mode::kNearestExact);
  UPSAMPLE(_upsample_nearest_exact3d, Mode::kNearestExact);
  UPSAMPLE(upsample_linear1d, Mode::kLinear);
  UPSAMPLE(upsample_bilinear2d, Mode::kLinear);
  UPSAMPLE(upsample_trilinear3d, Mode::kLinear);
  UPSAMPLE(upsample_bicubic2d, Mode::kCubic);
}

#undef UPSAMPLE

}  // namespace torch_opencl::ops
