// Random numbers in launches: Philox's seed, and how many of its calls came
// before. A captured launch gets others at each replay.
#pragma once

#include "command_graph.h"
#include "kernel.h"

#include <cstdint>

namespace torch_opencl::runtime {

// A kernel's parameters `const ulong seed, const ulong calls`.
struct RandomArgument {
  uint64_t seed = 0;
  uint64_t calls = 0;
  // In a capture: the graph's source of random numbers, after whose first
  // numbers `calls` counts.
  int source = -1;
  // Where it was bound.
  mutable cl_kernel kernel = nullptr;
  mutable cl_uint index = 0;

  bool is_captured() const { return source >= 0; }
};

inline void bind_argument(cl_kernel kernel,
                          cl_uint& index,
                          const RandomArgument& argument) {
  argument.kernel = kernel;
  argument.index = index;
  bind_bytes(kernel, index, &argument.seed, sizeof(argument.seed));
  bind_bytes(kernel, index, &argument.calls, sizeof(argument.calls));
}

// After the launch.
inline void tell_written(Queue& queue, const RandomArgument& argument) {
  if (argument.is_captured()) {
    queue.capturing()->add_draw(
        argument.kernel, argument.index, argument.source, argument.calls);
  }
}

}  // namespace torch_opencl::runtime
