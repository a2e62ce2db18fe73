// scatter_reduce, scatter with reduce=, and index_reduce.
#include "../../cpp/aten/reports.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/integers.h"
#include "indexed.h"
#include "kernel_sources.h"
#include "segments.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/index_reduce_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;

constexpr int kWorkGroup = 16;

// REDUCE of scatter_reduce.cl; the mean is a sum that is divided after.
enum class Reduce { kSum, kProd, kAmax, kAmin, kMean };

Reduce reduce_of(c10::string_view name) {
  if (name == "sum" || name == "add") {
    return Reduce::kSum;
  }
  if (name == "prod" || name == "multiply") {
    return Reduce::kProd;
  }
  if (name == "amax") {
    return Reduce::kAmax;
  }
  if (name == "amin") {
    return Reduce::kAmin;
  }
  TORCH_CHECK(name == "mean",
              "reduce argument must be either sum, prod, mean, amax or amin, "
              "got ",
              name,
              ".");
  return Reduce::kMean;
}

// All tensors have one number of dimensions; `self`, which is changed in place,
// and the sources are contiguous.
struct ScatterProblem {
  Tensor self;
  Tensor indices;
  Tensor sources;
  int reduce;  // REDUCE
  bool include_self;
  IndexedBy by;

  // Of the index, along `by.dim`.
  int64_t length() const { return indices.size(by.dim); }
  int64_t lines() const { return indices.numel() / length(); }
  // Elements of the index between two of a line.
  int64_t inner() const {
    return c10::multiply_integers(indices.sizes().slice(by.dim + 1));
  }
};

// Element offsets in `self` of the lines of the index.
Tensor line_places(const ScatterProblem& p) {
  const Tensor& index = p.indices;
  Tensor places = at::zeros({1}, index.options().dtype(at::kLong));
  for (int64_t d = 0; d < index.dim(); ++d) {
    const int64_t size = d == p.by.dim ? 1 : index.size(d);
    const Tensor along =
        at::arange(size, index.options()).mul_(p.self.stride(d));
    places = places.unsqueeze(1).add(along).flatten();
  }
  return places;
}

// Lines that a GPU walks each by a work-item: short or many ones. What adds up
// in place walks its lines without what a sort moves; a sort of rows moves
// little.
constexpr int64_t kShortLine = 64;
constexpr int64_t kManyLines = 16384;
constexpr int64_t kManyLinesOfSums = 256;
constexpr int kTargetGroup = 64;

// Whether whole rows of `self` are named: the index is one for all that differ
// in other dimensions.
bool names_rows(const Tensor& self, const Tensor& index, int64_t dim) {
  for (int64_t d = 0; d < index.dim(); ++d) {
    if (d != dim && (index.size(d) != self.size(d) ||
                     (index.size(d) != 1 && index.stride(d) != 0))) {
      return false;
    }
  }
  return true;
}

bool goes_by_segments(const Tensor& self,
                      const Tensor& index,
                      int64_t dim,
                      int64_t many_lines) {
  const int64_t length = index.size(dim);
  return !aten::device_of(self).is_cpu() && length > kShortLine &&
         index.numel() / length < many_lines && fits_int32(self.numel()) &&
         fits_int32(index.numel());
}

// Which row, or element where `p` names none, of the result each takes.
Tensor targets_of(const ScatterProblem& p, bool by_rows) {
  Tensor indices = p.indices;
  if (by_rows) {
    for (int64_t d = indices.dim() - 1; d >= 0; --d) {
      indices = d == p.by.dim ? indices : indices.select(d, 0);
    }
  }
  indices = indices.contiguous();  // copy: lines
  const int64_t count = indices.numel();
  const Tensor targets =
      at::empty({1, count}, indices.options().dtype(at::kInt));
  launch(p.self,
         sources::scatter_targets,
         "scatter_targets",
         {{"WG_SIZE", kTargetGroup}},
         range(count, kTargetGroup),
         arg_in(indices),
         arg_in(by_rows ? Tensor() : line_places(p)),
         arg(targets),
         static_cast<uint64_t>(count),
         static_cast<uint64_t>(by_rows ? 1 : p.inner()),
         p.length(),
         p.self.size(p.by.dim),
         static_cast<uint64_t>(by_rows ? 1 : p.self.stride(p.by.dim)),
         static_cast<int32_t>(p.by.dim),
         static_cast<int32_t>(by_rows),
         static_cast<int32_t>(p.by.skipped.has_value()),
         p.by.skipped.value_or(0),
         reports(p.self, p.by.op));
  return targets;
}

