// The text of multi-tensor apply's kernels, and of what their tables have room
// for.
#pragma once

#include "multi_tensor.h"

#include <string>

namespace torch_opencl::ops {

// A place is a slot and an offset in elements, in 32 bits: of many slots the
// offsets have fewer. A slot of kFar is a window of a buffer, as long as an
// offset can tell, and the table has its number.
constexpr int kFewSlots = 8;
constexpr int kFewSlotsShift = 29;
constexpr int kManySlots = 24;
constexpr int kManySlotsShift = 27;
constexpr int kFarSlots = 16;
constexpr int kFarSlotsShift = 28;

struct TableShape {
  int tensors;  // at most, in a batch
  int operands;
  int scalars;         // of each tensor
  int shared_scalars;  // of all
  bool is_double;
  int slots;       // buffers
  int slot_shift;  // bits of an offset
  int windows;     // of slots

  size_t scalar_bytes() const { return is_double ? 8 : 4; }
  int all_scalars() const { return shared_scalars + tensors * scalars; }
  size_t words() const {
    return (tensors + 1) + tensors + tensors * operands + windows;
  }
};

TableShape table_shape(const MultiTensorLaunch& launch);

// `group` is the number of work-items of a work-group.
std::string multi_tensor_text(const MultiTensorLaunch& launch,
                              const std::string& statements,
                              const TableShape& shape,
                              int group);

}  // namespace torch_opencl::ops
