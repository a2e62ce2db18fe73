// Writes that a clamp_ of their result may join: clamp_, relu_ or hardtanh_
// that comes right after one costs nothing then.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>

namespace torch_opencl::aten {

struct Bounds {
  double lower = -std::numeric_limits<double>::infinity();
  double upper = std::numeric_limits<double>::infinity();
};

// Calls `write`, which launches the one kernel that makes all of `out`: where
// the queue can wait, once anything else is enqueued, within the bounds of a
// clamp_ of `out` if that comes first. `write` keeps the tensors it needs.
void write_bounded(const at::Tensor& out,
                   std::function<void(const Bounds&)> write);

// True where `out` was to be written so, and has been, within the bounds.
bool join_clamp(const at::TensorBase& out, const Bounds& bounds);

}  // namespace torch_opencl::aten
