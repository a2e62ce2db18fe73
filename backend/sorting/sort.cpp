// sort, and with it argsort and msort.
#include "sort.h"

#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/int_size.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>

#include <algorithm>
#include <utility>

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

// Keys are of 64 bits where the elements are, otherwise of 32.
at::TensorOptions key_options(const Tensor& rows) {
  const bool is_wide = rows.element_size() == 8;
  return rows.options().dtype(is_wide ? at::kLong : at::kInt);
}

// Of elements or of their keys.
Define width_of_key(const Tensor& rows) {
  return {rows.element_size() == 8 ? "WIDE_KEY" : "NARROW_KEY", 1};
}

// Rows of sorted runs of keys, and the column that each came from.
struct SortedRuns {
  Tensor keys;
  Tensor order;
};

// Launches the merge of pairs of runs of `width` elements.
using MergePass = void(const SortedRuns& from,
                       const SortedRuns& to,
                       int64_t width,
                       int64_t kept);

// Merges runs until each row is one.
Tensor merge_all(SortedRuns from,
                 int64_t width,
                 int64_t kept,
                 MergePass& merge) {
  SortedRuns to{at::empty_like(from.keys), at::empty_like(from.order)};
  for (; width < from.keys.size(1); width *= 2) {
    merge(from, to, width, kept);
    std::swap(from, to);
  }
  return from.order.narrow(1, 0, kept);
}

void merge_runs(const SortedRuns& from,
                const SortedRuns& to,
                int64_t width,
                int64_t kept) {
  // Longer chunks spend less on finding their inputs.
  const int64_t longest_chunk = 512;
  const auto columns = static_cast<int32_t>(from.keys.size(1));
  const int64_t outputs = std::min(2 * width, kept);
  const int64_t chunk = std::min(outputs, longest_chunk);
  const int64_t pairs = ceil_div(columns, 2 * width);
  launch(
      from.keys,
      sources::sort,
      "merge_runs",
      {{"WG_SIZE", kWorkGroup}, width_of_key(from.keys)},
      range(pairs * ceil_div(outputs, chunk), from.keys.size(0), kWorkGroup, 1),
      arg_in(from.keys),
      arg_in(from.order),
      arg(to.keys),
      arg(to.order),
      columns,
      static_cast<int32_t>(width),
      static_cast<int32_t>(chunk),
      static_cast<int32_t>(kept));
}

// On CPUs.
Tensor order_by_runs(const Tensor& rows, bool descending, int64_t kept) {
  const int64_t columns = rows.size(1);
  // A short list of the best so far passes over many elements at once.
  const int64_t run = kept < kRun ? 512 : kRun;
  SortedRuns sorted{at::empty(rows.sizes(), key_options(rows)),
                    at::empty(rows.sizes(), rows.options().dtype(at::kInt))};
  launch(rows,
         sources::sort,
         "sort_runs",
         {{"DTYPE", dtype_of(rows)},
          {"RUN", kRun},
          {"WG_SIZE", kWorkGroup},
          {"DESCENDING", descending},
          kind_of(rows.scalar_type()),
          width_of_key(rows)},
         range(ceil_div(columns, run), rows.size(0), kWorkGroup, 1),
         arg_in(rows),
         arg(sorted.keys),
         arg(sorted.order),
         static_cast<int32_t>(columns),
         static_cast<int32_t>(run),
         static_cast<int32_t>(kept));
  if (columns <= run) {
    return sorted.order.narrow(1, 0, kept);
  }
  return merge_all(std::move(sorted), run, kept, merge_runs);
}

constexpr int64_t kGroup = 128;  // WG_SIZE of sort_groups.cl

// ITEMS of sort_groups.cl.
int64_t items_of(const Tensor& rows) {
  return rows.element_size() == 8 ? 4 : 8;
}

// What a sort by groups is asked for.
struct GroupSort {
  Tensor rows;
  bool descending;
  int64_t kept;
  int64_t tile = kGroup * items_of(rows);
  // Candidates of each block are sorted again while few are kept.
  bool selects = kept * 4 <= tile;
};

struct SortedBlocks {
  SortedRuns runs;  // a block each
  int64_t blocks;   // of a row
};

