// Products by int8 weights: _weight_int8pack_mm, _int_mm.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "kernel_sources.h"
#include "rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// self (rows, depth) by the lines of weight (lines, depth), whose elements
// follow each other; out is (rows, lines).
void multiply_few(const Tensor& self,
                  const Tensor& weight,
                  const Tensor& scales,
                  const Tensor& out) {
  const runtime::Device& device = aten::device_of(out);
  const bool is_int = out.scalar_type() == at::kInt;
  const int64_t few = self.size(0);
  const int64_t lines = out.size(1);
  // As many sums as registers hold.
  const bool is_wide = device.info().has_avx512_registers;
  const int64_t rows = !is_wide   ? std::max<int64_t>(6 / few, 1)
                       : few <= 2 ? 8
                                  : 4;
  const int64_t cpu_items = ceil_div(lines, rows);
  constexpr int64_t kGroup = 128;
  constexpr int64_t kGroupLines = 8;
  launch(out,
         device.is_cpu() ? sources::int8_cpu : sources::int8_gpu,
         "int8_few",
         {{"DTYPE", is_int ? runtime::DType::kFloat32 : dtype_of(out)},
          {"X_DTYPE", dtype_of(self)},
          {"IS_INT", is_int},
          {"FEW", few},
          {"LANES", device.is_cpu() ? kLanes : 1},
          {"ROWS", device.is_cpu() ? rows : 1}},
         device.is_cpu() ? range(cpu_items, 1)
                         : range(ceil_div(lines, kGroupLines) * kGroup, kGroup),
         arg_in(self),
         arg_in(weight),
         arg_in(scales),
         arg(out),
         static_cast<int32_t>(lines),
         static_cast<int32_t>(self.size(1)),
         self.stride(0),
         weight.stride(0),
         scales.defined() ? scales.stride(0) : int64_t{0});
}

Tensor _weight_int8pack_mm(const Tensor& self,
                           const Tensor& mat2,
                           const Tensor& scales) {
  const int64_t rows = self.size(0);
  const int64_t lines = mat2.size(0);
  const int64_t depth = self.size(1);
  TORCH_CHECK(self.scalar_type() == at::kBFloat16 ||
                  self.scalar_type() == at::kHalf ||
                  self.scalar_type() == at::kFloat,
              __func__,
              " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.dim() == 2, __func__, " : expect A to be 2D tensor.");
  TORCH_CHECK(self.stride(1) == 1,
              __func__,
              " : A must be contiguous on the last dimension.");
  TORCH_CHECK(mat2.scalar_type() == at::kChar,
              __func__,
              " : expect B to be int8 tensor.");
  TORCH_CHECK(mat2.is_contiguous(), __func__, " : expect B to be contiguous.");
  TORCH_CHECK(mat2.dim() == 2 && mat2.size(1) == depth,
              __func__,
              " : expect B.size(1) == ",
              depth);
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == lines,
              __func__,
              " : expect scales to be 1d tensor with size ",
              lines);
  check_scalar_type(scales, self.scalar_type());
  const Tensor out = at::empty({rows, lines}, self.options());
  if (out.numel() == 0) {
    return out;
  }
  if (rows <= kFewQuantizedRows) {
    multiply_few(self, mat2, scales, out);
    return out;
  }
  multiply_dequantized(self, out, [&](int64_t first, const Tensor& weights) {
    if (depth == 0) {
      return;
    }
    const int64_t count = weights.size(0);
    const Tensor own = scales.narrow(0, first, count);
    launch(out,
           sources::dequantize,
           "dequantize_int8",
           {{"DTYPE", dtype_of(scales)}},
           range(depth, count, 64, 1),
           arg_in(mat2.narrow(0, first, count)),
           arg_in(own),
           arg(weights),
           static_cast<int32_t>(depth),
           own.stride(0));
  });
  return out;
}

// Products of bytes of so many depths have a sum that float32 holds exactly.
int64_t exact_depth(const Tensor& self) {
  return self.scalar_type() == at::kByte ? 512 : 1024;
}

void int_mm(const Tensor& self, const Tensor& mat2, const Tensor& out) {
  const int64_t depth = self.size(1);
  if (out.numel() == 0) {
    return;
  }
  if (depth == 0) {
    out.zero_();
    return;
  }
  const bool are_lines = self.stride(1) == 1 && mat2.stride(0) == 1;
  if (self.size(0) <= kFewQuantizedRows && are_lines) {
    multiply_few(self, mat2.t(), {}, out);
    return;
  }
  const aten::NoAutocast guard;
  const Tensor left = self.to(at::kFloat);
  const Tensor right = mat2.to(at::kFloat);
  const int64_t step = exact_depth(self);
  for (int64_t first = 0; first < depth; first += step) {
    const int64_t count = std::min(step, depth - first);
    const Tensor sums =
        at::mm(left.narrow(1, first, count), right.narrow(0, first, count));
    if (first == 0) {
      out.copy_(sums);
    } else {
      out.add_(sums.to(at::kInt));
    }
  }
}

// Texts of ATen's CPU kernel.
Tensor& _int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  constexpr const char* kName = "int_mm_out_cpu";
  TORCH_CHECK(self.dim() == 2,
              kName,
              ": Expected self to be of dimension 2 but got ",
              self.dim());
  TORCH_CHECK(mat2.dim() == 2,
              kName,
              ": Expected mat2 to be of dimension 2 but got ",
              mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0),
              kName,
              ": self.size(1) needs to match mat2.size(0) but got ",
              self.size(1),
              " and ",
              mat2.size(0));
  TORCH_CHECK(
      self.scalar_type() == at::kChar || self.scalar_type() == at::kByte,
      kName,
      ": Expected self dtype to be int8 or uint8 but got ",
      self.dtype());
  TORCH_CHECK(mat2.scalar_type() == at::kChar,
              kName,
              ": Expected mat2 dtype to be of type int8 but got ",
              mat2.dtype());
  TORCH_CHECK(out.scalar_type() == at::kInt,
              kName,
              ": Expected result dtype to be of type kInt but got ",
              out.dtype());
  TORCH_CHECK(out.size(0) == self.size(0),
              kName,
              ": Expected result.size(0) to be ",
              self.size(0),
              " but got ",
              out.size(0));
  TORCH_CHECK(out.size(1) == mat2.size(1),
              kName,
              ": Expected result.size(1) to be ",
              mat2.size(1),
              " but got ",
              out.size(1));
  TORCH_CHECK(out.dim() == 2,
              kName,
              ": Expected result to be of dimension 2 but got ",
              out.dim());
  TORCH_CHECK(
      out.is_contiguous(), kName, ": Expected result to be contiguous.");
  int_mm(self, mat2, out);
  return out;
}

Tensor _int_mm(const Tensor& self, const Tensor& mat2) {
  Tensor out =
      at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
  return _int_mm_out(self, mat2, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_weight_int8pack_mm", &_weight_int8pack_mm);
  m.impl("_int_mm", &_int_mm);
  m.impl("_int_mm.out", &_int_mm_out);
}

}  // namespace torch_opencl::ops