// By sorting what goes where, on GPUs.
void scatter_by_segments(const ScatterProblem& p) {
  const bool by_rows = names_rows(p.self, p.indices, p.by.dim);
  SegmentRows rows;
  if (by_rows) {
    const auto inner = static_cast<uint64_t>(p.inner());
    rows.columns = static_cast<uint64_t>(p.lines());
    rows.inner = inner;
    rows.self_outer = inner * static_cast<uint64_t>(p.self.size(p.by.dim));
    rows.source_outer = inner * static_cast<uint64_t>(p.length());
  }
  reduce_segments({.self = p.self,
                   .targets = targets_of(p, by_rows),
                   .source = p.sources,
                   .weights = {},
                   .rows = rows,
                   .reduce = p.reduce,
                   .include_self = p.include_self});
}

void scatter_by_lines(const ScatterProblem& p) {
  const Tensor& self = p.self;
  const Tensor touched =
      p.include_self ? Tensor()
                     : at::zeros(self.sizes(), self.options().dtype(at::kByte));
  launch(self,
         sources::scatter_reduce,
         "scatter_reduce_lines",
         {{"DTYPE", part_dtype(self)},
          {"COMPUTE_IS_COMPLEX", self.is_complex()},
          {"COMPUTE_IS_DOUBLE", part_dtype(self) == DType::kFloat64},
          {"REDUCE", p.reduce},
          {"INCLUDE_SELF", p.include_self},
          {"WG_SIZE", kWorkGroup}},
         range(p.lines(), kWorkGroup),
         arg(self),
         arg_in(p.indices.contiguous()),  // copy: lines
         arg_in(p.sources),
         arg_in(line_places(p)),
         arg(touched),
         static_cast<uint64_t>(p.lines()),
         static_cast<uint64_t>(p.inner()),
         p.length(),
         self.size(p.by.dim),
         static_cast<uint64_t>(self.stride(p.by.dim)),
         static_cast<int32_t>(p.by.dim),
         reports(self, p.by.op));
}

// `self`, `index` and `source` have one number of dimensions; `self` is
// contiguous and changed in place.
void scatter(const Tensor& self,
             const Tensor& index,
             const Tensor& source,
             Reduce reduce,
             bool include_self,
             const IndexedBy& by) {
  const Tensor sources =
      source
          .as_strided(index.sizes(), source.strides(), source.storage_offset())
          .contiguous();  // copy: lines
  const bool is_sum = reduce == Reduce::kSum || reduce == Reduce::kMean;
  const ScatterProblem problem{self,
                               index.to(at::kLong),
                               sources,
                               is_sum ? 0 : static_cast<int>(reduce),
                               include_self,
                               by};
  if (goes_by_segments(self, index, by.dim, kManyLines)) {
    scatter_by_segments(problem);
  } else {
    scatter_by_lines(problem);
  }
}

// Makes means of sums: of how many sources each was made, and of itself, unless
// that was replaced.
void divide_by_counts(const Tensor& sums,
                      const Tensor& index,
                      bool include_self,
                      const IndexedBy& by) {
  const Tensor counts =
      include_self ? at::ones_like(sums) : at::zeros_like(sums);
  scatter(counts,
          index,
          at::full({}, 1, sums.options()).expand(index.sizes()),
          Reduce::kSum,
          true,
          by);
  counts.masked_fill_(counts.eq(0), 1);
  if (at::isIntegralType(sums.scalar_type(), /*includeBool=*/true)) {
    sums.div_(counts, "floor");
  } else {
    sums.div_(counts);
  }
}

void scatter_reduce(const Tensor& self,
                    const Tensor& index,
                    const Tensor& source,
                    Reduce reduce,
                    bool include_self,
                    IndexedBy by,
                    const Tensor& out) {
  check_implemented(!self.is_complex() ||
                        (reduce != Reduce::kAmax && reduce != Reduce::kAmin),
                    by.op,
                    self.scalar_type());
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  if (index.numel() == 0) {
    return;
  }
  // Other dimensions of the index are not longer.
  TORCH_CHECK_INDEX(out.numel() > 0,
                    by.op,
                    "(): index is out of bounds for dimension ",
                    by.dim,
                    " with size 0");
  if (out.dim() == 0 || index.dim() == 0) {
    const Tensor row = out.reshape({-1});
    by.dim = 0;
    scatter_reduce(row,
                   index.reshape({-1}),
                   source.reshape({-1}),
                   reduce,
                   include_self,
                   by,
                   row);
    if (!row.is_alias_of(out)) {
      out.copy_(row.view(out.sizes()));
    }
    return;
  }
  by.dim = at::maybe_wrap_dim(by.dim, out.dim());
  // Half types are summed, and counted, in the type of arithmetic.
  const at::ScalarType type = compute_type(out.scalar_type());
  const Tensor dense =
      out.to(type).contiguous();  // copy: the kernel takes a contiguous result
  scatter(dense, index, source.to(type), reduce, include_self, by);
  if (reduce == Reduce::kMean) {
    divide_by_counts(dense, index, include_self, by);
  }
  if (!dense.is_same(out)) {
    out.copy_(dense);
  }
}

