// nonzero, masked_select, masked_scatter_, equal.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/nonzero_ops.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

constexpr int64_t kBlock = 1024;       // BLOCK of mask.cl
constexpr int64_t kGroupBlock = 4096;  // and of mask_groups.cl
constexpr int kWorkGroup = 128;        // its WG_SIZE

// nonzero_positions on GPUs, of a contiguous mask that is not empty.
Tensor positions_by_groups(const Tensor& mask) {
  const at::TensorOptions options = mask.options().dtype(at::kLong);
  const int64_t count = mask.numel();
  const int64_t blocks = ceil_div(count, kGroupBlock);
  const Define dtype("DTYPE", dtype_of(mask));
  const NDRange work = range(blocks * kWorkGroup, kWorkGroup);
  const Tensor counts = at::empty({blocks}, options);
  launch(mask,
         sources::mask_groups,
         "count_groups",
         {dtype, {"BLOCK", kGroupBlock}},
         work,
         arg_in(mask),
         arg(counts),
         count);
  const Tensor ends = blocks > 1 ? counts.cumsum(0) : counts;
  const Tensor positions =
      at::empty({ends[blocks - 1].item<int64_t>()}, options);
  if (positions.numel() > 0) {
    launch(mask,
           sources::mask_groups,
           "write_groups",
           {dtype, {"BLOCK", kGroupBlock}},
           work,
           arg_in(mask),
           arg_in(ends),
           arg(positions),
           count);
  }
  return positions;
}

// Linear positions of the nonzero elements in logical order. Their number is
// the shape of the result, so the host waits for it.
Tensor nonzero_positions(const Tensor& mask) {
  if (mask.is_complex()) {
    return nonzero_positions(mask.ne(0));
  }
  const Tensor dense = mask.contiguous();  // copy: positions count logically
  const at::TensorOptions options = mask.options().dtype(at::kLong);
  const int64_t count = dense.numel();
  if (count == 0) {
    return at::empty({0}, options);
  }
  if (!aten::device_of(dense).is_cpu()) {
    return positions_by_groups(dense);
  }
  const int64_t blocks = ceil_div(count, kBlock);
  const Tensor starts = at::empty({blocks + 1}, options);
  const Define dtype("DTYPE", dtype_of(dense));
  launch(dense,
         sources::mask,
         "count_blocks",
         {dtype},
         range(blocks, 1),
         arg_in(dense),
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
           arg_in(dense),
           arg_in(starts),
           arg(positions),
           count);
  }
  return positions;
}

void write_coordinates(const Tensor& self,
                       const Tensor& positions,
                       const Tensor& out) {
  if (positions.numel() == 0) {
    return;
  }
  const bool is_cpu = aten::device_of(positions).is_cpu();
  int64_t divisor = 1;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    if (!is_cpu) {
      const Tensor column = out.select(1, d);
      launch(positions,
             sources::mask_groups,
             "coordinates",
             {{"DTYPE", dtype_of(positions)}, {"BLOCK", kGroupBlock}},
             range(positions.numel(), kWorkGroup),
             arg_in(positions),
             arg(column),
             static_cast<uint64_t>(positions.numel()),
             column.stride(0),
             divisor,
             self.size(d));
      divisor *= self.size(d);
      continue;
    }
    Tensor coordinate = positions.div(Scalar(divisor), "floor");
    if (d > 0) {
      coordinate.remainder_(self.size(d));
    }
    out.select(1, d).copy_(coordinate);
    divisor *= self.size(d);
  }
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got "
              "scalar type ",
              out.scalar_type());
  const Tensor positions = nonzero_positions(self);
  at::native::resize_output(out, {positions.numel(), self.dim()});
  write_coordinates(self, positions, out);
  return out;
}

// Column by column in memory, as on the CPU.
Tensor nonzero(const Tensor& self) {
  const Tensor positions = nonzero_positions(self);
  const Tensor out = at::empty({self.dim(), positions.numel()},
                               self.options().dtype(at::kLong))
                         .t();
  write_coordinates(self, positions, out);
  return out;
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(),
      "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
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

// Takes the first elements of `source` in the order of the mask.
Tensor& masked_scatter(Tensor& self, const Tensor& mask, const Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes "
              "but got ",
              self.scalar_type(),
              " and ",
              source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool,
              "masked_scatter_ only supports boolean masks, but got mask with "
              "dtype ",
              mask.scalar_type());
  at::assert_no_internal_overlap(self);
  const auto chosen = at::expand_inplace(self, mask, "masked_scatter_");
  const Tensor positions = nonzero_positions(*chosen);
  const int64_t count = positions.numel();
  TORCH_CHECK(source.numel() >= count,
              "masked_scatter: expected self and source to have the same "
              "number of elements or source to have more: ",
              count,
              " are chosen and source has ",
              source.numel());
  if (count == 0) {
    return self;
  }
  Tensor flat = self.contiguous();  // copy: positions count logically
  flat = flat.view({-1});
  flat.index_copy_(0, positions, source.reshape({-1}).narrow(0, 0, count));
  return self.copy_(flat.view(self.sizes()));
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
  m.impl("nonzero",
         &WithFallback<at::_ops::nonzero, &nonzero, Numbers::kRealAndComplex>::
             call);
  m.impl("nonzero.out",
         &WithFallback<at::_ops::nonzero_out,
                       &nonzero_out,
                       Numbers::kRealAndComplex>::call);
  m.impl("masked_select",
         &WithFallback<at::_ops::masked_select,
                       &masked_select,
                       Numbers::kRealAndComplex>::call);
  m.impl("masked_select.out",
         &WithFallback<at::_ops::masked_select_out,
                       &masked_select_out,
                       Numbers::kRealAndComplex>::call);
  m.impl("masked_scatter_",
         &WithFallback<at::_ops::masked_scatter_,
                       &masked_scatter,
                       Numbers::kRealAndComplex>::call);
  m.impl(
      "equal",
      &WithFallback<at::_ops::equal, &equal, Numbers::kRealAndComplex>::call);
}

}  // namespace torch_opencl::ops
