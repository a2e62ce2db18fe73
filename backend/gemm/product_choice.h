// Which member of the family of products for GPUs a problem takes, and among
// how many work-groups its depth is split: a pure function, without torch or a
// device.
#pragma once

#include "../../cpp/runtime/tuning.h"

#include <cstdint>
#include <vector>

namespace torch_opencl::ops {

// Which instruction multiplies small matrices of 16-bit numbers: MATRIX_UNITS
// of matrix_units.clh.
enum class MatrixUnits : uint8_t {
  kNone,
  kGfx11,
  kGfx12,
  kSm80,
  kIntel8,
  kIntel16
};

// A work-group's outputs, a work-item's, and the depth that local memory holds.
struct ProductTile {
  int rows;
  int columns;
  int item_rows;
  int item_columns;
  int step;

  constexpr int items() const {
    return rows / item_rows * (columns / item_columns);
  }
};

struct ProductSize {
  int64_t batch;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  int64_t sum_block;  // products that are summed before they go to a total
  int element_bytes;  // of the compute type
  bool is_image;      // the right operand is made of an image
  MatrixUnits units = MatrixUnits::kNone;  // that take its operands
};

struct ProductDevice {
  int64_t units;  // that run work-groups by themselves
  int64_t work_group;
  int64_t local_memory;
  bool has_few_registers;  // too few for 8 x 8 outputs and their totals
  runtime::TuningNumbers numbers;
};

// What a user asks for: a tile of so many rows and columns, and so many parts.
struct ProductWish {
  int rows = 0;  // 0: nothing is wished for
  int columns = 0;
  int64_t parts = 0;
};

struct ProductChoice {
  ProductTile tile;
  int64_t parts;  // of the depth
  int64_t depth_of_part;
  bool has_totals;
  MatrixUnits units;  // kNone: multiplied and added one by one
};

// Bytes of local memory that a work-group takes.
int64_t local_bytes(const ProductTile& tile, const ProductSize& size);

// Of products of at most kFewRows rows, by the kernel of product_few.cl.
constexpr int64_t kFewRows = 8;
struct FewChoice {
  int few;        // rows that a work-item sums: a power of two
  int64_t lines;  // of the matrix, of a work-group
  int64_t parts;
  int64_t depth_of_part;
};
FewChoice choose_few(const ProductSize& size,
                     const ProductDevice& device,
                     bool is_along_depth,
                     int width);

// A wish for a tile that there is not, or does not fit, is ignored, and so are
// parts that the depth is not split in.
ProductChoice choose_product(const ProductSize& size,
                             const ProductDevice& device,
                             const ProductWish& wish = {});

// What to wish for the choices that cost least, the best first: at most `most`.
std::vector<ProductWish> product_candidates(const ProductSize& size,
                                            const ProductDevice& device,
                                            size_t most);

}  // namespace torch_opencl::ops
