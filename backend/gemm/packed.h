// Matrix products over packed panels: what gemm and convolution share.
#pragma once

#include "../common/integers.h"
#include "../common/kernel_text.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// DEPTH_BLOCK of panels.clh.
constexpr int64_t kDepthBlock = 128;

// An index of two levels: (i / size) * outer_stride + (i % size) * stride.
struct Levels {
  int64_t size;
  int64_t outer_stride;
  int64_t stride;
};
// An index of one level.
inline Levels level(int64_t size, int64_t stride) {
  return {size > 0 ? size : 1, 0, stride};
}

// A strided operand; `rows` is M of the left and N of the right one.
struct Operand {
  aten::BufferView view;
  Levels row;
  Levels depth;
  int64_t batch_stride;
};

enum class InPlace { kNeither, kLeft, kRight };

struct Product {
  int64_t batch;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  // Products that are summed before they are added to a total.
  int64_t sum_block = 256;
  // The operand that lies as it is, in rows so far apart: the right one's of
  // columns, the left one's of depths that follow each other. See
  // is_right_in_place and is_left_in_place.
  InPlace in_place = InPlace::kNeither;
  int64_t in_place_stride = 0;
  int64_t in_place_batch_stride = 0;
  bool shares_panels = true;  // the batch, those of the other operand
};

struct Output {
  aten::BufferView view;
  int64_t row_stride;
  Levels column;
  int64_t batch_stride;
};

// out = alpha * A B + beta * self; beta == 0 does not read self.
struct Addend {
  aten::BufferView view;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  int64_t batch_stride = 0;
  at::Scalar alpha = 1;
  at::Scalar beta = 0;
};

// Widths of the operands' panels on the device of `on`, for a product of so
// many rows or columns: rows and columns of a tile.
int64_t left_width(const at::TensorBase& on, int64_t rows);
int64_t right_width(const at::TensorBase& on, int64_t columns);
// Rows, of a tile of `width`, whose sums a CPU's registers hold together:
// ROWS_AT_ONCE.
int64_t rows_at_once(const at::TensorBase& on, int64_t width);

// Tiles that a work-item of a CPU computes, of `multiplications` each; at best
// whole blocks of `of_block`, which block the depth.
int64_t tiles_at_once(const at::TensorBase& on,
                      int64_t tiles,
                      int64_t batch,
                      int64_t multiplications,
                      int64_t of_block = 1);
// A left operand in place has at least so many rows, and left_width() is then
// no more than its rows: nothing pads the last tile.
constexpr int64_t kFewestRows = 8;
// Rows of tiles that read a left operand where it lies before the next ones do.
constexpr int64_t kRowTilesOfStrip = 8;

// Panels pay where more rows or columns of the product read them; those of few
// lines, which the nearest cache holds for a tile, later.
constexpr int64_t kReadersInPlace = 512;
constexpr int64_t kFewLines = 32;
constexpr int64_t kReadersOfFewLines = 1024;

// True where reading a right operand of `depth` lines of `columns` columns as
// it lies, for `rows` rows of the product, saves more than panels would.
bool is_right_in_place(const at::TensorBase& on,
                       int64_t rows,
                       int64_t columns,
                       int64_t depth);

// The same of a left operand of `rows` rows.
bool is_left_in_place(const at::TensorBase& on, int64_t rows);

// Panels of compute type for `rows` x `depth` matrices.
at::Tensor empty_panels(const at::TensorBase& on,
                        int64_t batch,
                        int64_t rows,
                        int64_t depth,
                        int64_t width);

// `is_large` selects 64-bit offsets into the operand.
at::Tensor pack(const at::TensorBase& on,
                const Operand& operand,
                int64_t batch,
                int64_t rows,
                int64_t depth,
                int64_t width,
                bool is_large);

// The same of a weight of less than 2^31 elements, kept while it stands
// (packed_weight.h). The operand's view is of the weight's element `first`.
at::Tensor pack_kept(const at::Tensor& weight,
                     int64_t first,
                     Operand operand,
                     int64_t batch,
                     int64_t rows,
                     int64_t depth,
                     int64_t width);

// Raises where kernels, which count lines in ints, do not reach a side.
void check_sides(const Product& product);

// `on` names device and dtype; a side with batch 1 may serve every batch only
// by being packed for each.
void multiply(const at::TensorBase& on,
              const Product& product,
              const at::Tensor& left,
              const at::Tensor& right,
              const Output& output,
              const Addend& addend,
              bool is_large);

// True when offsets into any of the tensors need 64 bits.
bool needs_long_index(std::initializer_list<at::TensorBase> tensors);

// A stride argument of a kernel built with INDEX64.
inline ScalarArgument index_argument(int64_t value, bool is_large) {
  return scalar_argument(value, is_large ? at::kLong : at::kInt);
}

// Calls function(arguments...) with how the addend lies and its factors, in the
// type `compute`: parameters of all kernels of products.
template <class Function, class... Arguments>
void with_addend(const Addend& addend,
                 at::ScalarType compute,
                 bool is_large,
                 const Function& function,
                 const Arguments&... arguments) {
  function(arguments...,
           index_argument(addend.row_stride, is_large),
           index_argument(addend.column_stride, is_large),
           index_argument(addend.batch_stride, is_large),
           scalar_argument(addend.alpha, compute),
           scalar_argument(addend.beta, compute));
}

// The same with how the output lies ahead of them: OUT_PARAMETERS of
// panels.clh.
template <class Function, class... Arguments>
void with_output(const Output& output,
                 const Addend& addend,
                 at::ScalarType compute,
                 bool is_large,
                 const Function& function,
                 const Arguments&... arguments) {
  with_addend(addend,
              compute,
              is_large,
              function,
              arguments...,
              index_argument(output.row_stride, is_large),
              static_cast<int32_t>(output.column.size),
              index_argument(output.column.outer_stride, is_large),
              index_argument(output.column.stride, is_large),
              index_argument(output.batch_stride, is_large));
}

}  // namespace torch_opencl::ops
