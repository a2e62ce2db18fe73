// Max pooling, adaptive too, with its gradients.
#include "geometry.h"
#include "kernel_sources.h"

#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"

#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

void forward(const char* name,
             const Window& window,
             int spatial,
             const Tensor& self,
             const Tensor& out,
             const Tensor& indices) {
  check_number(name, self);
  check_scalar_type(out, self.scalar_type());
  check_scalar_type(indices, at::kLong);
  if (out.numel() == 0) {
    return;
  }
  const PoolWork work = forward_work(out, window, spatial);
  const bool by_rows = work == PoolWork::kRows;
  launch_pool(by_rows ? sources::pool_rows : sources::max_pool,
              by_rows ? "max_pool_rows" : "max_pool",
              window,
              spatial,
              {.pooled = out, .image = self, .indices = indices, .work = work},
              false,
              arg(out),
              arg(indices),
              arg_in(self));
}

void backward(const char* name,
              const Window& window,
              int spatial,
              const Tensor& grad_output,
              const Tensor& indices,
              const Tensor& grad_input) {
  check_floating(name, grad_output);
  check_scalar_type(grad_input, grad_output.scalar_type());
  check_scalar_type(indices, at::kLong);
  if (grad_input.numel() == 0) {
    return;
  }
  PoolTensors tensors{.pooled = grad_output,
                      .image = grad_input,
                      .indices = indices,
                      .writes_image = true};
  tensors.work = backward_work(tensors, window, spatial);
  const auto [source, kernel_name] =
      tensors.work == PoolWork::kBand
          ? std::pair(&sources::pool_gather, "max_pool_backward_gather")
      : tensors.work == PoolWork::kTiles
          ? std::pair(&sources::pool_tiles, "pool_backward_tiles")
      : tensors.work == PoolWork::kPlane
          ? std::pair(&sources::pool_scatter, "max_pool_backward_scatter")
          : std::pair(&sources::max_pool, "max_pool_backward");
  launch_pool(*source,
              kernel_name,
              window,
              spatial,
              tensors,
              false,
              arg(grad_input),
              arg_in(indices),
              arg_in(grad_output),
              reports(grad_input, name));
}

struct max_pool2d_out : at::meta::structured_max_pool2d_with_indices {
  void impl(const Tensor& self,
            IntArrayRef kernel_size,
            IntArrayRef stride,
            IntArrayRef padding,
            IntArrayRef dilation,
            bool,
            const Tensor& out,
            const Tensor& indices) {
    forward("max_pool2d",
            window_of(2, kernel_size, stride, padding, dilation),
            2,
            self,
            out,
            indices);
  }
};

struct max_pool2d_backward_out
    : at::meta::structured_max_pool2d_with_indices_backward {
  void impl(const Tensor& grad_output,
            const Tensor&,
            IntArrayRef kernel_size,
            IntArrayRef stride,
            IntArrayRef padding,
            IntArrayRef dilation,
            bool,
            const Tensor& indices,
            const Tensor& grad_input) {
    backward("max_pool2d_backward",
             window_of(2, kernel_size, stride, padding, dilation),
             2,
             grad_output,
             indices,
             grad_input);
  }
};

template <class Meta, int kSpatial>
struct adaptive_max_pool_out : Meta {
  void impl(const Tensor& self,
            IntArrayRef,
            const Tensor& out,
            const Tensor& indices) {
    const char* name =
        kSpatial == 2 ? "adaptive_max_pool2d" : "adaptive_max_pool3d_cpu";
    check_floating(name, self);
    forward(name,
            adaptive_window(self, out, kSpatial),
            kSpatial,
            self,
            out,
            indices);
  }
};

template <class Meta, int kSpatial>
struct adaptive_max_pool_backward_out : Meta {
  void impl(const Tensor& grad_output,
            const Tensor&,
            const Tensor& indices,
            const Tensor& grad_input) {
    backward(kSpatial == 2 ? "adaptive_max_pool2d_backward"
                           : "adaptive_max_pool3d_backward",
             adaptive_window(grad_input, grad_output, kSpatial),
             kSpatial,
             grad_output,
             indices,
             grad_input);
  }
};

// Of the 3-d max pooling problem, what PyTorch's other backends check.
struct Pool3d {
  Pool3d(const Tensor& self,
         IntArrayRef kernel_size,
         IntArrayRef stride,
         IntArrayRef padding,
         IntArrayRef dilation,
         bool ceil_mode) {
    TORCH_CHECK(kernel_size.size() == 1 || kernel_size.size() == 3,
                "max_pool3d: kernel_size must either be a single int, or a "
                "tuple of three ints");
    TORCH_CHECK(stride.empty() || stride.size() == 1 || stride.size() == 3,
                "max_pool3d: stride must either be omitted, a single int, or a "
                "tuple of three ints");
    TORCH_CHECK(padding.size() == 1 || padding.size() == 3,
                "max_pool3d: padding must either be a single int, or a tuple "
                "of three ints");
    TORCH_CHECK(dilation.size() == 1 || dilation.size() == 3,
                "max_pool3d: dilation must be either a single int, or a tuple "
                "of three ints");
    TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
                "non-empty 4D or 5D (batch mode) tensor expected for input");
    window = window_of(3, kernel_size, stride, padding, dilation);
    sizes = self.sizes().vec();
    for (int i = 0; i < 3; ++i) {
      int64_t& size = sizes[self.dim() - 3 + i];
      size = at::native::pooling_output_shape<int64_t>(size,
                                                       window.kernel_size[i],
                                                       window.padding[i],
                                                       window.stride[i],
                                                       window.dilation[i],
                                                       ceil_mode);
    }
  }
  void check(const Tensor& self, const char* name) const {
    const auto& [k, s, p, d, adaptive] = window;
    at::native::pool3d_shape_check(self,
                                   self.size(-4),
                                   k[0],
                                   k[1],
                                   k[2],
                                   s[0],
                                   s[1],
                                   s[2],
                                   p[0],
                                   p[1],
                                   p[2],
                                   d[0],
                                   d[1],
                                   d[2],
                                   self.size(-3),
                                   self.size(-2),
                                   self.size(-1),
                                   sizes[self.dim() - 3],
                                   sizes[self.dim() - 2],
                                   sizes[self.dim() - 1],
                                   name);
  }
  void check_backward(const Tensor& self,
                      const Tensor& grad_output,
                      const Tensor& indices) const {
    check(self, "max_pool3d_with_indices_backward");
    for (int64_t i = 1; i <= 4; ++i) {
      const int64_t dim = self.dim() - i;
      at::check_dim_size(grad_output, self.dim(), dim, sizes[dim]);
      at::check_dim_size(indices, self.dim(), dim, sizes[dim]);
    }
  }
  Window window;
  std::vector<int64_t> sizes;
};

