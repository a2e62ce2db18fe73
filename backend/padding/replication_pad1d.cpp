#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "kernel_sources.h"

#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad1d_ops.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kWorkGroup = 64;

std::array<int64_t, 4> strides_of(const Tensor& rows) {
  return {rows.stride(0), rows.stride(1), rows.stride(2), 0};
}

// `in` and `out` are (channels, columns) or (batches, channels, columns).
void pad(const char* kernel,
         const Tensor& in,
         const Tensor& out,
         at::IntArrayRef padding) {
  check_floating("replication_pad1d", in);
  if (out.numel() == 0) {
    return;
  }
  if (in.dim() == 2) {
    return pad(kernel, in.unsqueeze(0), out.unsqueeze(0), padding);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      fits_int32(in.numel()) && fits_int32(out.numel()),
      "replication_pad1d: opencl tensors of 2^31 elements and more");
  const std::array<int32_t, 4> sizes = {static_cast<int32_t>(out.size(0)),
                                        static_cast<int32_t>(out.size(1)),
                                        static_cast<int32_t>(out.size(2)),
                                        0};
  launch(out,
         sources::replication_pad1d,
         kernel,
         {{"DTYPE", dtype_of(out)}, {"WG_SIZE", kWorkGroup}},
         range(out.size(2), out.size(0) * out.size(1), kWorkGroup, 1),
         arg(out),
         arg(in),
         sizes,
         strides_of(out),
         strides_of(in),
         static_cast<int32_t>(in.size(2)),
         static_cast<int32_t>(padding[0]));
}

struct replication_pad1d_out : at::meta::structured_replication_pad1d {
  void impl(const Tensor& self, at::IntArrayRef padding, const Tensor& out) {
    pad("replication_pad1d_forward", self, out, padding);
  }
};

struct replication_pad1d_backward_out
    : at::meta::structured_replication_pad1d_backward {
  void impl(const Tensor& grad_output,
            const Tensor&,
            at::IntArrayRef padding,
            const Tensor& grad_input) {
    pad("replication_pad1d_backward", grad_output, grad_input, padding);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<replication_pad1d_out, at::_ops::replication_pad1d_out>(m);
  structured<replication_pad1d_backward_out,
             at::_ops::replication_pad1d_backward_grad_input>(m);
}

}  // namespace torch_opencl::ops
