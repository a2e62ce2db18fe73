// nonzero, masked_select, equal.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "kernel_sources.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/nonzero_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

constexpr int64_t kBlock = 1024;  // BLOCK of mask.cl

// Linear positions of the nonzero elements in logical order. Their number is
// the shape of the result, so the host waits for it.
Tensor nonzero_positions(const Tensor& mask) {
  // copy: positions count along the logical order
  const Tensor dense = mask.contiguous();
  const at::TensorOptions options = mask.options().dtype(at::kLong);
  const int64_t count = dense.numel();
  if (count == 0) {
    return at::empty({0}, options);
  }
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const Tensor starts = at::empty({blocks + 1}, options);
  const Define dtype("DTYPE", dtype_of(dense));
  launch(dense,
         sources::mask,
         "count_blocks",
         {dtype},
         range(blocks, 1),
         arg(dense),
         arg(starts),
         count);
  launch(dense,
         sources::mask,
         "scan_blocks",
         {dtype},
         range(1, 1),
         arg(starts),
         blocks);
  const int64_t total = starts[blocks].item<int64_t>();
  const Tensor positions = at::empty({total}, options);
  if (total > 0) {
    launch(dense,
           sources::mask,
           "write_blocks",
           {dtype},
           range(blocks, 1),
           arg(dense),
           arg(starts),
           arg(positions),
           count);
  }
  return positions;
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got "
              "scalar type ",
              out.scalar_type());
  const Tensor positions = nonzero_positions(self);
  at::native::resize_output(out, {positions.numel(), self.dim()});
  int64_t divisor = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    Tensor coordinate = positions.div(Scalar(divisor), "floor");
    if (d > 0) {
      coordinate.remainder_(self.size(d));
    }
    out.select(1, d).copy_(coordinate);
    divisor *= self.size(d);
  }
  return out;
}

Tensor nonzero(const Tensor& self) {
  Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_out(self, out);
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(),
      "masked_select(): self and result must have the same scalar type");
  const auto [all, chosen] = at::expand_outplace(self, mask);
  const Tensor positions = nonzero_positions(*chosen);
  const Tensor values = all->reshape({-1}).index_select(0, positions);
  at::native::resize_output(out, values.sizes());
  return out.copy_(values);
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  Tensor out = at::empty({0}, self.options());
  return masked_select_out(self, mask, out);
}

bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Cannot compare two tensors on different devices. Got: ",
              self.device(),
              " and ",
              other.device());
  if (self.sizes() != other.sizes()) {
    return false;
  }
  return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", &WithFallback<at::_ops::nonzero, &nonzero>::call);
  m.impl("nonzero.out",
         &WithFallback<at::_ops::nonzero_out, &nonzero_out>::call);
  m.impl("masked_select",
         &WithFallback<at::_ops::masked_select, &masked_select>::call);
  m.impl("masked_select.out",
         &WithFallback<at::_ops::masked_select_out, &masked_select_out>::call);
  m.impl("equal", &WithFallback<at::_ops::equal, &equal>::call);
}

}  // namespace torch_opencl::ops
