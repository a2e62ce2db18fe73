// One launch for many tensors: the same statements for every element of every
// tensor of several lists.
#pragma once

#include "../../cpp/aten/launch.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch_opencl::ops {

// A list whose i-th tensor belongs to the i-th of the other lists. In the
// statements its element is a variable of this name, in compute type.
struct GroupedOperand {
  const char* name;
  at::TensorList tensors;
  bool is_read = true;
  bool is_written = false;
  // Tensors of one element, the same for all elements of the others. The
  // variable `<name>_at` points to it.
  bool is_single = false;
};

struct GroupedScalar {
  std::string name;
  std::vector<double> values;  // one for all tensors, or one a tensor
};

// Launches as often as kernel parameters have room for. The first operand gives
// sizes and the compute type; tensors of one position have to be dense, with
// equal strides. False, and nothing done, where a tensor lies too far into its
// buffer to be named in 29 bits.
bool grouped(const char* name,
             const std::string& statements,
             const std::vector<GroupedOperand>& operands,
             const std::vector<GroupedScalar>& scalars);

// The same by places in memory.
struct GroupedList {
  std::string name;
  std::vector<aten::BufferView> places;
  aten::DType dtype;
  bool is_read = true;
  bool is_written = false;
  bool is_single = false;
};

struct GroupedLaunch {
  std::string name;
  std::string statements;
  aten::DType compute;
  std::vector<int64_t> elements;  // of each tensor
  std::vector<GroupedList> lists;
  std::vector<GroupedScalar> scalars;
};

// A tensor's place; none where it lies too far into its buffer.
std::optional<aten::BufferView> place_of(const at::Tensor& tensor);
// Not behind what is deferred: that is the caller's business.
void launch_grouped(runtime::Queue& queue, const GroupedLaunch& launch);

}  // namespace torch_opencl::ops
