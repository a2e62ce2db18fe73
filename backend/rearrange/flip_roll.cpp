// flip and roll: permutations of elements.
#include "../../cpp/aten/launch.h"
#include "../common/bits.h"
#include "../common/integers.h"
#include "kernel_sources.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::IntArrayRef;
using at::Tensor;

constexpr int kRank = 8;
constexpr int kStep = 48;  // full vectors, and pixels of three channels
// Elements of a work-item.
constexpr int64_t kLeast = 4096;
constexpr int64_t kMost = 65536;

// problem_t of flip_roll.cl.
struct FlipRollProblem {
  std::array<int64_t, kRank> sizes;
  std::array<int64_t, kRank> turns;
  std::array<int64_t, kRank> out_strides;
  std::array<int64_t, kRank> self_strides;
  int64_t start;
  int64_t rows;
  int32_t rank;
  int32_t segment;
  int32_t chunk;
};

// What happens along a dimension.
struct Move {
  bool flips = false;
  int64_t first = 0;  // the element that comes first in the result
};
using Moves = std::vector<Move>;

// Makes one dimension of pixels of three channels, of which either the pixels
// or the channels are flipped.
bool joins_threes(FlipRollProblem& p) {
  if (p.rank < 2 || p.sizes[0] != 3 || p.turns[0] != 3 ||
      p.turns[1] != p.sizes[1] || p.out_strides[0] != 1 ||
      p.out_strides[1] != 3 || std::abs(p.self_strides[0]) != 1 ||
      p.self_strides[1] != -3 * p.self_strides[0]) {
    return false;
  }
  p.self_strides[1] = -p.self_strides[0];
  p.out_strides[1] = 1;
  p.turns[1] = p.sizes[1] *= 3;
  const auto drop_first = [](auto& values) {
    std::rotate(values.begin(), values.begin() + 1, values.end());
  };
  drop_first(p.sizes);
  drop_first(p.turns);
  drop_first(p.out_strides);
  drop_first(p.self_strides);
  --p.rank;
  return true;
}

// Dimensions of more than one element, from the innermost in memory.
std::vector<int64_t> memory_order(const Tensor& out) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < out.dim(); ++d) {
    if (out.size(d) != 1) {
      order.push_back(d);
    }
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return out.stride(a) < out.stride(b);
  });
  return order;
}

// The dimensions, merged where they can be, unless they are too many.
std::optional<FlipRollProblem> problem_of(const Tensor& self,
                                          const Tensor& out,
                                          const Moves& moves) {
  FlipRollProblem p{};
  for (const int64_t d : memory_order(out)) {
    const int64_t size = out.size(d);
    const int64_t stride = moves[d].flips ? -self.stride(d) : self.stride(d);
    p.start -= moves[d].flips ? (size - 1) * stride : 0;
    p.start += moves[d].first * stride;
    const int64_t turn = size - moves[d].first;
    const int last = p.rank - 1;
    if (p.rank > 0 && p.turns[last] == p.sizes[last] &&
        out.stride(d) == p.out_strides[last] * p.sizes[last] &&
        stride == p.self_strides[last] * p.sizes[last]) {
      p.turns[last] = turn * p.sizes[last];
      p.sizes[last] *= size;
      continue;
    }
    if (p.rank == kRank) {
      return std::nullopt;
    }
    p.sizes[p.rank] = size;
    p.turns[p.rank] = turn;
    p.out_strides[p.rank] = out.stride(d);
    p.self_strides[p.rank++] = stride;
  }
  return p;
}

void launch_rows(const Tensor& self, const Tensor& out, FlipRollProblem& p) {
  const bool threes = joins_threes(p);
  const int64_t units = aten::device_of(out).info().compute_units;
  const int64_t elements =
      std::clamp(out.numel() / (32 * units), kLeast, kMost);
  p.rows = out.numel() / p.sizes[0];
  p.segment = std::min(p.sizes[0], round_up(elements, kStep));
  p.chunk = std::max<int64_t>(1, elements / p.segment);
  const int64_t stride = p.self_strides[0];
  launch(out,
         sources::flip_roll,
         "move_rows",
         {{"DTYPE", bits_dtype(out.element_size())},
          {"DIRECTION",
           stride == 1    ? 1
           : stride == -1 ? -1
                          : 0},
          {"THREES", threes}},
         range((p.sizes[0] + p.segment - 1) / p.segment,
               (p.rows + p.chunk - 1) / p.chunk,
               1,
               1),
         p,
         arg(out),
         arg_in(self));
}

