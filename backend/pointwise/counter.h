// Additions of a number to one int64 in place, as batch normalisations count
// batches. On GPUs such an addition is pending, and the batch normalisation
// that comes next makes it in a launch of its own.
#pragma once

#include "pointwise.h"

#include "../../cpp/aten/launch.h"

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace torch_opencl::ops {

struct CounterAddition {
  at::Tensor counter;  // a private alias; undefined where there is none
  int64_t amount = 0;
};

// What the op adds, where it is such an addition that may be pending.
CounterAddition counter_addition(const at::TensorIteratorBase& iter,
                                 const PointwiseOp& op,
                                 c10::ArrayRef<at::Scalar> scalars);
// `launch` makes the addition, if nothing takes it.
void pend_counter(const CounterAddition& addition,
                  const runtime::KernelLaunch& launch);

// Takes the pending addition, if the counter lies in no storage of `others`:
// the caller's next launch has to make it.
CounterAddition take_counter_addition(runtime::Queue& queue,
                                      std::initializer_list<at::Tensor> others);

}  // namespace torch_opencl::ops
