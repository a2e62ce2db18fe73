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

// `value` expanded to the result's shape, which has the indices' dimensions
// after `before` others; with the indices' dimensions in front.
Tensor values_in_front(const Tensor& value,
                       at::IntArrayRef index_shape,
                       at::IntArrayRef rest,
                       int64_t before) {
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
  return value.expand(shape).permute(order);
}

// One index into the first dimensions of `front`, for each of which there is
// one of `indices`.
Tensor linear_index(const Tensor& front, at::TensorList indices) {
  Tensor linear =
      at::empty(indices[0].sizes(), front.options().dtype(at::kLong));
  if (linear.numel() == 0) {
    return linear;
  }
  for (size_t k = 0; k < indices.size(); ++k) {
    launch(linear,
           sources::range,
           "linear_index",
           {{"DTYPE", DType::kInt64}},
           range(linear.numel(), 64),
           arg(linear),
           arg_in(indices[k].to(at::kLong).contiguous()),  // copy: expanded
           static_cast<uint64_t>(linear.numel()),
           front.size(static_cast<int64_t>(k)),
           static_cast<int32_t>(k),
           reports(linear, "index_put_"));
  }
  return linear;
}

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
  // Indices that stand together keep their place, others go in front.
  const int64_t before = adjacent ? first - given.begin() : 0;
  auto [front, ordered] = at::native::transposeToFront(self, given);
  const auto count = std::count_if(ordered.begin(),
                                   ordered.end(),
                                   [](const Tensor& t) { return t.defined(); });

  const at::IntArrayRef rest = front.sizes().slice(count);
  const Tensor values = values_in_front(
      value.to(self.device()), ordered[0].sizes(), rest, before);
  const Tensor linear =
      linear_index(front, at::TensorList(ordered).slice(0, count));

  const int64_t positions =
      c10::multiply_integers(front.sizes().slice(0, count));
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
