// The text of pointwise kernels.
#pragma once

#include "pointwise.h"

#include "../common/kernel_text.h"

#include <array>
#include <string>

namespace torch_opencl::ops {

enum class PointwiseLayout : uint8_t {
  kItems,          // contiguous, one element a work-item
  kChunks,         // contiguous, one chunk a work-item
  kStridedItems,   // strided, one element a work-item
  kStridedChunks,  // strided, a run along the innermost dimension a work-item
  kJoinedChunks,   // a chunk of contiguous runs, whose vectors run on into the
                   // next; other operands have a number for each, or repeat one
};

inline bool is_strided(PointwiseLayout layout) {
  return layout != PointwiseLayout::kItems &&
         layout != PointwiseLayout::kChunks;
}

inline bool is_element_wise(PointwiseLayout layout) {
  return layout == PointwiseLayout::kItems ||
         layout == PointwiseLayout::kStridedItems;
}

// What the text of a kernel depends on.
struct PointwiseKey {
  const PointwiseOp* op;
  DType common;  // of the operands; in halves, `compute` is float
  DType compute;
  PointwiseLayout layout;
  uint8_t operands;
  uint8_t outputs;        // of the operands, which begin with them
  uint8_t dimensions;     // of the strided layouts
  uint8_t host_operands;  // bit i: operand i is passed by value
  bool non_temporal;      // the output is stored non-temporally
  // Bit i: operand i, of another dtype, is rounded to the common one, a half,
  // after it was loaded or before it is stored.
  uint8_t rounded;
  std::array<DType, kMaxOperands> dtypes;
  // Innermost stride of the strided chunks: 0, 1, 2, or 3 for any other; of
  // joined ones 0, 1 where all is contiguous, or kRepeatedRun.
  std::array<uint8_t, kMaxOperands> inner;
  std::array<uint8_t, 7> unused;  // instead of padding
};

constexpr uint8_t kRepeatedRun = 4;
constexpr int32_t kLongestRun = 1024;    // of kJoinedChunks
constexpr size_t kPointwiseGroup = 256;  // work-items of kItems

// Work-items that loop compute vectors where they can: compilers make no vector
// of a call of exp or erf in a loop.
bool uses_lanes(const PointwiseKey& key);
// Operands keep their dtypes, instead of having a common one.
inline bool keeps_dtypes(const PointwiseOp& op) {
  return *op.outputs != '\0';
}
// The kernel reports zeros among its last operand: integers that divide.
inline bool reports_zeros(const PointwiseKey& key) {
  const bool is_number = key.host_operands >> (key.operands - 1) & 1;
  return key.op->divides && !is_floating(key.compute) && !is_number;
}
// It takes a record of reports.
inline bool may_report(const PointwiseKey& key) {
  return reports_zeros(key) || *key.op->probabilities != '\0';
}

// Kernel `pointwise`.
std::string pointwise_text(const PointwiseKey& key);

}  // namespace torch_opencl::ops
