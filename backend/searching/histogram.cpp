// histogram: the bin of each point by binary search, and one sum of weights a
// bin. The host functions are ATen's.
#include "../../cpp/aten/fallback.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"

#include <ATen/native/Histogram.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/histogram_native.h>
#include <ATen/ops/histogram_ops.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// `points` has a row for each point.
void histogramdd(const Tensor& points,
                 const MaybeTensor& weight,
                 bool density,
                 Tensor& hist,
                 const at::TensorList& bin_edges) {
  check_floating("histogram_cpu", points);
  const at::TensorOptions longs = points.options().dtype(at::kLong);
  Tensor place = at::zeros({points.size(0)}, longs);
  Tensor weights = is_given(weight)
                       ? weight->reshape({-1}).to(hist.scalar_type())
                       : at::ones({points.size(0)}, hist.options());
  for (size_t d = 0; d < bin_edges.size(); ++d) {
    const Tensor edges = bin_edges[d].contiguous();  // copy: searched
    const int64_t bins = edges.numel() - 1;
    const Tensor x = points.select(1, static_cast<int64_t>(d))
                         .contiguous();  // copy: searched
    Tensor bin = at::searchsorted(edges, x, false, true).sub_(1);
    // The last bin has both of its edges.
    bin = at::where(x.eq(edges[bins]), bins - 1, bin);
    weights = weights.masked_fill(bin.lt(0).logical_or(bin.ge(bins)), 0);
    place = place.mul(bins).add(bin.clamp(0, bins - 1));
  }
  const Tensor sums =
      at::zeros({hist.numel()}, hist.options()).index_add_(0, place, weights);
  hist.copy_(sums.view(hist.sizes()));
  if (!density) {
    return;
  }
  hist.div_(hist.sum());
  for (size_t d = 0; d < bin_edges.size(); ++d) {
    std::vector<int64_t> sizes(bin_edges.size(), 1);
    sizes[d] = bin_edges[d].numel() - 1;
    hist.div_(bin_edges[d].diff().view(sizes));
  }
}

void histogramdd_linear(const Tensor& points,
                        const MaybeTensor& weight,
                        bool density,
                        Tensor& hist,
                        const at::TensorList& bin_edges,
                        bool /*local_search*/) {
  histogramdd(points, weight, density, hist, bin_edges);
}

void select_outer_bin_edges(const Tensor& points,
                            int64_t count,
                            std::vector<double>& leftmost,
                            std::vector<double>& rightmost) {
  check_floating("histogramdd", points);
  const auto [least, most] = at::aminmax(points, 0);
  const Tensor lower = least.cpu().to(at::kDouble);
  const Tensor upper = most.cpu().to(at::kDouble);
  for (int64_t d = 0; d < count; ++d) {
    leftmost[d] = lower[d].item<double>();
    rightmost[d] = upper[d].item<double>();
  }
}

using OfTensor = std::tuple<Tensor, Tensor> (*)(const Tensor&,
                                                const Tensor&,
                                                const MaybeTensor&,
                                                bool);
using OfCount =
    std::tuple<Tensor, Tensor> (*)(const Tensor&,
                                   int64_t,
                                   std::optional<at::ArrayRef<double>>,
                                   const MaybeTensor&,
                                   bool);
constexpr auto of_tensor = static_cast<OfTensor>(&at::native::histogram);
constexpr auto of_count = static_cast<OfCount>(&at::native::histogram);

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histogram.bins_tensor",
         &WithFallback<at::_ops::histogram_bins_tensor, of_tensor>::call);
  m.impl("histogram.bin_ct",
         &WithFallback<at::_ops::histogram_bin_ct, of_count>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &torch_opencl::ops::histogramdd)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub,
                              &torch_opencl::ops::histogramdd_linear)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub,
                              &torch_opencl::ops::select_outer_bin_edges)

}  // namespace at::native
