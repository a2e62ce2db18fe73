#include "tall_skinny.h"

#include "kernel_sources.h"

#include "../common/integers.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// Products of so few columns take vectors along the depth.
constexpr int64_t kDotColumns = 8;

// What vectors hold, and sizes: rows of a work-item, columns of all panels and
// of one.
struct TallSkinnyTile {
  const char* vectors;
  int64_t rows;
  int64_t columns;
  int64_t width;
};

// Vectors run along whichever side of the long matrix is dense, where that has
// one.
TallSkinnyTile tile_of(const Product& product,
                       const Operand& left,
                       bool has_avx512_registers) {
  if (left.row.stride == 1 && left.depth.stride != 1 &&
      product.rows >= kTallSkinny) {
    // The totals of 256 rows and 16 columns fit a first-level cache.
    const int64_t width = power_of_two_from(product.columns);
    return {"ROWS_BY_VECTORS", 256, width, width};
  }
  if (left.depth.stride == 1 && product.columns <= kDotColumns &&
      product.depth >= kTallSkinny) {
    // The registers hold these sums, and the factors.
    const int64_t rows = !has_avx512_registers
                             ? std::max<int64_t>(6 / product.columns, 1)
                         : product.columns <= 4 ? 8
                                                : 4;
    return {"DEPTH_BY_VECTORS", rows, product.columns, 1};
  }
  return {"COLUMNS_BY_VECTORS",
          has_avx512_registers ? 16 : 6,
          kTallSkinny,
          kTallSkinny};
}

// A column that is a panel already.
bool is_panel(const at::TensorBase& on,
              const Product& product,
              const Operand& right) {
  return product.columns == 1 && product.batch == 1 &&
         right.depth.stride == 1 &&
         compute_type(on.scalar_type()) == on.scalar_type();
}

}  // namespace

void multiply_tall_skinny(const at::Tensor& on,
                          const Product& product,
                          const Operand& left,
                          const Operand& right,
                          const Output& output,
                          const Addend& addend,
                          bool is_large) {
  const bool is_wide = aten::device_of(on).info().has_avx512_registers;
  const TallSkinnyTile tile = tile_of(product, left, is_wide);
  at::Tensor panels;
  if (tile.width > 1 || !is_panel(on, product, right)) {
    panels = pack(on,
                  right,
                  product.batch,
                  product.columns,
                  product.depth,
                  tile.width,
                  is_large);
  }
  const at::ScalarType compute = compute_type(on.scalar_type());
  const auto stride = [is_large](int64_t value) {
    return index_argument(value, is_large);
  };
  with_addend(
      addend,
      compute,
      is_large,
      [&](const auto&... arguments) {
        launch(on,
               sources::tall_skinny,
               "tall_skinny",
               {{"DTYPE", dtype_of(on)},
                {tile.vectors, 1},
                {"LANES", 16},
                {"ROWS", tile.rows},
                {"COLUMNS", tile.columns},
                {"WIDTH", tile.width},
                {"STEPS", is_wide ? 8 : 4},
                {"INDEX64", is_large}},
               range(ceil_div(product.rows, tile.rows), product.batch, 1, 1),
               arguments...);
      },
      left.view,
      panels.defined() ? arg_in(panels) : right.view,
      output.view,
      addend.view,
      static_cast<int32_t>(product.rows),
      static_cast<int32_t>(product.columns),
      static_cast<int32_t>(product.depth),
      stride(left.row.stride),
      stride(left.depth.stride),
      stride(left.batch_stride),
      stride(output.row_stride),
      stride(output.column.stride),
      stride(output.batch_stride));
}

}  // namespace torch_opencl::ops
