// im2col and col2im (torch.nn.functional.unfold and fold).
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "kernel_sources.h"

#include <ATen/native/Resize.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/col2im_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/im2col_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

// geometry_t of im2col.cl.
struct Im2colGeometry {
  int64_t image_strides[4];
  int64_t columns_strides[3];
  int32_t channels;
  int32_t image[2];
  int32_t pixels[2];
  int32_t kernel_size[2];
  int32_t dilation[2];
  int32_t padding[2];
  int32_t stride[2];
};

struct Window {
  Window(IntArrayRef kernel_size,
         IntArrayRef dilation,
         IntArrayRef padding,
         IntArrayRef stride)
      : kernel_size(kernel_size),
        dilation(dilation),
        padding(padding),
        stride(stride) {
    check_pair("kernel_size", kernel_size);
    check_pair("dilation", dilation);
    check_pair("padding", padding);
    check_pair("stride", stride);
  }
  static void check_pair(const char* name, IntArrayRef value) {
    TORCH_CHECK(value.size() == 2,
                "It is expected ",
                name,
                " equals to 2, but got size ",
                value.size());
  }
  int64_t pixels(int64_t size, int axis) const {
    return at::native::sliding_window_count(
        size, padding[axis], dilation[axis], kernel_size[axis], stride[axis]);
  }
  IntArrayRef kernel_size;
  IntArrayRef dilation;
  IntArrayRef padding;
  IntArrayRef stride;
};

void launch_columns(const char* kernel,
                    const Window& window,
                    const Tensor& image,
                    const Tensor& columns,
                    bool writes_image) {
  const Tensor& written = writes_image ? image : columns;
  const at::ScalarType type = (writes_image ? columns : image).scalar_type();
  check_implemented(at::isFloatingType(type) || type == at::kBool,
                    writes_image ? "col2im_out_cpu" : "im2col_out_cpu",
                    type);
  check_scalar_type(written, type);
  if (written.numel() == 0) {
    return;
  }
  if (image.dim() == 3) {
    return launch_columns(
        kernel, window, image.unsqueeze(0), columns.unsqueeze(0), writes_image);
  }
  Im2colGeometry geometry;
  for (int d = 0; d < 4; ++d) geometry.image_strides[d] = image.stride(d);
  for (int d = 0; d < 3; ++d) geometry.columns_strides[d] = columns.stride(d);
  geometry.channels = static_cast<int32_t>(image.size(1));
  for (int i = 0; i < 2; ++i) {
    const int64_t size = image.size(2 + i);
    geometry.image[i] = int_size(kernel, size);
    geometry.pixels[i] = int_size(kernel, window.pixels(size, i));
    geometry.kernel_size[i] = int_size(kernel, window.kernel_size[i]);
    geometry.dilation[i] = int_size(kernel, window.dilation[i]);
    geometry.padding[i] = int_size(kernel, window.padding[i]);
    // A longer one leads past the padded image.
    geometry.stride[i] = int_size(
        kernel, std::min(window.stride[i], size + 2 * window.padding[i]));
  }
  const int64_t inner = written.size(-1);
  const bool by_rows = !writes_image && aten::device_of(written).is_cpu();
  TORCH_CHECK_NOT_IMPLEMENTED(
      fits_int32(inner) && fits_int32(written.numel() / inner),
      kernel,
      ": opencl tensors with 2^31 rows or columns and more");
  launch(written,
         sources::im2col,
         by_rows ? "im2col_rows" : kernel,
         {{"DTYPE", dtype_of(written)},
          {"IS_BOOL", written.scalar_type() == at::kBool},
          {"WG_SIZE", kWorkGroup}},
         by_rows ? range(columns.size(1), columns.size(0), 1, 1)
                 : range(inner, written.numel() / inner, kWorkGroup, 1),
         geometry,
         arg(written),
         arg_in(writes_image ? columns : image));
}

Tensor& im2col_out(const Tensor& self,
                   IntArrayRef kernel_size,
                   IntArrayRef dilation,
                   IntArrayRef padding,
                   IntArrayRef stride,
                   Tensor& out) {
  const Window window(kernel_size, dilation, padding, stride);
  at::native::im2col_shape_check(self,
                                 Tensor(),
                                 kernel_size[0],
                                 kernel_size[1],
                                 dilation[0],
                                 dilation[1],
                                 padding[0],
                                 padding[1],
                                 stride[0],
                                 stride[1]);
  std::vector<int64_t> sizes = {
      self.size(-3) * kernel_size[0] * kernel_size[1],
      window.pixels(self.size(-2), 0) * window.pixels(self.size(-1), 1)};
  if (self.dim() == 4) {
    sizes.insert(sizes.begin(), self.size(0));
  }
  at::native::resize_output(out, sizes);
  launch_columns("im2col", window, self, out, false);
  return out;
}

Tensor im2col(const Tensor& self,
              IntArrayRef kernel_size,
              IntArrayRef dilation,
              IntArrayRef padding,
              IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return im2col_out(self, kernel_size, dilation, padding, stride, out);
}

Tensor& col2im_out(const Tensor& self,
                   IntArrayRef output_size,
                   IntArrayRef kernel_size,
                   IntArrayRef dilation,
                   IntArrayRef padding,
                   IntArrayRef stride,
                   Tensor& out) {
  Window::check_pair("output_size", output_size);
  const Window window(kernel_size, dilation, padding, stride);
  at::native::col2im_shape_check(self,
                                 Tensor(),
                                 output_size[0],
                                 output_size[1],
                                 kernel_size[0],
                                 kernel_size[1],
                                 dilation[0],
                                 dilation[1],
                                 padding[0],
                                 padding[1],
                                 stride[0],
                                 stride[1]);
  std::vector<int64_t> sizes = {
      self.size(-2) / (kernel_size[0] * kernel_size[1]),
      output_size[0],
      output_size[1]};
  if (self.dim() == 3) {
    sizes.insert(sizes.begin(), self.size(0));
  }
  at::native::resize_output(out, sizes);
  launch_columns("col2im", window, out, self, true);
  return out;
}

Tensor col2im(const Tensor& self,
              IntArrayRef output_size,
              IntArrayRef kernel_size,
              IntArrayRef dilation,
              IntArrayRef padding,
              IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return col2im_out(
      self, output_size, kernel_size, dilation, padding, stride, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  m.impl("im2col", TORCH_FN((WithFallback<op::im2col, &im2col>::call)));
  m.impl("im2col.out",
         TORCH_FN((WithFallback<op::im2col_out, &im2col_out>::call)));
  m.impl("col2im", TORCH_FN((WithFallback<op::col2im, &col2im>::call)));
  m.impl("col2im.out",
         TORCH_FN((WithFallback<op::col2im_out, &col2im_out>::call)));
}

}  // namespace torch_opencl::ops
