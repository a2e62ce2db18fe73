#include "rows.h"

#include "../../cpp/aten/no_autocast.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

namespace torch_opencl::ops {

namespace {

// Of a block of dequantised weights: 16 MiB.
constexpr int64_t kBlockElements = int64_t{1} << 22;
// Lines that keep a product's tiles full.
constexpr int64_t kFewestLines = 128;

}  // namespace

void multiply_dequantized(
    const at::Tensor& self,
    const at::Tensor& out,
    const std::function<void(int64_t first, const at::Tensor& lines)>&
        dequantize) {
  const aten::NoAutocast guard;
  const int64_t depth = self.size(1);
  const int64_t lines = out.size(1);
  const at::Tensor factors = self.to(at::kFloat);
  const int64_t step =
      std::max(kBlockElements / std::max<int64_t>(depth, 1), kFewestLines);
  for (int64_t first = 0; first < lines; first += step) {
    const int64_t count = std::min(step, lines - first);
    const at::Tensor weights = at::empty({count, depth}, factors.options());
    dequantize(first, weights);
    at::Tensor target = out.narrow(1, first, count);
    if (out.scalar_type() == at::kFloat) {
      at::mm_out(target, factors, weights.t());
    } else {
      target.copy_(at::mm(factors, weights.t()));
    }
  }
}

}  // namespace torch_opencl::ops
