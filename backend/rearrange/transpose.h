// Copies that change which dimension is innermost.
#pragma once

#include <ATen/TensorIterator.h>

namespace torch_opencl::ops {

// Copies the iterator's input to its output and returns true, where that is a
// transposition large enough for vectors, of floating-point numbers, or for the
// squares of a GPU, which moves elements of up to 8 bytes and converts halves.
bool copy_transposed(at::TensorIteratorBase& iter);

}  // namespace torch_opencl::ops
