#include "scan_groups.h"

#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kGroup = 128;       // WG_SIZE
constexpr int64_t kMostAcross = 16;   // lines side by side that a group takes
constexpr int64_t kMostChunks = 256;  // of a line
constexpr int64_t kLeastTiles = 4;    // of a chunk
constexpr int64_t kGroups = 1024;     // that keep any GPU busy
constexpr int64_t kStateLongs = 3;    // state_t at most

// How lines are laid out over groups.
struct Plan {
  Plan(const Lines& lines, int64_t items) {
    const int64_t across = lines.inner == 1 ? 1 : lines.inner;
    const int64_t most =
        kGroup / std::min(power_of_two_from(across), kMostAcross);
    const int64_t wanted = power_of_two_from(
        ceil_div(std::min(lines.length, kGroup * items), items));
    span = std::min(wanted, most);
    const int64_t rows = kGroup / span;
    groups = lines.inner == 1
                 ? ceil_div(lines.count, rows)
                 : lines.count / lines.inner * ceil_div(lines.inner, rows);
    const int64_t width = span * items;
    const int64_t tiles = ceil_div(lines.length, width);
    const int64_t wanted_chunks = std::clamp<int64_t>(
        std::min(kGroups / groups, tiles / kLeastTiles), 1, kMostChunks);
    chunk = ceil_div(tiles, wanted_chunks) * width;
    chunks = ceil_div(lines.length, chunk);
  }

  int64_t span;
  int64_t groups;
  int64_t chunk;
  int64_t chunks;
};

// What the state of an extreme is kept in. Mesa 22.3 loses 8-bit members of
// structs in local memory.
DType state_dtype_of(const Tensor& tensor) {
  const bool is_narrow =
      !tensor.is_floating_point() && tensor.element_size() < 4;
  return dtype_of(is_narrow ? at::kInt : tensor.scalar_type());
}

}  // namespace

void scan_by_groups(const char* define,
                    bool is_maximum,
                    const Tensor& out,
                    const Tensor& indices,
                    const Tensor& input,
                    const Lines& lines) {
  const int log_items = out.element_size() == 8 ? 2 : 3;
  const Plan plan(lines, int64_t{1} << log_items);
  const Tensor totals = at::empty(
      {std::max<int64_t>((plan.chunks - 1) * lines.count, 1) * kStateLongs},
      out.options().dtype(at::kLong));
  const auto launch_chunks =
      [&](bool of_totals, int64_t chunks, const auto&... written) {
        launch(out,
               sources::scan_groups,
               of_totals ? "scan_totals" : "scan_groups",
               {{"DTYPE", dtype_of(out)},
                {"STATE_DTYPE", state_dtype_of(out)},
                {"LOG_ITEMS", log_items},
                {define, 1},
                {"IS_FLOATING", out.is_floating_point()},
                {"IS_MAXIMUM", is_maximum},
                {"TOTALS", of_totals}},
               range(plan.groups * kGroup, chunks, kGroup, 1),
               written...,
               arg_in(input),
               arg(totals),
               lines.count,
               lines.length,
               lines.inner,
               plan.chunk,
               static_cast<int32_t>(plan.chunks),
               static_cast<int32_t>(
                   std::countr_zero(static_cast<uint64_t>(plan.span))));
      };
  if (plan.chunks > 1) {
    launch_chunks(true, plan.chunks - 1);
  }
  if (indices.defined()) {
    launch_chunks(false, plan.chunks, arg(out), arg(indices));
  } else {
    launch_chunks(false, plan.chunks, arg(out));
  }
}

}  // namespace torch_opencl::ops
