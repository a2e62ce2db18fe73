// Copies that change which dimension is innermost.
#include "transpose.h"

#include "../../cpp/aten/launch.h"
#include "../common/bits.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

constexpr int kRank = 8;
// What a work-item copies.
struct Tile {
  int64_t rows;
  int chunk;
};
constexpr Tile kTile{64, 256};
// Lines that lie a multiple of this apart share few places of the nearest
// cache: from memory, half as many at a time leave prefetched ones there until
// they are used.
constexpr int64_t kCrowdedBytes = 1024;
constexpr Tile kCrowdedTile{32, 1024};
// TILE and LINES of transpose_tiles.cl, and the shortest side of a square that
// fills enough of a GPU's lanes.
constexpr int64_t kSquare = 32;
constexpr int64_t kSquareLines = 8;
constexpr int32_t kShortestSide = 16;

// problem_t of layouts.clh.
struct TransposeProblem {
  int32_t rank;
  int32_t chunk;
  std::array<int32_t, kRank> sizes;
  std::array<int32_t, kRank> out_strides;
  std::array<int32_t, kRank> self_strides;
};

bool is_supported(at::ScalarType out, at::ScalarType self) {
  return at::isFloatingType(out) && at::isFloatingType(self) &&
         (out == at::kDouble) == (self == at::kDouble);
}

struct Moved {
  runtime::DType out;
  runtime::DType self;
};

// Elements of one half type keep their bits, as do those of any dtype on a GPU.
Moved moved(const at::TensorIteratorBase& iter, bool is_cpu = true) {
  const int64_t size = iter.element_size(0);
  if (iter.dtype(0) == iter.dtype(1) && (size == 2 || !is_cpu)) {
    return {bits_dtype(size), bits_dtype(size)};
  }
  return {dtype_of(iter.dtype(0)), dtype_of(iter.dtype(1))};
}

// The iterator's strides in elements, and dimensions put in another order.
class StridedCopy {
 public:
  explicit StridedCopy(at::TensorIteratorBase& iter) : iter_(iter) {
    problem_.rank = iter.ndim();
  }
  int32_t size(int dimension) const {
    return static_cast<int32_t>(iter_.shape()[dimension]);
  }
  int32_t stride(int operand, int dimension) const {
    return static_cast<int32_t>(iter_.strides(operand)[dimension] /
                                int64_t(iter_.element_size(operand)));
  }
  // The first dimension of this stride, or the number of dimensions.
  int find(int operand, int32_t wanted) const {
    int d = 0;
    while (d < iter_.ndim() && (stride(operand, d) != wanted || size(d) == 1)) {
      ++d;
    }
    return d;
  }
  // The problem with these two dimensions first.
  TransposeProblem problem(int first, int second, int chunk) {
    int next = 0;
    const auto append = [&](int d) {
      problem_.sizes[next] = size(d);
      problem_.out_strides[next] = stride(0, d);
      problem_.self_strides[next++] = stride(1, d);
    };
    append(first);
    append(second);
    for (int d = 0; d < iter_.ndim(); ++d) {
      if (d != first && d != second) {
        append(d);
      }
    }
    problem_.chunk = chunk;
    return problem_;
  }

 private:
  at::TensorIteratorBase& iter_;
  TransposeProblem problem_{};
};

bool stores_non_temporal(at::TensorIteratorBase& iter) {
  return is_non_temporal(
      aten::device_of(iter.tensor_base(0)), iter.dtype(0), iter.numel());
}