struct scatter_reduce_two_out : at::meta::structured_scatter_reduce_two {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Tensor& src,
            c10::string_view reduce,
            bool include_self,
            const Tensor& out) {
    scatter_reduce(self,
                   index,
                   src,
                   reduce_of(reduce),
                   include_self,
                   {.op = "scatter_reduce", .dim = dim},
                   out);
  }
};

// scatter_ with a reduction, of a tensor or a number.
void scatter_with(const Tensor& self,
                  int64_t dim,
                  const Tensor& index,
                  const Tensor& src,
                  c10::string_view reduce,
                  const Tensor& out) {
  scatter_reduce(self,
                 index,
                 src,
                 reduce_of(reduce),
                 true,
                 {.op = "scatter", .dim = dim},
                 out);
}

struct scatter_reduce_out : at::meta::structured_scatter_reduce {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Tensor& src,
            c10::string_view reduce,
            const Tensor& out) {
    scatter_with(self, dim, index, src, reduce, out);
  }
};

struct scatter_value_reduce_out : at::meta::structured_scatter_value_reduce {
  void impl(const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Scalar& value,
            c10::string_view reduce,
            const Tensor& out) {
    const Tensor src =
        at::full({}, value, self.options()).expand(index.sizes());
    scatter_with(self, dim, index, src, reduce, out);
  }
};

// The same along whole slices.
struct index_reduce_out : at::meta::structured_index_reduce {
  void impl(const meta_return_ty&,
            const Tensor& self,
            int64_t dim,
            const Tensor& index,
            const Tensor& source,
            c10::string_view reduce,
            bool include_self,
            const Tensor& out) {
    TORCH_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                    reduce == "amin",
                "index_reduce(): Expected reduce to be one of prod, mean, amax "
                "or amin but got ",
                reduce,
                ".");
    if (source.dim() == 0) {
      scatter_reduce(self,
                     index.reshape({}),
                     source,
                     reduce_of(reduce),
                     include_self,
                     {.op = "index_reduce"},
                     out);
      return;
    }
    std::vector<int64_t> shape(source.dim(), 1);
    dim = at::maybe_wrap_dim(dim, source.dim());
    shape[dim] = -1;
    const Tensor along =
        index.to(at::kLong).reshape({-1}).view(shape).expand(source.sizes());
    scatter_reduce(self,
                   along,
                   source,
                   reduce_of(reduce),
                   include_self,
                   {.op = "index_reduce", .dim = dim},
                   out);
  }
};

}  // namespace

bool add_by_segments(const Tensor& self,
                     const Tensor& index,
                     const Tensor& source,
                     const Tensor& out,
                     const IndexedBy& by,
                     const Scalar& alpha) {
  if (index.dim() == 0 || out.dim() == 0) {
    return false;
  }
  const int64_t dim = at::maybe_wrap_dim(by.dim, index.dim());
  const int64_t many_lines =
      names_rows(out, index, dim) ? kManyLines : kManyLinesOfSums;
  if (!goes_by_segments(out, index, dim, many_lines)) {
    return false;
  }
  const Tensor terms =
      alpha.equal(1) ? source
                     : source.to(compute_type(out.scalar_type())).mul(alpha);
  scatter_reduce(self, index, terms, Reduce::kSum, true, by, out);
  return true;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<scatter_reduce_two_out,
             at::_ops::scatter_reduce_two_out,
             Numbers::kRealAndComplex>(m);
  structured<scatter_reduce_out,
             at::_ops::scatter_reduce_out,
             Numbers::kRealAndComplex>(m);
  structured<scatter_value_reduce_out,
             at::_ops::scatter_value_reduce_out,
             Numbers::kRealAndComplex>(m);
  structured<index_reduce_out,
             at::_ops::index_reduce_out,
             Numbers::kRealAndComplex>(m);
}

}  // namespace torch_opencl::ops
