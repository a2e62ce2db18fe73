// fractional_max_pool2d and fractional_max_pool3d.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "kernel_sources.h"

#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_ops.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/fractional_max_pool3d_backward_ops.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool3d_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

// geometry_t of fractional_max_pool.cl.
struct FractionalPoolGeometry {
  int64_t image_strides[5]{};
  int64_t pooled_strides[5]{};
  int64_t indices_strides[5]{};
  int32_t channels;
  int32_t image[3]{1, 1, 1};
  int32_t pooled[3]{1, 1, 1};
  int32_t kernel_size[3]{1, 1, 1};
};

// `value` as a tensor of this dtype would hold it.
double rounded_to(at::ScalarType type, double value) {
  switch (type) {
    case at::kHalf:
      return static_cast<c10::Half>(static_cast<float>(value));
    case at::kBFloat16:
      return static_cast<c10::BFloat16>(static_cast<float>(value));
    case at::kFloat:
      return static_cast<float>(value);
    default:
      return value;
  }
}

// Where the windows of one axis begin, (planes, outputs): as the CPU computes
// it, with every step rounded to the samples' dtype.
void write_starts(const Tensor& starts,
                  const Tensor& samples,
                  int64_t image,
                  int64_t kernel_size) {
  const int64_t count = starts.size(1);
  starts.select(1, count - 1).fill_(image - kernel_size);
  if (count == 1) {
    return;
  }
  const at::ScalarType type = samples.scalar_type();
  const double alpha =
      rounded_to(type,
                 rounded_to(type, static_cast<double>(image - kernel_size)) /
                     rounded_to(type, static_cast<double>(count - 1)));
  const Tensor sample = samples.unsqueeze(1);
  const Tensor begin =
      at::arange(count - 1, sample.options()).add(sample).mul_(alpha);
  starts.narrow(1, 0, count - 1)
      .copy_(begin.to(at::kInt).sub_(sample.mul(alpha).to(at::kInt)));
}

FractionalPoolGeometry geometry_of(const Tensor& self,
                                   IntArrayRef kernel_size,
                                   const Tensor& out,
                                   const Tensor& indices) {
  FractionalPoolGeometry geometry;
  geometry.channels = int_size("fractional_max_pool", self.size(1));
  for (int d = 0; d < 2; ++d) {
    geometry.image_strides[d] = self.stride(d);
    geometry.pooled_strides[d] = out.stride(d);
    geometry.indices_strides[d] = indices.stride(d);
  }
  const int spatial = static_cast<int>(self.dim()) - 2;
  for (int i = 0; i < spatial; ++i) {
    const int axis = 3 - spatial + i;
    geometry.image_strides[2 + axis] = self.stride(2 + i);
    geometry.pooled_strides[2 + axis] = out.stride(2 + i);
    geometry.indices_strides[2 + axis] = indices.stride(2 + i);
    geometry.image[axis] = int_size("fractional_max_pool", self.size(2 + i));
    geometry.pooled[axis] = static_cast<int32_t>(out.size(2 + i));
    geometry.kernel_size[axis] = static_cast<int32_t>(kernel_size[i]);
  }
  return geometry;
}

// Of all three axes, one after the other: a depth of 1 begins at 0.
Tensor starts_of(const Tensor& self,
                 IntArrayRef kernel_size,
                 const Tensor& random_samples,
                 const Tensor& out) {
  const int64_t spatial = self.dim() - 2;
  const int64_t planes = self.size(0) * self.size(1);
  int64_t outputs = 3 - spatial;
  for (int64_t i = 0; i < spatial; ++i) outputs += out.size(2 + i);
  Tensor starts = at::empty({planes, outputs}, self.options().dtype(at::kInt));
  if (spatial == 2) {
    starts.select(1, 0).zero_();
  }
  const Tensor samples =
      random_samples.narrow(0, 0, self.size(0)).reshape({planes, spatial});
  int64_t first = 3 - spatial;
  for (int64_t i = 0; i < spatial; ++i) {
    // Of two samples the first is the width's, of three the depth's.
    write_starts(starts.narrow(1, first, out.size(2 + i)),
                 samples.select(1, spatial == 2 ? 1 - i : i),
                 self.size(2 + i),
                 kernel_size[i]);
    first += out.size(2 + i);
  }
  return starts;
}