bool copy_interleaved(at::TensorIteratorBase& iter) {
  StridedCopy walk(iter);
  const int rank = iter.ndim();
  const int dense_out = walk.find(0, 1);
  const int dense_self = walk.find(1, 1);
  if (dense_out == rank || dense_self == rank || dense_out == dense_self) {
    return false;
  }
  const auto is_factor = [&](int operand, int turns, int line) {
    const int32_t factor = walk.size(turns);
    return (factor == 2 || factor == 4) && walk.size(line) >= kLanes &&
           walk.stride(operand, line) == factor;
  };
  const bool interleaves = is_factor(0, dense_out, dense_self);
  if (!interleaves && !is_factor(1, dense_self, dense_out)) {
    return false;
  }
  const int turns = interleaves ? dense_out : dense_self;
  const int line = interleaves ? dense_self : dense_out;
  const at::TensorBase& out = iter.tensor_base(0);
  const int64_t per_group = int64_t{walk.size(turns)} * walk.size(line);
  const int64_t groups = iter.numel() / per_group;
  const int64_t units = aten::device_of(out).info().compute_units;
  const int64_t chunk = std::clamp<int64_t>(
      groups / (32 * units), 1, std::max<int64_t>(1, 65536 / per_group));
  launch(out,
         sources::interleave,
         "copy_interleaved",
         {{"DTYPE", moved(iter).self},
          {"OUT_DTYPE", moved(iter).out},
          {"LANES", kLanes},
          {"FACTOR", walk.size(turns)},
          {"INTERLEAVES", interleaves},
          // Lines that end within a cache line would be read back where the
          // last vector overlaps its neighbour.
          {"NON_TEMPORAL",
           walk.size(line) % kLanes == 0 && stores_non_temporal(iter)}},
         range(ceil_div(groups, chunk), 1),
         walk.problem(turns, line, static_cast<int>(chunk)),
         static_cast<int32_t>(groups),
         arg_at(iter.data_ptr(0), iter.dtype(0)),
         arg_in_at(iter.data_ptr(1), iter.dtype(1)));
  return true;
}

// By the squares of a GPU's work-groups.
bool copy_by_squares(at::TensorIteratorBase& iter) {
  StridedCopy walk(iter);
  const int dense = walk.find(1, 1);
  const bool is_one_dtype =
      iter.dtype(0) == iter.dtype(1) && iter.element_size(0) <= 8;
  if (dense == 0 || dense == iter.ndim() || walk.stride(0, 0) != 1 ||
      std::min(walk.size(0), walk.size(dense)) < kShortestSide ||
      (!is_one_dtype && !is_supported(iter.dtype(0), iter.dtype(1)))) {
    return false;
  }
  const TransposeProblem problem = walk.problem(0, dense, 0);
  const auto [rows, columns] = std::pair(problem.sizes[0], problem.sizes[1]);
  const int64_t groups = ceil_div(rows, kSquare) * ceil_div(columns, kSquare) *
                         (iter.numel() / (int64_t{rows} * columns));
  constexpr int64_t kItems = kSquare * kSquareLines;
  launch(iter.tensor_base(0),
         sources::transpose_tiles,
         "copy_transposed_tiles",
         {{"DTYPE", moved(iter, false).self},
          {"OUT_DTYPE", moved(iter, false).out},
          {"RANK", iter.ndim()}},
         range(groups * kItems, kItems),
         problem,
         arg_at(iter.data_ptr(0), iter.dtype(0)),
         arg_in_at(iter.data_ptr(1), iter.dtype(1)));
  return true;
}

}  // namespace

bool copy_transposed(at::TensorIteratorBase& iter) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (iter.ndim() < 2 || iter.ndim() > kRank ||
      !iter.can_use_32bit_indexing()) {
    return false;
  }
  if (!aten::device_of(out).is_cpu()) {
    return copy_by_squares(iter);
  }
  if (!is_supported(iter.dtype(0), iter.dtype(1))) {
    return false;
  }
  if (copy_interleaved(iter)) {
    return true;
  }
  StridedCopy walk(iter);
  const int dense = walk.find(1, 1);
  if (dense == 0 || dense == iter.ndim() || walk.stride(0, 0) != 1 ||
      std::min(walk.size(0), walk.size(dense)) < kLanes) {
    return false;
  }
  const int64_t pitch = int64_t{walk.stride(1, 0)} * iter.element_size(1);
  const Tile tile = stores_non_temporal(iter) && pitch % kCrowdedBytes == 0
                        ? kCrowdedTile
                        : kTile;
  const TransposeProblem problem = walk.problem(0, dense, tile.chunk);
  const int64_t squares = int64_t{problem.sizes[0]} * problem.sizes[1];
  const int64_t items = (problem.sizes[0] + tile.rows - 1) / tile.rows *
                        ((problem.sizes[1] + tile.chunk - 1) / tile.chunk) *
                        (iter.numel() / squares);
  launch(out,
         sources::transpose,
         "copy_transposed",
         {{"DTYPE", moved(iter).self},
          {"OUT_DTYPE", moved(iter).out},
          {"LANES", kLanes},
          {"ROWS", tile.rows},
          {"NON_TEMPORAL", stores_non_temporal(iter)}},
         range(items, 1),
         problem,
         arg_at(iter.data_ptr(0), iter.dtype(0)),
         arg_in_at(iter.data_ptr(1), iter.dtype(1)));
  return true;
}

}  // namespace torch_opencl::ops