std::tuple<Tensor&, Tensor&> max_pool3d_with_indices_out(
    const Tensor& self,
    IntArrayRef kernel_size,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool ceil_mode,
    Tensor& out,
    Tensor& indices) {
  const Pool3d pool(self, kernel_size, stride, padding, dilation, ceil_mode);
  pool.check(self, "max_pool3d_with_indices()");
  at::native::resize_output(out, pool.sizes);
  at::native::resize_output(indices, pool.sizes);
  forward("max_pool3d", pool.window, 3, self, out, indices);
  return {out, indices};
}

// Volumes without a batch are not images in channels_last.
at::MemoryFormat format_of_volumes(const Tensor& self) {
  return self.dim() == 5 ? self.suggest_memory_format()
                         : at::MemoryFormat::Contiguous;
}

std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& self,
                                                   IntArrayRef kernel_size,
                                                   IntArrayRef stride,
                                                   IntArrayRef padding,
                                                   IntArrayRef dilation,
                                                   bool ceil_mode) {
  const Pool3d pool(self, kernel_size, stride, padding, dilation, ceil_mode);
  pool.check(self, "max_pool3d_with_indices()");
  const auto format = format_of_volumes(self);
  Tensor out = at::empty(pool.sizes, self.options(), format);
  Tensor indices =
      at::empty(pool.sizes, self.options().dtype(at::kLong), format);
  forward("max_pool3d", pool.window, 3, self, out, indices);
  return {out, indices};
}

Tensor& max_pool3d_with_indices_backward_out(const Tensor& grad_output,
                                             const Tensor& self,
                                             IntArrayRef kernel_size,
                                             IntArrayRef stride,
                                             IntArrayRef padding,
                                             IntArrayRef dilation,
                                             bool ceil_mode,
                                             const Tensor& indices,
                                             Tensor& grad_input) {
  const Pool3d pool(self, kernel_size, stride, padding, dilation, ceil_mode);
  pool.check_backward(self, grad_output, indices);
  at::native::resize_output(grad_input, self.sizes());
  backward(
      "max_pool3d_backward", pool.window, 3, grad_output, indices, grad_input);
  return grad_input;
}

Tensor max_pool3d_with_indices_backward(const Tensor& grad_output,
                                        const Tensor& self,
                                        IntArrayRef kernel_size,
                                        IntArrayRef stride,
                                        IntArrayRef padding,
                                        IntArrayRef dilation,
                                        bool ceil_mode,
                                        const Tensor& indices) {
  Tensor grad_input =
      at::empty(self.sizes(), self.options(), format_of_volumes(self));
  return max_pool3d_with_indices_backward_out(grad_output,
                                              self,
                                              kernel_size,
                                              stride,
                                              padding,
                                              dilation,
                                              ceil_mode,
                                              indices,
                                              grad_input);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<max_pool2d_out, at::_ops::max_pool2d_with_indices_out>(m);
  structured<max_pool2d_backward_out,
             at::_ops::max_pool2d_with_indices_backward_grad_input>(m);
  structured<adaptive_max_pool_out<at::meta::structured_adaptive_max_pool2d, 2>,
             at::_ops::adaptive_max_pool2d_out>(m);
  structured<adaptive_max_pool_out<at::meta::structured_adaptive_max_pool3d, 3>,
             at::_ops::adaptive_max_pool3d_out>(m);
  structured<adaptive_max_pool_backward_out<
                 at::meta::structured_adaptive_max_pool2d_backward,
                 2>,
             at::_ops::adaptive_max_pool2d_backward_grad_input>(m);
  structured<adaptive_max_pool_backward_out<
                 at::meta::structured_adaptive_max_pool3d_backward,
                 3>,
             at::_ops::adaptive_max_pool3d_backward_grad_input>(m);
  native<at::_ops::max_pool3d_with_indices, &max_pool3d_with_indices>(m);
  native<at::_ops::max_pool3d_with_indices_out, &max_pool3d_with_indices_out>(
      m);
  native<at::_ops::max_pool3d_with_indices_backward,
         &max_pool3d_with_indices_backward>(m);
  native<at::_ops::max_pool3d_with_indices_backward_grad_input,
         &max_pool3d_with_indices_backward_out>(m);
}

}  // namespace
}  // namespace torch_opencl::ops
