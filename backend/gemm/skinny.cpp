#include "skinny.h"

#include "kernel_sources.h"

#include <bit>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

void multiply_skinny(const at::Tensor& on,
                     const Product& product,
                     const Operand& left,
                     const Operand& right,
                     const Output& output,
                     const Addend& addend,
                     bool is_large) {
  // Vectors run along whichever side of the long matrix is dense, where that
  // has one; 256 rows' totals of 16 columns fit a first-level cache.
  const bool is_row_major =
      left.row.stride == 1 && left.depth.stride != 1 && product.rows >= kSkinny;
  const int64_t rows = is_row_major ? 256 : 16;
  const int64_t width =
      is_row_major ? static_cast<int64_t>(
                         std::bit_ceil(static_cast<uint64_t>(product.columns)))
                   : kSkinny;
  const at::Tensor panel = pack(on,
                                right,
                                product.batch,
                                product.columns,
                                product.depth,
                                width,
                                is_large);
  const at::ScalarType compute = compute_type(on.scalar_type());
  const auto stride = [is_large](int64_t value) {
    return index_argument(value, is_large);
  };
  launch(on,
         sources::skinny,
         "skinny",
         {{"DTYPE", dtype_of(on)},
          {"IS_ROW_MAJOR", is_row_major},
          {"LANES", 16},
          {"ROWS", rows},
          {"WIDTH", width},
          {"IS_LARGE", is_large}},
         range(ceil_div(product.rows, rows), product.batch, 1, 1),
         left.view,
         arg(panel),
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
         stride(output.batch_stride),
         stride(addend.row_stride),
         stride(addend.column_stride),
         stride(addend.batch_stride),
         scalar_argument(addend.alpha, compute),
         scalar_argument(addend.beta, compute));
}

}  // namespace torch_opencl::ops
