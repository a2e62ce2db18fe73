// Average pooling, adaptive too, with its gradients.
#include "geometry.h"
#include "kernel_sources.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"

#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>
#include <ATen/ops/adaptive_avg_pool2d_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_ops.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/empty.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

// 0 where there is none.
int64_t divisor_of(const std::optional<int64_t>& divisor_override) {
  TORCH_CHECK(!divisor_override.has_value() || *divisor_override != 0,
              "divisor must be not zero");
  return divisor_override.value_or(0);
}

// Each window one element, which is its own average.
bool is_identity(const Window& window, int64_t divisor) {
  return !window.adaptive && window.kernel_size == Axes{1, 1, 1} &&
         window.stride == Axes{1, 1, 1} && window.padding == Axes{0, 0, 0} &&
         divisor == 0;
}

// Where a CPU's windows lie too far apart for vectors of outputs, or differ,
// and COLUMNS of pool_rows.cl hold a line of the image.
bool adds_columns(const Window& window,
                  int spatial,
                  const Tensor& self,
                  const Tensor& out) {
  return aten::device_of(out).is_cpu() &&
         at::isFloatingType(out.scalar_type()) &&
         !Plane(out, spatial).channels_last() && self.stride(-1) == 1 &&
         self.size(-1) <= 1024 && (window.adaptive || window.stride[2] > 2);
}

void forward(const Window& window,
             int spatial,
             bool count_include_pad,
             const std::optional<int64_t>& divisor_override,
             const Tensor& self,
             const Tensor& out) {
  const int64_t divisor = divisor_of(divisor_override);
  if (out.numel() == 0) {
    return;
  }
  if (is_identity(window, divisor)) {
    out.copy_(self);
    return;
  }
  const bool by_columns = adds_columns(window, spatial, self, out);
  const PoolWork work =
      by_columns ? PoolWork::kRows : forward_work(out, window, spatial);
  launch_pool(work == PoolWork::kRows ? sources::pool_rows : sources::avg_pool,
              by_columns                ? "avg_pool_columns"
              : work == PoolWork::kRows ? "avg_pool_rows"
                                        : "avg_pool",
              window,
              spatial,
              {.pooled = out, .image = self, .work = work},
              count_include_pad,
              divisor,
              arg(out),
              arg_in(self));
}

// True where windows of two or four columns tile a CPU's images, so that a
// gradient is copied to each of its window's elements.
bool repeats_gradients(const Window& window,
                       int spatial,
                       const Tensor& grad_output,
                       const Tensor& grad_input) {
  const int32_t columns = window.kernel_size[2];
  const int64_t rank = grad_input.dim();
  const auto is_tiled = [&](int64_t axis) {
    return grad_input.size(rank - 2 + axis) ==
           grad_output.size(rank - 2 + axis) * window.kernel_size[1 + axis];
  };
  return spatial == 2 && !window.adaptive && (columns == 2 || columns == 4) &&
         grad_output.size(-1) >= kLongRow &&
         window.stride == window.kernel_size &&
         window.padding == Axes{0, 0, 0} && is_tiled(0) && is_tiled(1) &&
         aten::device_of(grad_input).is_cpu() && grad_input.is_contiguous() &&
         at::isFloatingType(grad_input.scalar_type());
}

void repeat_gradients(const Window& window,
                      int64_t divisor,
                      const Tensor& grad_output,
                      const Tensor& grad_input) {
  const int64_t rows = window.kernel_size[1], columns = window.kernel_size[2];
  const Tensor share = grad_output.div(divisor ? divisor : rows * columns)
                           .unsqueeze(-2)
                           .unsqueeze(-1);
  std::vector<int64_t> sizes = grad_output.sizes().vec();
  sizes.insert(sizes.end() - 1, rows);
  sizes.push_back(columns);
  grad_input.view(sizes).copy_(share.expand(sizes));
}

