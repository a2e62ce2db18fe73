// Pointwise ops that join a pending launch instead of being launched.
#pragma once

#include "pointwise.h"

namespace torch_opencl::ops {

// True where the op will be computed by the launch that makes its input: as a
// clamp of its bounds, or as a step of its epilogue.
bool joins_pending(at::TensorIteratorBase& iter,
                   const PointwiseOp& op,
                   c10::ArrayRef<at::Scalar> scalars);
// The same of a copy between tensors of the same strides.
bool copy_joins_pending(const at::Tensor& destination,
                        const at::Tensor& source);

}  // namespace torch_opencl::ops
