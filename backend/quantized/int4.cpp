// Products by weights of four bits, packed as CUDA packs them
// (int4_layout.clh): _convert_weight_to_int4pack, _weight_int4pack_mm; and
// XPU's plain packing, _weight_int4pack_mm_with_scales_and_zeros.
#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "kernel_sources.h"
#include "rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Of depths that innerKTiles counts.
constexpr int64_t kKTileSize = 16;
constexpr int64_t kTileLines = 8;

bool is_group_size(int64_t size) {
  return size == 32 || size == 64 || size == 128 || size == 256;
}

void check_activation(const char* name, const Tensor& self) {
  TORCH_CHECK(self.scalar_type() == at::kBFloat16 ||
                  self.scalar_type() == at::kHalf ||
                  self.scalar_type() == at::kFloat,
              name,
              " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.is_contiguous(), name, " : expect A to be contiguous.");
  TORCH_CHECK(self.dim() == 2, name, " : expect A to be 2D tensor.");
}

void check_weight(const char* name, const Tensor& mat2, int64_t dimensions) {
  TORCH_CHECK(
      mat2.scalar_type() == at::kInt, name, " : expect B to be int32 tensor.");
  TORCH_CHECK(mat2.is_contiguous(), name, " : expect B to be contiguous.");
  TORCH_CHECK(mat2.dim() == dimensions,
              name,
              " : expect B to be ",
              dimensions,
              "D tensor.");
}

void check_groups(const char* name, int64_t depth, int64_t qGroupSize) {
  TORCH_CHECK(qGroupSize > 0 && depth % qGroupSize == 0,
              name,
              ": expect A.size(1) to be a multiple of qGroupSize, got ",
              depth,
              " and ",
              qGroupSize);
}

// Of _weight_int4pack_mm.
void check_packed(const char* name,
                  const Tensor& self,
                  const Tensor& mat2,
                  int64_t qGroupSize,
                  const Tensor& qScaleAndZeros) {
  check_activation(name, self);
  check_weight(name, mat2, 4);
  const int64_t inner = mat2.size(3) * 2;
  const int64_t depth = self.size(1);
  const int64_t lines = mat2.size(0) * kTileLines;
  TORCH_CHECK((inner == 2 || inner == 4 || inner == 8) && mat2.size(2) == 32 &&
                  mat2.size(1) * inner * kKTileSize == depth,
              name,
              " : expect B to be weights of ",
              depth,
              " columns packed by _convert_weight_to_int4pack, but got sizes ",
              mat2.sizes());
  TORCH_CHECK(is_group_size(qGroupSize),
              name,
              ": expect qGroupSize to be 32, 64, 128 or 256, got ",
              qGroupSize);
  check_groups(name, depth, qGroupSize);
  TORCH_CHECK(qScaleAndZeros.dim() == 3 &&
                  qScaleAndZeros.size(0) == depth / qGroupSize &&
                  qScaleAndZeros.size(1) == lines &&
                  qScaleAndZeros.size(2) == 2,
              name,
              ": expect qScaleAndZeros to be 3d tensor with sizes [",
              depth / qGroupSize,
              ", ",
              lines,
              ", 2]");
  check_scalar_type(qScaleAndZeros, self.scalar_type());
}

// Of _weight_int4pack_mm_with_scales_and_zeros.
void check_plain(const char* name,
                 const Tensor& self,
                 const Tensor& mat2,
                 int64_t qGroupSize,
                 const Tensor& qScale,
                 const Tensor& qZeros) {
  check_activation(name, self);
  check_weight(name, mat2, 2);
  const int64_t depth = self.size(1);
  const int64_t lines = mat2.size(0);
  TORCH_CHECK(
      mat2.size(1) * 8 == depth, name, " : expect B.size(1) == ", depth / 8);
  check_groups(name, depth, qGroupSize);
  for (const Tensor& tensor : {qScale, qZeros}) {
    TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == depth / qGroupSize &&
                    tensor.size(1) == lines,
                name,
                ": expect qScale and qZeros to be 2d tensors with sizes [",
                depth / qGroupSize,
                ", ",
                lines,
                "]");
  }
  TORCH_CHECK(qZeros.scalar_type() == at::kChar,
              name,
              " : expect qZeros to be int8 tensor.");
  check_scalar_type(qScale, self.scalar_type());
}

Tensor _convert_weight_to_int4pack(const Tensor& in, int64_t innerKTiles) {
  TORCH_CHECK(in.dim() == 2);
  TORCH_CHECK(in.dtype() == at::kByte);
  TORCH_CHECK(in.is_contiguous());
  TORCH_CHECK(innerKTiles == 2 || innerKTiles == 4 || innerKTiles == 8);
  const int64_t depth = in.size(1) * 2;
  const int64_t tile_depth = innerKTiles * kKTileSize;
  TORCH_CHECK(depth % tile_depth == 0,
              "_convert_weight_to_int4pack: expected the depth ",
              depth,
              " to be a multiple of innerKTiles * 16 = ",
              tile_depth);
  const Tensor out = at::empty({ceil_div(in.size(0), kTileLines),
                                depth / tile_depth,
                                32,
                                innerKTiles / 2},
                               in.options().dtype(at::kInt));
  if (out.numel() != 0) {
    launch(out,
           sources::int4_pack,
           "int4_pack",
           {{"HALF", innerKTiles / 2}},
           range(out.numel(), 64),
           arg_in(in),
           arg(out),
           static_cast<int32_t>(in.size(0)),
           static_cast<int32_t>(depth),
           static_cast<uint64_t>(out.numel()));
  }
  return out;
}

