// Pointwise ops that join a pending launch instead of being launched.
#pragma once

#include "pointwise.h"

namespace torch_opencl::ops {

// Of a queue that has a pending launch: true where the op will be computed by
// it, for it makes the op's input: as a clamp of its bounds, or as a step of
// its epilogue.
bool joins_pending(at::TensorIteratorBase& iter,
                   const PointwiseOp& op,
                   c10::ArrayRef<at::Scalar> scalars);
// The same of a copy between tensors of the same strides.
bool copy_joins_pending(const at::Tensor& destination,
                        const at::Tensor& source);

}  // namespace torch_opencl::ops
