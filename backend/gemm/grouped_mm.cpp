// _grouped_mm: products of groups whose ends the device knows.
#include "../../cpp/aten/launch.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "kernel_sources.h"

#include <ATen/native/GroupedMMUtils.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kTile = 32;        // TILE_ROWS of GPUs
constexpr int64_t kItem = 4;         // their ITEM
constexpr int64_t kDotColumns = 4;   // DOT_COLUMNS
constexpr int64_t kMostDotRows = 4;  // as many sums as registers hold
constexpr int64_t kMostRows = 8;

// left (rows, depth); right and out as in grouped_mm.cl.
struct Grouped {
  Tensor left;
  Tensor right;
  Tensor out;
  bool by_depth;
};

void launch_grouped(const Grouped& product,
                    const Tensor& ends,
                    const char* kernel,
                    int64_t tile_rows,
                    int64_t tile_columns,
                    int64_t lanes,
                    int64_t side) {
  const Tensor& left = product.left;
  const Tensor& right = product.right;
  const Tensor& out = product.out;
  const int64_t groups = ends.size(0);
  const int64_t rows = left.size(0);
  const int64_t columns = right.size(-1);
  // Groups may begin inside a tile, and rows be left behind the last.
  const int64_t row_tiles =
      ceil_div(rows, tile_rows) + (product.by_depth ? 0 : groups + 1);
  const int64_t column_tiles = ceil_div(columns, tile_columns);
  const bool by_depth = product.by_depth;
  launch(out,
         sources::grouped_mm,
         kernel,
         {{"DTYPE", dtype_of(out)},
          {"LANES", lanes},
          {"BY_DEPTH", by_depth},
          {"TILE_ROWS", tile_rows},
          {"BLOCK", 256}},
         range(row_tiles * side,
               column_tiles * side,
               by_depth ? groups : 1,
               side,
               side,
               1),
         arg_in(left),
         arg_in(right),
         arg(out),
         arg_in(ends),
         static_cast<int32_t>(groups),
         static_cast<int32_t>(rows),
         static_cast<int32_t>(left.size(1)),
         static_cast<int32_t>(columns),
         left.stride(0),
         left.stride(1),
         by_depth ? int64_t{0} : right.stride(0),
         right.stride(-2),
         right.stride(-1),
         by_depth ? out.stride(0) : int64_t{0},
         out.stride(-2),
         out.stride(-1));
}

void multiply(Grouped product, const Tensor& offsets) {
  if (product.out.numel() == 0) {
    return;
  }
  if (product.right.numel() == 0 || product.left.numel() == 0) {
    product.out.zero_();
    return;
  }
  const Tensor ends = offsets.contiguous();  // copy: few
  if (!aten::device_of(product.out).is_cpu()) {
    launch_grouped(
        product, ends, "grouped_tiles", kTile, kTile, 1, kTile / kItem);
    return;
  }
  const int64_t groups = product.by_depth ? 1 : ends.size(0);
  int64_t rows = 1;
  while (rows < kMostRows && rows * groups < product.left.size(0)) {
    rows *= 2;
  }
  if (product.right.stride(-1) == 1) {
    launch_grouped(
        product, ends, "grouped_columns", rows, 2 * kLanes, kLanes, 1);
    return;
  }
  if (product.left.stride(1) != 1) {
    product.left = product.left.contiguous();  // copy: vectors of the depth
  }
  if (product.right.stride(-2) != 1) {
    product.right = product.right.mT().contiguous().mT();  // copy: as above
  }
  launch_grouped(product,
                 ends,
                 "grouped_dots",
                 std::min(rows, kMostDotRows),
                 kDotColumns,
                 kLanes,
                 1);
}

// Shape and layout only: torch's checks read addresses of all but the CPU's.
Tensor on_meta(const Tensor& tensor) {
  return at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

Tensor _grouped_mm(const Tensor& self,
                   const Tensor& mat2,
                   const std::optional<Tensor>& offs,
                   const std::optional<Tensor>& bias,
                   std::optional<at::ScalarType> out_dtype) {
  const Tensor a = on_meta(self);
  const Tensor b = on_meta(mat2);
  at::native::_grouped_mm_validate_inputs(a, b, offs, bias, out_dtype);
  const at::ScalarType dtype =
      at::native::_resolve_grouped_mm_out_dtype(a, b, out_dtype);
  const Tensor shape =
      at::native::create_grouped_gemm_output_tensor(a, b, offs, dtype);
  Tensor out = at::empty_strided(
      shape.sizes(), shape.strides(), self.options().dtype(dtype));
  TORCH_CHECK(self.dtype() == mat2.dtype(),
              "expected m1 and m2 to have the same dtype, but got: ",
              self.dtype(),
              " != ",
              mat2.dtype());
  if (!offs.has_value()) {
    at::bmm_out(out, self, mat2);
  } else if (self.dim() == 2 && mat2.dim() == 2) {
    TORCH_CHECK(self.size(1) == mat2.size(0),
                "contraction dimension of mat_a and mat_b must match");
    multiply({self, mat2, out, true}, *offs);
  } else if (self.dim() == 2) {
    multiply({self, mat2, out, false}, *offs);
  } else {
    multiply({mat2.t(), self.mT(), out.t(), false}, *offs);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_grouped_mm", TORCH_FN(_grouped_mm));
}

}  // namespace torch_opencl::ops
