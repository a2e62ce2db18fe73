// cumsum and cumprod.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "kernel_sources.h"

#include <ATen/native/ReduceOps.h>
#include <ATen/ops/cumprod_native.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_native.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/empty_like.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

void scan(const char* kernel,
          const Tensor& result,
          const Tensor& self,
          int64_t dim) {
  if (result.numel() == 0) {
    return;
  }
  // copy: lines are found by two strides; the result has the promoted dtype
  const Tensor input = self.to(result.scalar_type()).contiguous();
  const Tensor out = result.is_contiguous()
                         ? result
                         : at::empty_like(result, at::MemoryFormat::Contiguous);
  const int64_t length = out.size(dim);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < out.dim(); ++d) {
    inner *= out.size(d);
  }
  const int64_t lines = out.numel() / length;
  launch(out,
         sources::scan,
         kernel,
         {{"DTYPE", dtype_of(out)},
          {out.is_floating_point() ? "IS_FLOATING" : "IS_INTEGRAL", 1}},
         range(lines, 16),
         arg(out),
         arg(input),
         static_cast<uint64_t>(lines),
         length,
         inner);
  if (!out.is_same(result)) {
    result.copy_(out);
  }
}

void cumsum(const Tensor& result, const Tensor& self, int64_t dim) {
  scan("cumulative_sum", result, self, dim);
}

void cumprod(const Tensor& result, const Tensor& self, int64_t dim) {
  scan("cumulative_product", result, self, dim);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::native::structured_cumsum_out, at::_ops::cumsum_out>(m);
  structured<at::native::structured_cumprod_out, at::_ops::cumprod_out>(m);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(cumsum_stub, &torch_opencl::ops::cumsum)
REGISTER_PRIVATEUSE1_DISPATCH(cumprod_stub, &torch_opencl::ops::cumprod)

}  // namespace at::native
