// Casts of elements that follow each other, on CPUs.
#pragma once

#include <ATen/TensorIterator.h>

namespace torch_opencl::ops {

// Converts the iterator's input, which is not complex, to its output and
// returns true, where both are contiguous on a CPU.
bool cast_contiguous(at::TensorIteratorBase& iter);

}  // namespace torch_opencl::ops
