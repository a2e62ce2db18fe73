// max_unpool2d and max_unpool3d: each value goes to its index, the rest is 0.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../common/dtype_check.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::IntArrayRef;
using at::Tensor;
using aten::native;

void check_same_sizes(const Tensor& self, const Tensor& indices) {
  TORCH_CHECK(self.sizes() == indices.sizes(),
              "Expected shape of indices to be same as that of the input "
              "tensor (",
              self.sizes(),
              ") but got indices tensor with shape: ",
              indices.sizes());
}

void check_not_empty(const Tensor& self, int spatial) {
  for (int64_t i = self.dim() - spatial; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0,
                "max_unpooling",
                spatial,
                "d_forward_out_cpu(): Expected input to have non-zero size "
                "for non-batch dimensions, but got ",
                self.sizes(),
                " with dimension ",
                i,
                " being empty.");
  }
}

std::vector<int64_t> unpooled_sizes(const Tensor& self, IntArrayRef spatial) {
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(spatial.begin(), spatial.end(), sizes.end() - spatial.size());
  return sizes;
}

void unpool(const Tensor& self,
            const Tensor& indices,
            int spatial,
            Tensor& out) {
  out.zero_();
  if (self.numel() == 0 || out.numel() == 0) {
    return;
  }
  const int64_t first = self.dim() - spatial;
  // An out tensor with gaps has no flat form: it is written through another.
  const aten::ReportAs report_as(spatial == 2 ? "max_unpool2d"
                                              : "max_unpool3d");
  const Tensor flat = out.flatten(first);
  flat.scatter_(first, indices.flatten(first), self.flatten(first));
  if (!flat.is_alias_of(out)) {
    out.copy_(flat.view(out.sizes()));
  }
}

void check_unpool2d(const Tensor& self,
                    const Tensor& indices,
                    IntArrayRef output_size) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ",
              indices.scalar_type());
  TORCH_CHECK(output_size.size() == 2,
              "There should be exactly two elements (height, width) in "
              "output_size, but got ",
              output_size.size(),
              " elements.");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Input to max_unpooling2d should be a 3d or 4d Tensor, but got "
              "a tensor with ",
              self.dim(),
              " dimensions.");
  check_same_sizes(self, indices);
  check_not_empty(self, 2);
  check_floating("max_unpool2d", self);
}

void check_unpool3d(const Tensor& self,
                    const Tensor& indices,
                    IntArrayRef output_size,
                    IntArrayRef stride,
                    IntArrayRef padding) {
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64");
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5,
              "Input to max_unpooling3d should be a 4d or 5d Tensor, but got "
              "a tensor with ",
              self.dim(),
              " dimensions.");
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) "
              "in output_size, but got ",
              output_size.size(),
              " elements.");
  TORCH_CHECK(stride.size() == 3,
              "There should be exactly three elements (depth, height, width) "
              "in stride, but got: ",
              stride.size(),
              " elements.");
  TORCH_CHECK(padding.size() == 3,
              "There should be exactly three elements (depth, height, width) "
              "in padding, but got: ",
              padding.size(),
              " elements.");
  check_same_sizes(self, indices);
  check_not_empty(self, 3);
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ",
              stride);
  check_floating("max_unpool3d", self);
}

Tensor& max_unpool2d_out(const Tensor& self,
                         const Tensor& indices,
                         IntArrayRef output_size,
                         Tensor& out) {
  check_unpool2d(self, indices, output_size);
  at::native::resize_output(out, unpooled_sizes(self, output_size));
  unpool(self, indices, 2, out);
  return out;
}

Tensor max_unpool2d(const Tensor& self,
                    const Tensor& indices,
                    IntArrayRef output_size) {
  check_unpool2d(self, indices, output_size);
  Tensor out = at::empty(unpooled_sizes(self, output_size),
                         self.options(),
                         self.suggest_memory_format());
  unpool(self, indices, 2, out);
  return out;
}

Tensor& max_unpool3d_out(const Tensor& self,
                         const Tensor& indices,
                         IntArrayRef output_size,
                         IntArrayRef stride,
                         IntArrayRef padding,
                         Tensor& out) {
  check_unpool3d(self, indices, output_size, stride, padding);
  at::native::resize_output(out, unpooled_sizes(self, output_size));
  unpool(self, indices, 3, out);
  return out;
}

Tensor max_unpool3d(const Tensor& self,
                    const Tensor& indices,
                    IntArrayRef output_size,
                    IntArrayRef stride,
                    IntArrayRef padding) {
  Tensor out = at::empty({0}, self.options());
  return max_unpool3d_out(self, indices, output_size, stride, padding, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::max_unpool2d, &max_unpool2d>(m);
  native<at::_ops::max_unpool2d_out, &max_unpool2d_out>(m);
  native<at::_ops::max_unpool3d, &max_unpool3d>(m);
  native<at::_ops::max_unpool3d_out, &max_unpool3d_out>(m);
}

}  // namespace torch_opencl::ops
