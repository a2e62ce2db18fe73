// Work on a batch in chunks of images: what is packed of a chunk stays in a
// CPU's caches until it is multiplied.
#pragma once

#include "convolution.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace torch_opencl::ops {

// Bytes of packed operands and products in flight.
inline int64_t workspace_bytes(const at::TensorBase& on) {
  return int64_t(aten::device_of(on).is_cpu() ? 8 : 256) << 20;
}

struct Chunk {
  ConvolutionProblem problem;  // of the chunk's images
  at::Tensor input;
  at::Tensor output;
  bool is_first;
};

// Images whose workspace, of `elements` an image, fits.
inline int64_t images_at_once(const ConvolutionProblem& p,
                              const at::TensorBase& on,
                              int64_t elements) {
  const int64_t bytes =
      elements *
      static_cast<int64_t>(c10::elementSize(aten::compute_type(p.dtype)));
  return std::clamp<int64_t>(workspace_bytes(on) / std::max<int64_t>(bytes, 1),
                             1,
                             std::max<int64_t>(p.images, 1));
}

template <class Function>
void for_each_chunk(const ConvolutionProblem& p,
                    const at::Tensor& input,
                    const at::Tensor& output,
                    int64_t step,
                    const Function& function) {
  for (int64_t first = 0; first < p.images; first += step) {
    const int64_t images = std::min(step, p.images - first);
    Chunk chunk{p,
                input.narrow(0, first, images),
                output.narrow(0, first, images),
                first == 0};
    chunk.problem.images = images;
    function(chunk);
  }
}

// Where a weight's gradient is summed: sums of several chunks stay in the
// compute type.
inline at::Tensor sums_for(const at::Tensor& weight,
                           bool is_chunked,
                           bool is_dense) {
  const at::ScalarType compute = aten::compute_type(weight.scalar_type());
  const bool is_direct = (weight.is_contiguous() || !is_dense) &&
                         (compute == weight.scalar_type() || !is_chunked);
  return is_direct ? weight
                   : at::empty(weight.sizes(), weight.options().dtype(compute));
}

}  // namespace torch_opencl::ops