void forward(const char* name,
             int spatial,
             const Tensor& self,
             IntArrayRef kernel_size,
             const Tensor& random_samples,
             const Tensor& out,
             const Tensor& indices) {
  check_floating(name, self);
  if (out.numel() == 0) {
    return;
  }
  if (self.dim() == spatial + 1) {
    return forward(name,
                   spatial,
                   self.unsqueeze(0),
                   kernel_size,
                   random_samples,
                   out.unsqueeze(0),
                   indices.unsqueeze(0));
  }
  const Tensor starts = starts_of(self, kernel_size, random_samples, out);
  const int64_t width = out.size(-1);
  launch(out,
         sources::fractional_max_pool,
         "fractional_max_pool",
         {{"DTYPE", dtype_of(out)}, {"WG_SIZE", kWorkGroup}},
         range(width, out.numel() / width, kWorkGroup, 1),
         geometry_of(self, kernel_size, out, indices),
         arg(out),
         arg(indices),
         arg_in(self),
         arg_in(starts));
}

void backward(int spatial,
              const Tensor& grad_output,
              const Tensor& indices,
              const Tensor& grad_input) {
  grad_input.zero_();
  if (grad_input.numel() == 0 || grad_output.numel() == 0) {
    return;
  }
  const int64_t channel = grad_input.dim() - spatial;
  // A tensor with gaps has no flat form: it is written through another.
  const Tensor sums = grad_input.flatten(channel);
  sums.scatter_add_(
      channel, indices.flatten(channel), grad_output.flatten(channel));
  if (!sums.is_alias_of(grad_input)) {
    grad_input.copy_(sums.view(grad_input.sizes()));
  }
}

// `Precomputed` is what the meta function of the volumes hands on.
template <class Meta, int kSpatial, class... Precomputed>
struct fractional_max_pool_out : Meta {
  void impl(const Precomputed&...,
            const Tensor& self,
            IntArrayRef kernel_size,
            IntArrayRef,
            const Tensor& random_samples,
            const Tensor& out,
            const Tensor& indices) {
    at::native::fractional_max_pool_check_shape<kSpatial>(self, random_samples);
    forward(kSpatial == 2 ? "fractional_max_pool2d_out_frame"
                          : "fractional_max_pool3d_out_frame",
            kSpatial,
            self,
            kernel_size,
            random_samples,
            out,
            indices);
  }
};

struct fractional_max_pool2d_backward_out
    : at::meta::structured_fractional_max_pool2d_backward {
  void impl(const Tensor& grad_output,
            const Tensor&,
            IntArrayRef,
            IntArrayRef,
            const Tensor& indices,
            const Tensor& grad_input) {
    backward(2, grad_output, indices, grad_input);
  }
};

Tensor& fractional_max_pool3d_backward_out(const Tensor& grad_output,
                                           const Tensor& self,
                                           IntArrayRef,
                                           IntArrayRef output_size,
                                           const Tensor& indices,
                                           Tensor& grad_input) {
  constexpr const char* kAxes[] = {"time", "height", "width"};
  for (int i = 0; i < 3; ++i) {
    TORCH_CHECK(output_size[i] == grad_output.size(grad_output.dim() - 3 + i),
                "fractional_max_pool3d_backward_out(): gradOutput ",
                kAxes[i],
                " unexpected");
  }
  at::native::resize_output(grad_input, self.sizes());
  backward(3, grad_output, indices, grad_input);
  return grad_input;
}

Tensor fractional_max_pool3d_backward(const Tensor& grad_output,
                                      const Tensor& self,
                                      IntArrayRef kernel_size,
                                      IntArrayRef output_size,
                                      const Tensor& indices) {
  Tensor grad_input = at::empty({0}, self.options());
  return fractional_max_pool3d_backward_out(
      grad_output, self, kernel_size, output_size, indices, grad_input);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  using Meta3d = at::meta::structured_fractional_max_pool3d;
  structured<
      fractional_max_pool_out<at::meta::structured_fractional_max_pool2d, 2>,
      op::fractional_max_pool2d_output>(m);
  structured<fractional_max_pool_out<Meta3d, 3, Meta3d::meta_return_ty>,
             op::fractional_max_pool3d_output>(m);
  structured<fractional_max_pool2d_backward_out,
             op::fractional_max_pool2d_backward_grad_input>(m);
  native<at::_ops::fractional_max_pool3d_backward,
         &fractional_max_pool3d_backward>(m);
  native<at::_ops::fractional_max_pool3d_backward_grad_input,
         &fractional_max_pool3d_backward_out>(m);
}

}  // namespace torch_opencl::ops
