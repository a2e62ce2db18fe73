// The text of epilogues: kernel sources with what epilogue.clh expects.
#pragma once

#include "epilogue.h"

#include <array>

namespace torch_opencl::ops {

// What a source with an epilogue depends on.
struct EpilogueKey {
  struct Step {
    EpilogueText text;
    std::array<OperandKind, kMaxEpilogueOperands> kinds{};
    std::array<uint8_t, kMaxEpilogueOperands> values{};  // of kValue
    std::array<DType, kMaxEpilogueOperands> dtypes{};    // of those in memory

    bool operator==(const Step&) const = default;
  };
  const aten::KernelSource* source;
  DType dtype;
  size_t step_count;
  std::array<Step, kMaxEpilogueSteps> steps{};
  std::array<bool, kMaxEpilogueSteps> keeps{};  // values but the last

  bool operator==(const EpilogueKey&) const = default;
};

// The kernel's source behind the steps' defines, one a key: it lives as long as
// the process, so that programs are told apart by its address.
const aten::KernelSource& source_with_epilogue(const EpilogueKey& key);

}  // namespace torch_opencl::ops