void backward(const Window& window,
              int spatial,
              bool count_include_pad,
              const std::optional<int64_t>& divisor_override,
              const Tensor& grad_output,
              const Tensor& grad_input) {
  const int64_t divisor = divisor_of(divisor_override);
  if (grad_input.numel() == 0) {
    return;
  }
  if (is_identity(window, divisor)) {
    grad_input.copy_(grad_output);
    return;
  }
  PoolTensors tensors{
      .pooled = grad_output, .image = grad_input, .writes_image = true};
  tensors.work = backward_work(tensors, window, spatial);
  if (tensors.work != PoolWork::kTiles &&
      repeats_gradients(window, spatial, grad_output, grad_input)) {
    repeat_gradients(window, divisor, grad_output, grad_input);
    return;
  }
  const auto [source, kernel_name] =
      tensors.work == PoolWork::kBand
          ? std::pair(&sources::pool_gather, "avg_pool_backward_gather")
      : tensors.work == PoolWork::kTiles
          ? std::pair(&sources::pool_tiles, "pool_backward_tiles")
      : tensors.work == PoolWork::kPlane
          ? std::pair(&sources::pool_scatter, "avg_pool_backward_scatter")
          : std::pair(&sources::avg_pool, "avg_pool_backward");
  launch_pool(*source,
              kernel_name,
              window,
              spatial,
              tensors,
              count_include_pad,
              divisor,
              arg(grad_input),
              arg_in(grad_output));
}

void adaptive_forward(int spatial, const Tensor& self, const Tensor& out) {
  forward(adaptive_window(self, out, spatial),
          spatial,
          false,
          std::nullopt,
          self,
          out);
}

void adaptive_backward(int spatial,
                       const Tensor& grad_output,
                       const Tensor& grad_input) {
  backward(adaptive_window(grad_input, grad_output, spatial),
           spatial,
           false,
           std::nullopt,
           grad_output,
           grad_input);
}

void check_avg(const char* name, const Tensor& self) {
  check_implemented(
      at::isFloatingType(self.scalar_type()) || self.scalar_type() == at::kLong,
      name,
      self.scalar_type());
}

// `Precomputed` is what the meta function of the images hands on.
template <class Meta, int kSpatial, class... Precomputed>
struct avg_pool_out : Meta {
  void impl(const Precomputed&...,
            const Tensor& self,
            IntArrayRef kernel_size,
            IntArrayRef stride,
            IntArrayRef padding,
            bool,
            bool count_include_pad,
            std::optional<int64_t> divisor_override,
            const Tensor& out) {
    check_avg(kSpatial == 2 ? "avg_pool2d" : "avg_pool3d_out_frame", self);
    forward(window_of(kSpatial, kernel_size, stride, padding),
            kSpatial,
            count_include_pad,
            divisor_override,
            self,
            out);
  }
};

template <class Meta, int kSpatial>
struct avg_pool_backward_out : Meta {
  void impl(const Tensor& grad_output,
            const Tensor&,
            IntArrayRef kernel_size,
            IntArrayRef stride,
            IntArrayRef padding,
            bool,
            bool count_include_pad,
            std::optional<int64_t> divisor_override,
            const Tensor& grad_input) {
    check_avg(
        kSpatial == 2 ? "avg_pool2d_backward" : "avg_pool3d_backward_out_frame",
        grad_input);
    backward(window_of(kSpatial, kernel_size, stride, padding),
             kSpatial,
             count_include_pad,
             divisor_override,
             grad_output,
             grad_input);
  }
};

template <int kSpatial>
std::string adaptive_name(const char* suffix) {
  return "adaptive_avg_pool" + std::to_string(kSpatial) + "d" + suffix;
}

template <int kSpatial>
std::vector<int64_t> adaptive_sizes(const Tensor& self,
                                    IntArrayRef output_size) {
  const std::string name = adaptive_name<kSpatial>("");
  TORCH_CHECK(
      output_size.size() == kSpatial, name, ": output_size must be ", kSpatial);
  TORCH_CHECK(self.dim() == kSpatial + 1 || self.dim() == kSpatial + 2,
              name,
              "(): Expected ",
              kSpatial + 1,
              "D or ",
              kSpatial + 2,
              "D tensor, but got ",
              self.sizes());
  for (int64_t i = self.dim() - kSpatial; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0,
                name,
                "(): Expected input to have non-zero size for non-batch "
                "dimensions, but input has sizes ",
                self.sizes(),
                " with dimension ",
                i,
                " being empty");
  }
  check_floating(name.c_str(), self);
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), sizes.end() - kSpatial);
  return sizes;
}

