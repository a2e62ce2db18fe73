// Elements at a rank of rows, on CPUs without sorting.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// What the rank is, of columns in order with NaN last: RANK_* of selection.cl.
enum class RankRule : int32_t { kGiven, kMedian, kNanMedian };

// The int64 column, as (rows, 1), of the element at that rank of each row of a
// contiguous (rows, columns) tensor of a CPU device; of equal elements, the one
// that a stable sort puts there. `rank` is for kGiven.
at::Tensor selected_columns(const at::Tensor& rows,
                            RankRule rule,
                            int64_t rank);

}  // namespace torch_opencl::ops
