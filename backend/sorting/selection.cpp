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

// A call's plain values.
struct Selection {
  Tensor rows;
  RankRule rule;
  int64_t rank;
  int64_t count = rows.size(0);
  int32_t columns = static_cast<int32_t>(rows.size(1));
  DType dtype = dtype_of(rows);
  bool is_wide = rows.element_size() == 8;  // keys of 64 bits

  at::TensorOptions long_options() const {
    return rows.options().dtype(at::kLong);
  }
  at::TensorOptions key_options() const {
    return rows.options().dtype(is_wide ? at::kLong : at::kInt);
  }

  template <class... Arguments>
  void run(const char* kernel,
           const NDRange& work,
           const Arguments&... arguments) const {
    launch(rows,
           sources::selection,
           kernel,
           {{"DTYPE", dtype},
            {"IS_FLOATING", at::isFloatingType(rows.scalar_type())},
            {"IS_BOOL", dtype == DType::kBool},
            {"WIDE_KEY", is_wide}},
           work,
           arguments...);
  }
};

// A work-item takes a tile of rows, one after the other.
void select_by_rows(const Selection& s, const Tensor& place) {
  const int64_t tile =
      std::max(ceil_div(kElements, s.columns), ceil_div(s.count, kItems));
  const int64_t items = ceil_div(s.count, tile);
  const Tensor keys =
      at::empty({items, round_up(s.columns, kLanes)}, s.key_options());
  s.run("select_rows",
        range(items, 1),
        arg_in(s.rows),
        arg(keys),
        arg(place),
        s.count,
        s.columns,
        tile,
        s.rank,
        static_cast<int32_t>(s.rule));
}

// A work-item takes a part of a row, `wanted` parts or fewer. Every pass
// settles two bits of the key at the rank.
void select_by_parts(const Selection& s, int64_t wanted, const Tensor& place) {
  const int64_t part_size = round_up(ceil_div(s.columns, wanted), kLanes);
  const int64_t parts = ceil_div(s.columns, part_size);
  const auto part = static_cast<int32_t>(part_size);
  const NDRange work = range(parts, s.count, 1, 1);
  const Tensor keys = at::empty({s.count, parts * part_size}, s.key_options());
  const Tensor numbers = at::empty({s.count, parts}, s.long_options());
  Tensor states = at::empty({s.count * kState}, s.long_options());
  Tensor counts = at::empty({s.count * parts * kBelow}, s.long_options());
  Tensor new_states = at::empty_like(states);
  Tensor new_counts = at::empty_like(counts);
  s.run("make_keys",
        work,
        arg_in(s.rows),
        arg(keys),
        arg(numbers),
        s.columns,
        part);
  for (int pass = 0; pass < (s.is_wide ? 32 : 16); ++pass) {
    s.run("count_below",
          work,
          arg_in(keys),
          arg_in(numbers),
          arg_in(states),
          arg_in(counts),
          arg(new_states),
          arg(new_counts),
          s.columns,
          part,
          static_cast<int32_t>(pass == 0),
          s.rank,
          static_cast<int32_t>(s.rule));
    std::swap(states, new_states);
    std::swap(counts, new_counts);
  }
  s.run("find_place",
        range(s.count, 1),
        arg_in(keys),
        arg_in(states),
        arg_in(counts),
        arg(place),
        s.columns,
        part,
        static_cast<int32_t>(parts));
}

}  // namespace

Tensor selected_columns(const Tensor& rows, RankRule rule, int64_t rank) {
  check_columns(rows);
  const Selection s{rows, rule, rank};
  const Tensor place = at::empty({s.count, 1}, s.long_options());
  const int64_t parts =
      std::min(ceil_div(s.columns, kElements), ceil_div(kItems, s.count));
  if (parts < 4 || s.count * 4 >= kItems) {
    select_by_rows(s, place);
  } else {
    select_by_parts(s, parts, place);
  }
  return place;
}

}  // namespace torch_opencl::ops
