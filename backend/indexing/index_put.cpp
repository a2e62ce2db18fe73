// index_put_ with accumulate, in the order of the indices.
#include "../../cpp/aten/reports.h"
#include "indexed.h"
#include "kernel_sources.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Sums equal positions one after the other, so the same input gives the same
// bits. Positions of the indexed dimensions become one linear index into a
// contiguous copy whose indexed dimensions lie in front.
void index_put_in_order(Tensor& self,
                        const c10::List<std::optional<Tensor>>& indices,
                        const Tensor& value,
                        bool accumulate,
                        bool /*unsafe*/) {
  TORCH_CHECK(
      self.scalar_type() == value.scalar_type(),
      "Index put requires the source and destination dtypes match, got ",
      self.scalar_type(),
      " for the destination and ",
      value.scalar_type(),
      " for the source.");
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  std::vector<Tensor> given =
      at::native::expandTensors(self, indices, /*ensure_same_device=*/true);
  given = at::expand_outplace(given);
  given.resize(self.dim());
  const bool adjacent = at::native::hasContiguousSubspace(given);
  const auto first = std::find_if(
      given.begin(), given.end(), [](const Tensor& t) { return t.defined(); });
  TORCH_CHECK_INDEX(first != given.end(),
                    "at least one index must be provided");
  const int64_t before = adjacent ? first - given.begin() : 0;
  auto [front, ordered] = at::native::transposeToFront(self, given);
  const auto count = std::count_if(ordered.begin(),
                                   ordered.end(),
                                   [](const Tensor& t) { return t.defined(); });

  // The result's shape has the indices' dimensions where they were, when they
  // stood together; in front otherwise.
  const at::IntArrayRef index_shape = ordered[0].sizes();
  const at::IntArrayRef rest = front.sizes().slice(count);
  std::vector<int64_t> shape(rest.begin(), rest.begin() + before);
  shape.insert(shape.end(), index_shape.begin(), index_shape.end());
  shape.insert(shape.end(), rest.begin() + before, rest.end());
  std::vector<int64_t> order;
  const auto dims = static_cast<int64_t>(index_shape.size());
  for (int64_t d = 0; d < dims; ++d) {
    order.push_back(before + d);
  }
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (d < before || d >= before + dims) {
      order.push_back(d);
    }
  }
  const Tensor values = value.to(self.device()).expand(shape).permute(order);

  Tensor linear = at::empty(index_shape, self.options().dtype(at::kLong));
  int64_t positions = 1;
  for (int64_t k = 0; k < count; ++k) {
    if (linear.numel() > 0) {
      launch(linear,
             sources::range,
             "linear_index",
             {{"DTYPE", DType::kInt64}},
             range(linear.numel(), 64),
             arg(linear),
             arg_in(ordered[k].to(at::kLong).contiguous()),  // copy: expanded
             static_cast<uint64_t>(linear.numel()),
             front.size(k),
             static_cast<int32_t>(k),
             reports(linear, "index_put_"));
    }
    positions *= front.size(k);
  }

  std::vector<int64_t> table_shape = {positions};
  std::vector<int64_t> value_shape = {linear.numel()};
  table_shape.insert(table_shape.end(), rest.begin(), rest.end());
  value_shape.insert(value_shape.end(), rest.begin(), rest.end());
  Tensor table = front.contiguous();  // copy: indexed dimensions become one
  table = table.view(table_shape);
  const Tensor rows = values.reshape(value_shape);
  scatter_into(table,
               spread(linear.reshape({-1}), rows.sizes(), 0),
               rows,
               table,
               accumulate ? Indexed::kAdd : Indexed::kPut,
               {.op = "index_put_", .skipped = -1});
  if (!front.is_contiguous()) {
    front.copy_(table.view(front.sizes()));
  }
}

}  // namespace
}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub,
                              &torch_opencl::ops::index_put_in_order)

}  // namespace at::native
