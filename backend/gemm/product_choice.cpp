#include "product_choice.h"
#include "../common/integers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace torch_opencl::ops {

namespace {

struct Member {
  ProductTile tile;
  double fma_per_issue;  // docs/lab/gpu-products.md
};

// The last one is for devices with the least that OpenCL allows.
constexpr Member kMembers[] = {
    {{128, 128, 8, 8, 16}, 0.94},
    {{128, 64, 8, 8, 16}, 0.93},
    {{64, 128, 8, 8, 16}, 0.93},
    {{64, 64, 8, 4, 16}, 0.88},
    {{128, 32, 8, 4, 16}, 0.86},
    {{32, 128, 4, 8, 16}, 0.86},
    {{32, 32, 4, 4, 16}, 0.75},
};
// Eight-byte elements: sums take twice the registers.
constexpr Member kWideMembers[] = {
    {{64, 64, 4, 4, 16}, 0.75},
    {{32, 32, 4, 4, 16}, 0.7},
};
// By matrix units: of 16-bit operands, a step of two of theirs.
constexpr Member kUnitMembers[] = {
    {{128, 128, 8, 8, 32}, 8},
    {{64, 64, 8, 4, 32}, 6},
};

constexpr int64_t kMostParts = 128;
constexpr int64_t kFewestDepth = 32;

double cost_of(const Member& member,
               const ProductSize& size,
               const ProductDevice& device,
               int64_t parts,
               int64_t depth) {
  const ProductTile& tile = member.tile;
  const runtime::TuningNumbers& numbers = device.numbers;
  const auto units = static_cast<double>(device.units);
  const int64_t groups = ceil_div(size.rows, tile.rows) *
                         ceil_div(size.columns, tile.columns) * size.batch *
                         parts;
  const auto rounds = static_cast<double>(ceil_div(groups, device.units));
  const auto steps = static_cast<double>(depth);
  const double multiplied =
      tile.rows * tile.columns * steps / member.fma_per_issue;
  const double loaded = (tile.rows + tile.columns) * steps *
                        numbers.product_float_of_cache *
                        (size.units == MatrixUnits::kNone ? 1 : 0.5);
  double cost = rounds * std::max(multiplied, loaded);
  if (static_cast<double>(groups) < numbers.product_groups_of_unit * units) {
    cost *= numbers.product_alone;
  }
  if (parts > 1) {
    const auto outputs =
        static_cast<double>(size.batch * size.rows * size.columns);
    cost +=
        numbers.product_launch + 2.0 * static_cast<double>(parts) * outputs *
                                     numbers.product_float_of_memory / units;
  }
  return cost;
}

// LANES and LANE_ROWS of product_few.cl.
constexpr int64_t kGroupLanes = 32;
constexpr int64_t kLaneRows = 4;

}  // namespace

int64_t local_bytes(const ProductTile& tile, const ProductSize& size) {
  constexpr int kPad = 4;
  constexpr int kUnitPad = 8;
  const int64_t tiles =
      size.units == MatrixUnits::kNone
          ? int64_t{tile.step} * (tile.rows + tile.columns + 2 * kPad) *
                size.element_bytes
          : int64_t{2} * (tile.rows + tile.columns) * (tile.step + kUnitPad);
  return tiles + (size.is_image ? 16 * tile.columns + 20 * tile.step : 0);
}

