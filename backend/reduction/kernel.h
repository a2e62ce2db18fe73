// The text of reduction kernels.
#pragma once

#include "reduction.h"

#include "../common/kernel_text.h"

#include <string>

namespace torch_opencl::ops {

// One item of work is an (output, split) pair; splits divide a long reduction
// and are merged by a second kernel.
enum class ReductionLayout : uint8_t {
  // A work-item runs along the reduced dimensions with independent lanes.
  kInner,
  // A work-item takes neighbouring outputs as its lanes.
  kOuter,
  // A work-group takes `columns` neighbouring outputs, of each of which
  // kReductionGroup / columns work-items share the elements.
  kGroup,
};

struct ReductionKey {
  const ReductionOp* op;
  runtime::DType compute;
  std::array<runtime::DType, kMaxReductionInputs> inputs;
  std::array<runtime::DType, kMaxReductionOutputs> outputs;
  uint8_t input_count;
  uint8_t output_count;
  uint8_t kept;     // dimensions
  uint8_t reduced;  // dimensions
  bool is_large;    // 64-bit sizes and offsets
  uint8_t units;    // bit i: the lanes' innermost stride of input i is 1
  bool is_split;    // writes accumulators instead of results
  bool is_vector;   // lanes are one vector: is_unit and the op is vectorizable
  bool joins_rows;  // kOuter with vectors: several short rows count as one
  ReductionLayout layout;
  uint8_t columns;                // of kGroup
  std::array<uint8_t, 4> unused;  // instead of padding
};

constexpr size_t kReductionGroup = 128;  // work-items of kGroup
constexpr int kReductionLanes = 16;
// Neighbouring outputs of a work-item of kOuter with vectors.
constexpr int kReductionColumns = 64 * kReductionLanes;
// Least width of rows of which kernels join several at once to an accumulator;
// shorter ones that follow each other in memory are themselves joined up to it.
constexpr int kReductionWideRow = 16 * kReductionLanes;
constexpr int kReductionRowsAtOnce = 4;
// Elements after which lanes are folded, so that rounding errors grow with the
// number of blocks and not of elements. Where a fold loses nothing, lanes are
// as short as costs nothing.
constexpr int kReductionBlock = 512 * kReductionLanes;
constexpr int kReductionShortBlock = 64 * kReductionLanes;

// Kernel `reduce`, and kernel `merge`, which joins the accumulators of splits:
// programs of their own, because most reductions are not split.
std::string reduce_text(const ReductionKey& key);
std::string merge_text(const ReductionKey& key);

}  // namespace torch_opencl::ops
