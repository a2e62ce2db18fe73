// Clamps as epilogues: clamp_, relu_ or hardtanh_ of a result whose launch
// still waits becomes two arguments of it.
#pragma once

#include "launch.h"

#include "../runtime/pending_launch.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <limits>

namespace torch_opencl::aten {

struct ClampBounds {
  double lower = -std::numeric_limits<double>::infinity();
  double upper = std::numeric_limits<double>::infinity();
};

// The arguments of a launch that bound its result, in the type of its
// arithmetic. Made without bounds, as `lower()` and `upper()` pass them.
template <class Number>
struct ClampArguments {
  uint32_t lower_index = 0;
  uint32_t upper_index = 0;
  runtime::Patchable<Number> lower() {
    return {-std::numeric_limits<Number>::infinity(), &lower_index};
  }
  runtime::Patchable<Number> upper() {
    return {std::numeric_limits<Number>::infinity(), &upper_index};
  }
};

using TensorReferences =
    std::initializer_list<std::reference_wrapper<const at::Tensor>>;

// Launches `launch` of the op `op`, which writes all of `out` and uses
// `tensors`: where the queue can wait, not before its next command, so that a
// clamp_ of `out` can join.
template <class Number>
void launch_clampable(const char* op,
                      const at::Tensor& out,
                      const runtime::KernelLaunch& launch,
                      const ClampArguments<Number>& arguments,
                      TensorReferences tensors);

// True where the launch that writes exactly the elements of `out` was waiting,
// and has been enqueued within the bounds.
bool join_clamp(const at::TensorBase& out, const ClampBounds& bounds);

}  // namespace torch_opencl::aten
