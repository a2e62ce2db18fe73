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

// Gives the one storage of `results` memory of its own, with what it holds,
// and returns the same tensors in the memory that it had.
std::vector<at::Tensor> take_memory(const std::vector<at::Tensor>& results);

}  // namespace torch_opencl::device