// As on CPU and CUDA, only 2-d adaptive pooling keeps channels_last.
template <int kSpatial>
at::MemoryFormat adaptive_format(const Tensor& self) {
  return kSpatial == 2 ? self.suggest_memory_format()
                       : at::MemoryFormat::Contiguous;
}

template <int kSpatial>
Tensor adaptive_avg_pool(const Tensor& self, IntArrayRef output_size) {
  Tensor out = at::empty(adaptive_sizes<kSpatial>(self, output_size),
                         self.options(),
                         adaptive_format<kSpatial>(self));
  adaptive_forward(kSpatial, self, out);
  return out;
}

template <int kSpatial>
Tensor& adaptive_avg_pool_out(const Tensor& self,
                              IntArrayRef output_size,
                              Tensor& out) {
  const auto sizes = adaptive_sizes<kSpatial>(self, output_size);
  TORCH_CHECK(self.dtype() == out.dtype(),
              "expected dtype ",
              self.dtype(),
              " for `output` but got dtype ",
              out.dtype());
  at::native::resize_output(out, sizes);
  adaptive_forward(kSpatial, self, out);
  return out;
}

template <int kSpatial>
void check_adaptive_backward(const Tensor& grad_output, const Tensor& self) {
  const std::string name = adaptive_name<kSpatial>("_backward");
  at::native::adaptive_pool_empty_output_check(grad_output, name.c_str());
  TORCH_CHECK(grad_output.dim() == self.dim(),
              name,
              "(): Expected dimensions ",
              self.dim(),
              " for `grad_output` but got dimensions ",
              grad_output.dim());
  TORCH_CHECK(grad_output.dtype() == self.dtype(),
              name,
              "(): Expected dtype ",
              self.dtype(),
              " for `grad_output` but got dtype ",
              grad_output.dtype());
  check_floating(name.c_str(), self);
}

template <int kSpatial>
Tensor adaptive_avg_pool_backward(const Tensor& grad_output,
                                  const Tensor& self) {
  check_adaptive_backward<kSpatial>(grad_output, self);
  Tensor grad_input =
      at::empty(self.sizes(), self.options(), adaptive_format<kSpatial>(self));
  adaptive_backward(kSpatial, grad_output, grad_input);
  return grad_input;
}

Tensor& adaptive_avg_pool3d_backward_out(const Tensor& grad_output,
                                         const Tensor& self,
                                         Tensor& grad_input) {
  check_adaptive_backward<3>(grad_output, self);
  check_scalar_type(grad_input, self.scalar_type());
  at::native::resize_output(grad_input, self.sizes());
  adaptive_backward(3, grad_output, grad_input);
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Meta2d = at::meta::structured_avg_pool2d;
  structured<avg_pool_out<Meta2d, 2, Meta2d::meta_return_ty>,
             at::_ops::avg_pool2d_out>(m);
  structured<avg_pool_out<at::meta::structured_avg_pool3d, 3>,
             at::_ops::avg_pool3d_out>(m);
  structured<avg_pool_backward_out<at::meta::structured_avg_pool2d_backward, 2>,
             at::_ops::avg_pool2d_backward_grad_input>(m);
  structured<avg_pool_backward_out<at::meta::structured_avg_pool3d_backward, 3>,
             at::_ops::avg_pool3d_backward_grad_input>(m);
  native<at::_ops::_adaptive_avg_pool2d, &adaptive_avg_pool<2>>(m);
  native<at::_ops::_adaptive_avg_pool3d, &adaptive_avg_pool<3>>(m);
  native<at::_ops::adaptive_avg_pool2d_out, &adaptive_avg_pool_out<2>>(m);
  native<at::_ops::adaptive_avg_pool3d_out, &adaptive_avg_pool_out<3>>(m);
  native<at::_ops::_adaptive_avg_pool2d_backward,
         &adaptive_avg_pool_backward<2>>(m);
  native<at::_ops::_adaptive_avg_pool3d_backward,
         &adaptive_avg_pool_backward<3>>(m);
  native<at::_ops::adaptive_avg_pool3d_backward_grad_input,
         &adaptive_avg_pool3d_backward_out>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
