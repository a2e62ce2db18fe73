// Casts of elements that follow each other, on CPUs.
#pragma once

#include <ATen/TensorIterator.h>

namespace torch_opencl::ops {

// Converts the iterator's input, which is not complex, to its output and
// returns true, where both are contiguous on a CPU. Conversions of float16 and
// bfloat16 are the pointwise engine's, which computes them in float32.
bool cast_contiguous(at::TensorIteratorBase& iter);

}  // namespace torch_opencl::ops
