#include "long_sides.h"

#include <algorithm>

namespace torch_opencl::ops {

using at::Scalar;
using at::Tensor;

// The last tile of so many lines ends below 2^31, and what is packed of them is
// of a bounded size.
constexpr int64_t kLongestSide = int64_t{1} << 28;

bool multiply_long_sides(MultiplyBatches& multiply,
                         const Tensor& left,
                         const Tensor& right,
                         const Tensor& self,
                         const Scalar& beta,
                         const Scalar& alpha,
                         const Tensor& out) {
  constexpr int kNone = -1;
  struct Side {
    int of_left, of_right, of_out;  // its dimension
  };
  // Batch, rows, columns, depth.
  for (const Side side :
       {Side{0, 0, 0}, {1, kNone, 1}, {kNone, 2, 2}, {2, 1, kNone}}) {
    const bool is_depth = side.of_out == kNone;
    const int64_t size = is_depth ? left.size(2) : out.size(side.of_out);
    if (size <= kLongestSide) {
      continue;
    }
    for (int64_t begin = 0; begin < size; begin += kLongestSide) {
      const auto part = [&](const Tensor& tensor, int dim) {
        return dim == kNone
                   ? tensor
                   : tensor.narrow(
                         dim, begin, std::min(kLongestSide, size - begin));
      };
      const bool adds = is_depth && begin > 0;
      multiply(part(left, side.of_left),
               part(right, side.of_right),
               adds ? out : part(self, side.of_out),
               adds ? Scalar(1) : beta,
               alpha,
               part(out, side.of_out));
    }
    return true;
  }
  return false;
}

}  // namespace torch_opencl::ops