namespace {

// Calls `function` with each choice among `members`, the parts to wish for it
// and its cost. The last member fits where `always_fits`.
template <class Function>
void for_each_choice_among(std::span<const Member> members,
                           bool always_fits,
                           const ProductSize& size,
                           const ProductDevice& device,
                           const Function& function) {
  for (const Member& member : members) {
    const ProductTile& tile = member.tile;
    const bool fits = always_fits && &member == &members.back();
    if (!fits && (tile.items() > device.work_group ||
                  local_bytes(tile, size) > device.local_memory)) {
      continue;
    }
    for (int64_t wanted = 1; wanted <= kMostParts; wanted *= 2) {
      if (wanted > 1 && size.depth < wanted * kFewestDepth) {
        break;
      }
      const int64_t depth =
          ceil_div(ceil_div(std::max<int64_t>(size.depth, 1), wanted),
                   tile.step) *
          tile.step;
      const int64_t parts = std::max<int64_t>(ceil_div(size.depth, depth), 1);
      const bool uses_units = size.units != MatrixUnits::kNone;
      // Half types have fewer digits than any sum of theirs in float.
      const bool has_totals =
          !uses_units && std::min(depth, size.depth) > size.sum_block;
      if (!fits && (has_totals || uses_units) && device.has_few_registers &&
          tile.item_rows * tile.item_columns > 32) {
        continue;
      }
      function(ProductChoice{tile, parts, depth, has_totals, size.units},
               wanted,
               cost_of(member, size, device, parts, depth));
    }
  }
}

// The same of matrix units, where a tile of theirs fits, else of all others.
template <class Function>
void for_each_choice(const ProductSize& size,
                     const ProductDevice& device,
                     const Function& function) {
  bool fits_units = false;
  if (size.units != MatrixUnits::kNone) {
    for_each_choice_among(kUnitMembers,
                          /*always_fits=*/false,
                          size,
                          device,
                          [&](const auto&... choice) {
                            fits_units = true;
                            function(choice...);
                          });
  }
  if (fits_units) {
    return;
  }
  ProductSize one_by_one = size;
  one_by_one.units = MatrixUnits::kNone;
  const bool is_wide = size.element_bytes > 4;
  for_each_choice_among(is_wide ? std::span<const Member>(kWideMembers)
                                : std::span<const Member>(kMembers),
                        /*always_fits=*/true,
                        one_by_one,
                        device,
                        function);
}

}  // namespace

ProductChoice choose_product(const ProductSize& size,
                             const ProductDevice& device,
                             const ProductWish& wish) {
  std::optional<ProductChoice> best;
  // What is wished for goes before cost: tile and parts, or the tile.
  std::pair best_rank(3, std::numeric_limits<double>::infinity());
  for_each_choice(
      size,
      device,
      [&](const ProductChoice& choice, int64_t wanted, double cost) {
        const ProductTile& tile = choice.tile;
        const bool has_tile =
            wish.rows == tile.rows && wish.columns == tile.columns;
        const bool has_parts = wish.parts == 0 || wish.parts == wanted;
        const std::pair rank(has_tile ? (has_parts ? 0 : 1) : 2, cost);
        if (rank < best_rank) {
          best_rank = rank;
          best = choice;
        }
      });
  return *best;
}

std::vector<ProductWish> product_candidates(const ProductSize& size,
                                            const ProductDevice& device,
                                            size_t most) {
  std::vector<std::pair<double, ProductWish>> all;
  for_each_choice(
      size,
      device,
      [&](const ProductChoice& choice, int64_t wanted, double cost) {
        all.push_back({cost, {choice.tile.rows, choice.tile.columns, wanted}});
      });
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  std::vector<ProductWish> wishes;
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    wishes.push_back(all[i].second);
  }
  return wishes;
}

FewChoice choose_few(const ProductSize& size,
                     const ProductDevice& device,
                     bool is_along_depth,
                     int width) {
  int few = 1;
  while (few < size.rows) {
    few *= 2;
  }
  const int64_t lines =
      is_along_depth ? kLaneRows * (few > 4 ? 1 : 2) : kGroupLanes * width;
  // What an item steps by, and the steps that a part of the depth is worth.
  const int64_t step = is_along_depth ? kGroupLanes * width : kLaneRows;
  constexpr int64_t kFewestSteps = 8;
  const int64_t groups = ceil_div(size.columns, lines) * size.batch;
  // Work-groups of that kernel have 128 items.
  const auto groups_of_unit =
      static_cast<int64_t>(device.numbers.few_groups_of_unit);
  const int64_t wanted =
      ceil_div(groups_of_unit * device.units, std::max<int64_t>(groups, 1));
  const int64_t most = size.depth / (step * kFewestSteps);
  // A sum is no longer than a block.
  const int64_t fewest = ceil_div(size.depth, step * size.sum_block);
  const int64_t parts = std::max({int64_t{1}, fewest, std::min(wanted, most)});
  const int64_t depth =
      ceil_div(ceil_div(std::max<int64_t>(size.depth, 1), parts), step) * step;
  return {few, lines, std::max<int64_t>(ceil_div(size.depth, depth), 1), depth};
}

}  // namespace torch_opencl::ops
