// sort, and with it argsort and msort.
#include "sort.h"

#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int kWorkGroup = 16;
constexpr int kRun = 16;  // RUN of sort.cl

Define kind_of(at::ScalarType type) {
  if (at::isFloatingType(type)) {
    return {"IS_FLOATING", 1};
  }
  return {at::isSignedType(type) ? "IS_SIGNED" : "IS_UNSIGNED", 1};
}

Tensor first_of(const Tensor& order, int64_t kept) {
  const Tensor first = order.narrow(1, 0, kept).to(at::kLong);
  return first.contiguous();  // copy: callers view it
}

// On GPUs.
Tensor order_by_groups(const Tensor& rows, bool descending, int64_t kept) {
  constexpr int64_t kGroup = 128;  // WG_SIZE of sort_groups.cl
  const at::ScalarType type = rows.scalar_type();
  const bool is_wide = c10::elementSize(type) == 8;
  const int64_t items = is_wide ? 4 : 8;  // ITEMS
  const int64_t tile = kGroup * items;
  const at::TensorOptions options = rows.options();
  const auto key_options = options.dtype(is_wide ? at::kLong : at::kInt);
  const Define width_of_key(is_wide ? "WIDE_KEY" : "NARROW_KEY", 1);
  const auto int_of = [](int64_t value) { return static_cast<int32_t>(value); };
  const int64_t count = rows.size(0);
  int64_t columns = rows.size(1);
  // Candidates of each block are sorted again while few are kept.
  const bool selects = kept * 4 <= tile;
  Tensor keys;
  Tensor order;
  const auto sort_blocks = [&](bool from_keys) {
    const int64_t span =
        std::min<int64_t>(kGroup, power_of_two_from(ceil_div(columns, items)));
    const int64_t width = span * items;
    const int64_t blocks = ceil_div(columns, width);
    const int64_t of_block = selects ? std::min(kept, width) : width;
    const int64_t last = columns - (blocks - 1) * width;
    const int64_t pitch = (blocks - 1) * of_block + std::min(of_block, last);
    const Tensor sorted = at::empty({count, pitch}, key_options);
    const Tensor places = at::empty({count, pitch}, options.dtype(at::kInt));
    const auto launch_on = [&](const auto&... read) {
      launch(rows,
             sources::sort_groups,
             "sort_blocks",
             {{"DTYPE", dtype_of(rows)},
              {"DESCENDING", descending},
              {"FROM_KEYS", from_keys},
              kind_of(type),
              width_of_key},
             range(blocks * kGroup, ceil_div(count, kGroup / span), kGroup, 1),
             read...,
             arg(sorted),
             arg(places),
             int_of(count),
             int_of(columns),
             int_of(span),
             int_of(of_block),
             int_of(pitch));
    };
    if (from_keys) {
      launch_on(arg_in(keys), arg_in(order));
    } else {
      launch_on(arg_in(rows));
    }
    keys = sorted;
    order = places;
    columns = pitch;
    return blocks;
  };
  int64_t blocks = sort_blocks(false);
  while (selects && blocks > 1) {
    blocks = sort_blocks(true);
  }
  if (blocks == 1) {
    return first_of(order, kept);
  }
  Tensor merged_keys = at::empty_like(keys);
  Tensor merged_order = at::empty_like(order);
  for (int64_t width = tile; width < columns; width *= 2) {
    const int64_t pairs = ceil_div(columns, 2 * width);
    const int64_t tiles = ceil_div(std::min({2 * width, kept, columns}), tile);
    launch(rows,
           sources::sort_groups,
           "merge_blocks",
           {width_of_key},
           range(pairs * tiles * kGroup, count, kGroup, 1),
           arg_in(keys),
           arg_in(order),
           arg(merged_keys),
           arg(merged_order),
           int_of(columns),
           int_of(width),
           int_of(tiles),
           int_of(kept));
    std::swap(keys, merged_keys);
    std::swap(order, merged_order);
  }
  return first_of(order, kept);
}

}  // namespace

void check_columns(const Tensor& rows) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      fits_int32(rows.size(1)),
      "sort: 2^31 elements and more along the sorted dimension of an opencl "
      "tensor");
}

