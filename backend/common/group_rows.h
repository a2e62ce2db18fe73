// How rows are laid out over work-groups, for kernels that include
// group_rows.clh.
#pragma once

#include <algorithm>
#include <cstdint>
#include "integers.h"

namespace torch_opencl::ops {

struct GroupRows {
  static constexpr int64_t kItems = 8;  // ITEMS: elements an item keeps
  static constexpr int64_t kMostAcross = 16;

  // `across`: neighbouring rows whose elements lie side by side; 1 where rows
  // are contiguous.
  GroupRows(int64_t size, int64_t across) {
    const int64_t wanted = ceil_div(size, kItems);
    const int64_t rows =
        power_of_two_from(std::clamp<int64_t>(across, 1, kMostAcross));
    work_group = wanted * rows > 128 ? 256 : 128;
    span = power_of_two_from(std::clamp<int64_t>(wanted, 1, work_group / rows));
    keeps = size <= span * kItems;
  }

  int64_t groups(int64_t rows) const {
    const int64_t rows_a_group = work_group / span;
    return ceil_div(rows, rows_a_group);
  }

  int64_t work_group;
  int64_t span;  // work-items of a row, a power of two
  bool keeps;    // a row fits into its work-items' registers
};

}  // namespace torch_opencl::ops