void launch_elements(const Tensor& self,
                     const Tensor& out,
                     const FlipRollProblem& p) {
  launch(out,
         sources::flip_roll,
         "move_elements",
         {{"DTYPE", bits_dtype(out.element_size())},
          {"INDEX64", !fits_int32(out.numel())},
          {"WG_SIZE", kWorkGroup}},
         range(out.numel(), kWorkGroup),
         p,
         arg(out),
         arg_in(self),
         out.numel());
}

// Copies all dimensions at once and returns true, unless they are too many.
bool move_at_once(const Tensor& self, const Tensor& out, Moves moves) {
  if (out.element_size() > int64_t{sizeof(int64_t)}) {
    moves.emplace_back();
    return move_at_once(
        at::view_as_real(self), at::view_as_real(out), std::move(moves));
  }
  std::optional<FlipRollProblem> problem = problem_of(self, out, moves);
  if (!problem) {
    return false;
  }
  if (aten::device_of(out).is_cpu()) {
    launch_rows(self, out, *problem);
  } else {
    launch_elements(self, out, *problem);
  }
  return true;
}

Tensor flip_one_by_one(const Tensor& self, IntArrayRef dims) {
  Tensor result = self.clone(at::MemoryFormat::Preserve);
  for (const int64_t dim : dims) {
    const int64_t size = self.size(dim);
    if (size > 1) {
      Tensor flipped = at::empty_like(result);
      at::index_select_out(
          flipped,
          result,
          dim,
          at::arange(size - 1, -1, -1, self.options().dtype(at::kLong)));
      result = flipped;
    }
  }
  return result;
}

Tensor flip(const Tensor& self, IntArrayRef dims) {
  // Refuses repeated dimensions.
  const auto flipped = at::dim_list_to_bitset(dims, self.dim());
  if (self.numel() < 2) {
    return self.clone(at::MemoryFormat::Preserve);
  }
  Moves moves(self.dim());
  for (int64_t d = 0; d < self.dim(); ++d) {
    moves[d].flips = flipped[d];
  }
  Tensor out = at::empty_like(self, at::MemoryFormat::Preserve);
  if (move_at_once(self, out, std::move(moves))) {
    return out;
  }
  return flip_one_by_one(self, dims);
}

int64_t first_of(int64_t size, int64_t shift) {
  return ((size - shift) % size + size) % size;
}

Tensor roll_one_by_one(const Tensor& self,
                       IntArrayRef shifts,
                       IntArrayRef dims) {
  Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = at::maybe_wrap_dim(dims[i], self.dim());
    const int64_t size = self.size(dim);
    const int64_t first = first_of(size, shifts[i]);
    if (first > 0) {
      result = at::cat({result.narrow(dim, first, size - first),
                        result.narrow(dim, 0, first)},
                       dim);
    } else {
      result = result.contiguous();  // copy: as on the CPU
    }
  }
  return result.is_same(self) ? self.clone(at::MemoryFormat::Preserve) : result;
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    return roll(self.reshape({-1}), shifts, 0).view(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ",
              shifts.size(),
              ", dims:",
              dims.size());
  Moves moves(self.dim());
  bool rolls = false;
  // The CPU joins two parts, of which an empty one counts as contiguous.
  at::MemoryFormat format = self.suggest_memory_format();
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim =
        at::maybe_wrap_dim(dims[i], self.dim(), /*wrap_scalar=*/false);
    if (self.numel() > 0) {
      Move& move = moves[dim];
      if (first_of(self.size(dim), shifts[i]) == 0) {
        format = at::MemoryFormat::Contiguous;
      }
      move.first = first_of(self.size(dim), shifts[i] - move.first);
      rolls |= move.first > 0;
    }
  }
  if (!rolls) {
    return self.clone(self.numel() == 0 ? at::MemoryFormat::Preserve : format);
  }
  Tensor out = at::empty(self.sizes(), self.options(), format);
  if (move_at_once(self, out, std::move(moves))) {
    return out;
  }
  return roll_one_by_one(self, shifts, dims);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("flip", TORCH_FN(flip));
  m.impl("roll", TORCH_FN(roll));
}

}  // namespace torch_opencl::ops