void check_sortable(const char* op, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  check_implemented(
      !at::isComplexType(type) && !at::isFloat8Type(type), op, type);
}

Tensor sorted_order(const Tensor& rows, bool descending, int64_t kept) {
  const int64_t columns = rows.size(1);
  check_columns(rows);
  const at::TensorOptions options = rows.options();
  if (rows.numel() == 0 || kept == 0) {
    return at::empty({rows.size(0), kept}, options.dtype(at::kLong));
  }
  if (!aten::device_of(rows).is_cpu()) {
    return order_by_groups(rows, descending, kept);
  }
  // A short list of the best so far passes over many elements at once.
  const int64_t run = kept < kRun ? 512 : kRun;
  const at::ScalarType type = rows.scalar_type();
  const bool is_wide = c10::elementSize(type) == 8;
  const auto key_options = options.dtype(is_wide ? at::kLong : at::kInt);
  Tensor keys = at::empty(rows.sizes(), key_options);
  Tensor order = at::empty(rows.sizes(), options.dtype(at::kInt));
  const Define width_of_key(is_wide ? "WIDE_KEY" : "NARROW_KEY", 1);
  launch(rows,
         sources::sort,
         "sort_runs",
         {{"DTYPE", dtype_of(rows)},
          {"RUN", kRun},
          {"WG_SIZE", kWorkGroup},
          {"DESCENDING", descending},
          kind_of(type),
          width_of_key},
         range(ceil_div(columns, run), rows.size(0), kWorkGroup, 1),
         arg_in(rows),
         arg(keys),
         arg(order),
         static_cast<int32_t>(columns),
         static_cast<int32_t>(run),
         static_cast<int32_t>(kept));
  if (columns <= run) {
    return first_of(order, kept);
  }
  Tensor merged_keys = at::empty_like(keys);
  Tensor merged_order = at::empty_like(order);
  // Longer chunks spend less on finding their inputs.
  const int64_t longest_chunk = 512;
  for (int64_t width = run; width < columns; width *= 2) {
    const int64_t outputs = std::min(2 * width, kept);
    const int64_t chunk = std::min(outputs, longest_chunk);
    const int64_t pairs = (columns + 2 * width - 1) / (2 * width);
    const int64_t chunks = pairs * (ceil_div(outputs, chunk));
    launch(rows,
           sources::sort,
           "merge_runs",
           {{"WG_SIZE", kWorkGroup}, width_of_key},
           range(chunks, rows.size(0), kWorkGroup, 1),
           arg_in(keys),
           arg_in(order),
           arg(merged_keys),
           arg(merged_order),
           static_cast<int32_t>(columns),
           static_cast<int32_t>(width),
           static_cast<int32_t>(chunk),
           static_cast<int32_t>(kept));
    std::swap(keys, merged_keys);
    std::swap(order, merged_order);
  }
  return first_of(order, kept);
}

Tensor as_rows(const Tensor& self, int64_t dim) {
  if (self.dim() == 0) {
    return self.reshape({1, 1});
  }
  const Tensor last =
      self.movedim(dim, -1).contiguous();  // copy: rows are found by one stride
  const int64_t columns = last.size(-1);
  return last.view({columns == 0 ? 0 : last.numel() / columns, columns});
}

Tensor from_rows(const Tensor& rows, const Tensor& self, int64_t dim) {
  if (self.dim() == 0) {
    return rows.reshape({});
  }
  std::vector<int64_t> sizes = self.movedim(dim, -1).sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes).movedim(-1, dim);
}

namespace {

struct sort_stable_out : at::meta::structured_sort_stable {
  void impl(const Tensor& self,
            std::optional<bool>,
            int64_t dim,
            bool descending,
            const Tensor& values,
            const Tensor& indices) {
    if (self.numel() == 0) {
      return;
    }
    dim = at::maybe_wrap_dim(dim, self.dim());
    const Tensor rows = as_rows(self, dim);
    const Tensor order = sorted_order(rows, descending, rows.size(1));
    values.copy_(from_rows(rows.gather(1, order), self, dim));
    indices.copy_(from_rows(order, self, dim));
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<sort_stable_out, at::_ops::sort_values_stable>(m);
}

}  // namespace torch_opencl::ops
