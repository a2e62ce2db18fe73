// Calls of _foreach_ ops in a row, launched as one. Optimizers write a step as
// ten of them over the same lists: one launch reads and writes a list once, and
// what only the next call needed is never written.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch_opencl::ops {

// result = expression of the lists' elements x, y and z and the numbers a and
// b.
struct ForeachCall {
  std::string name;
  const char* expression;
  std::vector<at::TensorList> lists;  // the results' is the last one
  // One for all tensors, or one a tensor.
  std::vector<std::vector<double>> scalars;
};

// Defers the call where its dtype is that of its arithmetic, so that rounding
// is that of single calls; else launches. The lists are dense, of floating
// dtype and alike. False, and nothing done, where a tensor lies too far into
// its buffer (place_of).
bool run_foreach(const ForeachCall& call);

}  // namespace torch_opencl::ops