void multiply_few(const Tensor& self,
                  const Tensor& weight,
                  int64_t group,
                  const Tensor& scales,
                  const Tensor& out) {
  const bool is_cpu = aten::device_of(out).is_cpu();
  const int64_t few = self.size(0);
  const int64_t tiles = weight.size(0);
  constexpr int64_t kGroup = 128;
  // Tiles that share what a work-item loads of the rows.
  const int64_t lines = few <= 2 ? 2 : 1;
  launch(
      out,
      is_cpu ? sources::int4_cpu : sources::int4_gpu,
      "int4_few",
      {{"DTYPE", dtype_of(self)},
       {"FEW", few},
       {"HALF", weight.size(3)},
       {"GROUP", group},
       {"LANES", is_cpu ? kLanes : 1},
       {"LINES", is_cpu ? 1 : lines}},
      is_cpu ? range(tiles, 1) : range(ceil_div(tiles, lines) * kGroup, kGroup),
      arg_in(self),
      arg_in(weight),
      arg_in(scales),
      arg(out),
      static_cast<int32_t>(out.size(1)),
      static_cast<int32_t>(self.size(1)));
}

// To be written by a kernel, but for sums of nothing, which are zeros.
Tensor output_of(const Tensor& self, int64_t lines) {
  const std::vector<int64_t> sizes{self.size(0), lines};
  return self.size(1) == 0 ? at::zeros(sizes, self.options())
                           : at::empty(sizes, self.options());
}

Tensor _weight_int4pack_mm(const Tensor& self,
                           const Tensor& mat2,
                           int64_t qGroupSize,
                           const Tensor& qScaleAndZeros) {
  check_packed(__func__, self, mat2, qGroupSize, qScaleAndZeros);
  const int64_t depth = self.size(1);
  const int64_t lines = mat2.size(0) * kTileLines;
  const Tensor out = output_of(self, lines);
  if (out.numel() == 0 || depth == 0) {
    return out;
  }
  const Tensor scales =
      qScaleAndZeros.contiguous();  // copy: pairs are read as they are stored
  if (self.size(0) <= kFewQuantizedRows) {
    multiply_few(self, mat2, qGroupSize, scales, out);
    return out;
  }
  multiply_dequantized(self, out, [&](int64_t first, const Tensor& weights) {
    launch(out,
           sources::dequantize,
           "dequantize_int4",
           {{"DTYPE", dtype_of(scales)},
            {"HALF", mat2.size(3)},
            {"GROUP", qGroupSize}},
           range(depth / 8, weights.size(0), 64, 1),
           arg_in(mat2),
           arg_in(scales),
           arg(weights),
           static_cast<int32_t>(first),
           static_cast<int32_t>(lines),
           static_cast<int32_t>(depth));
  });
  return out;
}

Tensor _weight_int4pack_mm_with_scales_and_zeros(const Tensor& self,
                                                 const Tensor& mat2,
                                                 int64_t qGroupSize,
                                                 const Tensor& qScale,
                                                 const Tensor& qZeros) {
  check_plain(__func__, self, mat2, qGroupSize, qScale, qZeros);
  const int64_t depth = self.size(1);
  const int64_t lines = mat2.size(0);
  const Tensor out = output_of(self, lines);
  if (out.numel() == 0 || depth == 0) {
    return out;
  }
  const Tensor scales = qScale.contiguous();  // copy: read as they are stored
  const Tensor zeros = qZeros.contiguous();   // copy: read as they are stored
  multiply_dequantized(self, out, [&](int64_t first, const Tensor& weights) {
    launch(out,
           sources::dequantize,
           "dequantize_plain_int4",
           {{"DTYPE", dtype_of(scales)}},
           range(depth / 8, weights.size(0), 64, 1),
           arg_in(mat2),
           arg_in(scales),
           arg_in(zeros),
           arg(weights),
           static_cast<int32_t>(first),
           static_cast<int32_t>(lines),
           static_cast<int32_t>(depth),
           static_cast<int32_t>(qGroupSize));
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_weight_to_int4pack", &_convert_weight_to_int4pack);
  m.impl("_weight_int4pack_mm", &_weight_int4pack_mm);
  m.impl("_weight_int4pack_mm_with_scales_and_zeros",
         &_weight_int4pack_mm_with_scales_and_zeros);
}

}  // namespace torch_opencl::ops
