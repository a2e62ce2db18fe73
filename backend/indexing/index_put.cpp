// index_put_ with accumulate, in the order of the indices.
#include <ATen/ExpandUtils.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using at::Tensor;

// Sums equal positions one after the other, so the same input gives the same
// bits. Positions of the indexed dimensions become one linear index into a
// contiguous copy whose indexed dimensions lie in front.
void index_put_in_order(Tensor& self,
                        const c10::List<std::optional<Tensor>>& indices,
                        const Tensor& value,
                        bool accumulate,
                        bool /*unsafe*/) {
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

  Tensor linear;
  Tensor is_valid;
  int64_t positions = 1;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t size = front.size(k);
    Tensor index = ordered[k].to(at::kLong);
    index = at::where(index.lt(0), index.add(size), index);
    const Tensor inside = index.ge(0).logical_and(index.lt(size));
    is_valid = is_valid.defined() ? is_valid.logical_and(inside) : inside;
    linear = linear.defined() ? linear.mul(size).add(index) : index;
    positions *= size;
  }
  linear = at::where(is_valid, linear, at::full_like(linear, positions));

  std::vector<int64_t> table_shape = {positions};
  std::vector<int64_t> value_shape = {linear.numel()};
  table_shape.insert(table_shape.end(), rest.begin(), rest.end());
  value_shape.insert(value_shape.end(), rest.begin(), rest.end());
  Tensor table = front.contiguous();  // copy: indexed dimensions become one
  table = table.view(table_shape);
  const Tensor flat = linear.reshape({-1});
  if (accumulate) {
    table.index_add_(0, flat, values.reshape(value_shape));
  } else {
    table.index_copy_(0, flat, values.reshape(value_shape));
  }
  front.copy_(table.view(front.sizes()));
}

}  // namespace
}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(index_put_with_sort_stub,
                              &torch_opencl::ops::index_put_in_order)

}  // namespace at::native
