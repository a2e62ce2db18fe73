// Copies that change which dimension is innermost, on CPUs.
#pragma once

#include <ATen/TensorIterator.h>

namespace torch_opencl::ops {

// Copies the iterator's input to its output and returns true, where that is a
// transposition of floating-point numbers large enough for vectors.
bool copy_transposed(at::TensorIteratorBase& iter);

}  // namespace torch_opencl::ops
