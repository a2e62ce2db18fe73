// One launch for many tensors: the same statements for every element of every
// tensor of several lists.
#pragma once

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
  const char* name;
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

}  // namespace torch_opencl::ops