// Sorts blocks of the rows, or of the candidates that `from` has of them.
SortedBlocks sort_blocks(const GroupSort& s, const SortedRuns& from) {
  const bool from_keys = from.keys.defined();
  const int64_t count = s.rows.size(0);
  const int64_t columns = (from_keys ? from.keys : s.rows).size(1);
  const int64_t items = items_of(s.rows);
  const int64_t span =
      std::min<int64_t>(kGroup, power_of_two_from(ceil_div(columns, items)));
  const int64_t width = span * items;
  const int64_t blocks = ceil_div(columns, width);
  const int64_t of_block = s.selects ? std::min(s.kept, width) : width;
  const int64_t last = columns - (blocks - 1) * width;
  const int64_t pitch = (blocks - 1) * of_block + std::min(of_block, last);
  const Tensor keys = at::empty({count, pitch}, key_options(s.rows));
  const Tensor order =
      at::empty({count, pitch}, s.rows.options().dtype(at::kInt));
  const auto launch_on = [&](const auto&... read) {
    launch(s.rows,
           sources::sort_groups,
           "sort_blocks",
           {{"DTYPE", dtype_of(s.rows)},
            {"DESCENDING", s.descending},
            {"FROM_KEYS", from_keys},
            kind_of(s.rows.scalar_type()),
            width_of_key(s.rows)},
           range(blocks * kGroup, ceil_div(count, kGroup / span), kGroup, 1),
           read...,
           arg(keys),
           arg(order),
           count,
           static_cast<int32_t>(columns),
           static_cast<int32_t>(span),
           static_cast<int32_t>(of_block),
           static_cast<int32_t>(pitch));
  };
  if (from_keys) {
    launch_on(arg_in(from.keys), arg_in(from.order));
  } else {
    launch_on(arg_in(s.rows));
  }
  return {{keys, order}, blocks};
}

void merge_blocks(const SortedRuns& from,
                  const SortedRuns& to,
                  int64_t width,
                  int64_t kept) {
  const int64_t columns = from.keys.size(1);
  const int64_t tile = kGroup * items_of(from.keys);
  const int64_t pairs = ceil_div(columns, 2 * width);
  const int64_t tiles = ceil_div(std::min({2 * width, kept, columns}), tile);
  launch(from.keys,
         sources::sort_groups,
         "merge_blocks",
         {width_of_key(from.keys)},
         range(pairs * tiles * kGroup, from.keys.size(0), kGroup, 1),
         arg_in(from.keys),
         arg_in(from.order),
         arg(to.keys),
         arg(to.order),
         static_cast<int32_t>(columns),
         static_cast<int32_t>(width),
         static_cast<int32_t>(tiles),
         static_cast<int32_t>(kept));
}

// On GPUs.
Tensor order_by_groups(const Tensor& rows, bool descending, int64_t kept) {
  const GroupSort s{rows, descending, kept};
  SortedBlocks sorted = sort_blocks(s, {});
  while (s.selects && sorted.blocks > 1) {
    sorted = sort_blocks(s, sorted.runs);
  }
  if (sorted.blocks == 1) {
    return sorted.runs.order.narrow(1, 0, kept);
  }
  return merge_all(std::move(sorted.runs), s.tile, kept, merge_blocks);
}

}  // namespace

void check_columns(const Tensor& rows) {
  int_size("sort", rows.size(1));
}

void check_sortable(const char* op, const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  check_implemented(
      !at::isComplexType(type) && !at::isFloat8Type(type), op, type);
}

Tensor sorted_order_int32(const Tensor& rows, bool descending, int64_t kept) {
  check_columns(rows);
  if (rows.numel() == 0 || kept == 0) {
    return at::empty({rows.size(0), kept}, rows.options().dtype(at::kInt));
  }
  return aten::device_of(rows).is_cpu()
             ? order_by_runs(rows, descending, kept)
             : order_by_groups(rows, descending, kept);
}

Tensor sorted_order(const Tensor& rows, bool descending, int64_t kept) {
  return sorted_order_int32(rows, descending, kept)
      .to(at::kLong)
      .contiguous();  // copy: callers view it
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
