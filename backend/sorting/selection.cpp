#include "selection.h"
#include "../common/integers.h"
#include "../common/lanes.h"
#include "sort.h"

#include "../../cpp/aten/launch.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

// Elements worth a work-item.
constexpr int64_t kElements = 8192;
constexpr int64_t kItems = 64;
// Numbers of 64 bits.
constexpr int64_t kState = 5;  // state_t
constexpr int64_t kBelow = 3;  // below_t

}  // namespace

Tensor selected_columns(const Tensor& rows, RankRule rule, int64_t rank) {
  const int64_t count = rows.size(0);
  const int64_t columns = rows.size(1);
  check_columns(rows);
  const at::ScalarType type = rows.scalar_type();
  const bool is_wide = c10::elementSize(type) == 8;
  const std::initializer_list<Define> defines{
      {"DTYPE", dtype_of(rows)},
      {"IS_FLOATING", at::isFloatingType(type)},
      {"IS_BOOL", type == at::kBool},
      {"WIDE_KEY", is_wide}};
  const at::TensorOptions longs = rows.options().dtype(at::kLong);
  const auto key_options = longs.dtype(is_wide ? at::kLong : at::kInt);
  const Tensor place = at::empty({count, 1}, longs);
  const auto of_columns = static_cast<int32_t>(columns);
  const int64_t parts_wanted =
      std::min(ceil_div(columns, kElements), ceil_div(kItems, count));
  if (parts_wanted < 4 || count * 4 >= kItems) {
    const int64_t tile =
        std::max(ceil_div(kElements, columns), ceil_div(count, kItems));
    const int64_t items = ceil_div(count, tile);
    const Tensor keys =
        at::empty({items, ceil_div(columns, kLanes) * kLanes}, key_options);
    launch(rows,
           sources::selection,
           "select_rows",
           defines,
           range(items, 1),
           arg_in(rows),
           arg(keys),
           arg(place),
           count,
           of_columns,
           tile,
           rank,
           static_cast<int32_t>(rule));
    return place;
  }
  const int64_t part =
      ceil_div(ceil_div(columns, parts_wanted), kLanes) * kLanes;
  const int64_t parts = ceil_div(columns, part);
  const auto of_part = static_cast<int32_t>(part);
  const NDRange work = range(parts, count, 1, 1);
  const Tensor keys = at::empty({count, parts * part}, key_options);
  const Tensor numbers = at::empty({count, parts}, longs);
  Tensor states = at::empty({count * kState}, longs);
  Tensor counts = at::empty({count * parts * kBelow}, longs);
  Tensor new_states = at::empty_like(states);
  Tensor new_counts = at::empty_like(counts);
  launch(rows,
         sources::selection,
         "make_keys",
         defines,
         work,
         arg_in(rows),
         arg(keys),
         arg(numbers),
         of_columns,
         of_part);
  for (int pass = 0; pass < (is_wide ? 32 : 16); ++pass) {
    launch(rows,
           sources::selection,
           "count_below",
           defines,
           work,
           arg_in(keys),
           arg_in(numbers),
           arg_in(states),
           arg_in(counts),
           arg(new_states),
           arg(new_counts),
           of_columns,
           of_part,
           static_cast<int32_t>(pass == 0),
           rank,
           static_cast<int32_t>(rule));
    std::swap(states, new_states);
    std::swap(counts, new_counts);
  }
  launch(rows,
         sources::selection,
         "find_place",
         defines,
         range(count, 1),
         arg_in(keys),
         arg_in(states),
         arg_in(counts),
         arg(place),
         of_columns,
         of_part,
         static_cast<int32_t>(parts));
  return place;
}

}  // namespace torch_opencl::ops
