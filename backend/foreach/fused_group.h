// Calls of _foreach_ ops in a row, fused into one launch. Optimizers write a
// step as ten of them over the same lists: one launch reads and writes a list
// once, and what only the next call needed is never written.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch_opencl::ops {

// result = expression of the lists' elements x, y and z and the numbers a and
// b. Both texts are literals: groups are told apart by their addresses.
struct ForeachCall {
  const char* op;  // "aten::_foreach_add_"
  const char* expression;
  std::vector<at::TensorList> lists;  // the results' is the last one
  // One for all tensors, or one a tensor.
  std::vector<std::vector<double>> scalars;
};

// Adds the call to the group that waits, or lets a new one wait, where the
// calls' dtype is that of their arithmetic, so that rounding is that of single
// calls; else launches. The lists are dense and alike, and of floating dtype
// where something is computed.
// False, and nothing done, where a tensor has too many elements (place_of), or
// where a result overlaps partly with an operand, which ATen's loop refuses.
bool run_foreach(const ForeachCall& call);

}  // namespace torch_opencl::ops
