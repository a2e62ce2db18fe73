// Scans by work-groups, for GPUs.
#pragma once

#include "../../cpp/aten/launch.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// A tensor's lines along a dimension, of elements that lie `inner` apart.
struct Lines {
  Lines(const at::Tensor& tensor, int64_t dim) : length(tensor.size(dim)) {
    for (int64_t d = dim + 1; d < tensor.dim(); ++d) {
      inner *= tensor.size(d);
    }
    count = tensor.numel() / length;
  }

  int64_t length;
  int64_t inner = 1;
  int64_t count;
};

// `define` is a scan of scan_states.clh: OP_SUM, OP_PRODUCT and so on. Tensors
// are contiguous; `indices` are those of extremes.
void scan_by_groups(const char* define,
                    bool is_maximum,
                    const at::Tensor& out,
                    const at::Tensor& indices,
                    const at::Tensor& input,
                    const Lines& lines);

}  // namespace torch_opencl::ops
