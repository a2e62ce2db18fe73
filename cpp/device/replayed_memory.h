// The memory that a graph's results are in, which every replay writes again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace torch_opencl::device {

// The places of those whose storage more than `uses` tensors share: somebody
// keeps the result. For the others the current stream waits for the streams
// that were recorded, as if they had been freed.
std::vector<size_t> kept_results(const std::vector<at::Tensor>& results,
                                 const std::vector<size_t>& uses);

// Gives the one storage of each group memory of its own, with what it holds,
// and returns the same tensors in the memory that it had. Whoever keeps a
// result may use it on any stream: all are ordered around the copies.
using Groups = std::vector<std::vector<at::Tensor>>;
Groups take_memory(const Groups& groups);

// The current stream's id. It waits for the stream `last` of its device, where
// that is another one and not negative.
int64_t follow_stream(int64_t last);

}  // namespace torch_opencl::device
