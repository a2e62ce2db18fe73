// Copies that change which dimension is innermost, on CPUs.
#include "transpose.h"

#include "../../cpp/aten/launch.h"
#include "kernel_sources.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

constexpr int kRank = 8;
constexpr int64_t kLanes = 16;
constexpr int64_t kRows = 64;
constexpr int64_t kChunk = 256;
// A result that leaves nothing of itself in a cache for its reader.
constexpr int64_t kStreamedBytes = int64_t{32} << 20;

// problem_t of transpose.cl.
struct Problem {
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

}  // namespace

bool copy_transposed(at::TensorIteratorBase& iter) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (iter.ndim() < 2 || iter.ndim() > kRank || !device_of(out).is_cpu() ||
      !iter.can_use_32bit_indexing() ||
      !is_supported(iter.dtype(0), iter.dtype(1))) {
    return false;
  }
  const auto stride = [&iter](int operand, int dimension) {
    return static_cast<int32_t>(iter.strides(operand)[dimension] /
                                int64_t(iter.element_size(operand)));
  };
  int dense = 0;
  while (dense < iter.ndim() &&
         (stride(1, dense) != 1 || iter.shape()[dense] == 1)) {
    ++dense;
  }
  if (dense == 0 || dense == iter.ndim() || stride(0, 0) != 1 ||
      std::min(iter.shape()[0], iter.shape()[dense]) < kLanes) {
    return false;
  }
  Problem problem{};
  problem.rank = iter.ndim();
  problem.chunk = kChunk;
  int next = 0;
  const auto append = [&](int dimension) {
    problem.sizes[next] = static_cast<int32_t>(iter.shape()[dimension]);
    problem.out_strides[next] = stride(0, dimension);
    problem.self_strides[next++] = stride(1, dimension);
  };
  append(0);
  append(dense);
  for (int d = 1; d < iter.ndim(); ++d) {
    if (d != dense) {
      append(d);
    }
  }
  const int64_t squares = int64_t{problem.sizes[0]} * problem.sizes[1];
  const int64_t items = (problem.sizes[0] + kRows - 1) / kRows *
                        ((problem.sizes[1] + kChunk - 1) / kChunk) *
                        (iter.numel() / squares);
  launch(out,
         sources::transpose,
         "copy_transposed",
         {{"DTYPE", dtype_of(iter.dtype(1))},
          {"OUT_DTYPE", dtype_of(iter.dtype(0))},
          {"LANES", kLanes},
          {"STREAM",
           iter.dtype(0) == at::kFloat &&
               iter.numel() * int64_t{4} >= kStreamedBytes}},
         range(items, 1),
         problem,
         arg_at(iter.data_ptr(0), iter.dtype(0)),
         arg_at(iter.data_ptr(1), iter.dtype(1)));
  return true;
}

}  // namespace torch_opencl::ops
