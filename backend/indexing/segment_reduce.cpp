// segment_reduce: a scatter_reduce by the segment that each place belongs to.
#include "../../cpp/aten/fallback.h"

#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/_segment_reduce_backward_native.h>
#include <ATen/ops/_segment_reduce_backward_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/segment_reduce_native.h>
#include <ATen/ops/segment_reduce_ops.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;
using at::native::ReductionType;
using Initial = std::optional<Scalar>;

// `offsets` have one element more than there are segments.
struct Segments {
  Tensor lengths;
  Tensor places;  // the segment of each place along the axis; of none: the last
                  // + 1
  std::vector<int64_t> reduced;  // sizes of the result, and one segment more
  int64_t axis;
  int64_t count;
};

// A number for each row of data along the axis, as a tensor like data.
Tensor along(const Tensor& numbers, const Tensor& data, int64_t size) {
  std::vector<int64_t> sizes = numbers.sizes().vec();
  std::vector<int64_t> wanted = data.sizes().vec();
  wanted[numbers.dim() - 1] = size;
  sizes.resize(data.dim(), 1);
  return numbers.reshape(sizes).expand(wanted);
}

Segments segments_of(const Tensor& data, const Tensor& offsets, int64_t axis) {
  Segments s;
  s.axis = axis;
  s.count = offsets.size(-1) - 1;
  const Tensor first = offsets.narrow(-1, 0, s.count);
  const Tensor ends =
      offsets.narrow(-1, 1, s.count).contiguous();  // copy: sorted
  s.lengths = ends.sub(first);
  std::vector<int64_t> sizes = offsets.sizes().vec();
  sizes.back() = data.size(axis);
  const Tensor positions =
      at::arange(data.size(axis), offsets.options()).expand(sizes);
  const Tensor segment = at::searchsorted(
      ends, positions.contiguous(), false, true);  // copy: rows of both
  // What lies ahead of the first segment belongs to none.
  const Tensor is_ahead = positions.lt(offsets.narrow(-1, 0, 1));
  s.places =
      along(segment.masked_fill(is_ahead, s.count), data, data.size(axis));
  s.reduced = data.sizes().vec();
  s.reduced[axis] = s.count + 1;
  return s;
}

Tensor offsets_of(const Tensor& lengths) {
  std::vector<int64_t> sizes = lengths.sizes().vec();
  sizes.back() += 1;
  const Tensor offsets = at::full(sizes, 0, lengths.options());
  offsets.narrow(-1, 1, lengths.size(-1)).copy_(lengths.cumsum(-1));
  return offsets;
}

double neutral(ReductionType reduction) {
  switch (reduction) {
    case ReductionType::MAX:
      return -std::numeric_limits<double>::infinity();
    case ReductionType::MIN:
      return std::numeric_limits<double>::infinity();
    case ReductionType::PROD:
      return 1;
    default:
      return 0;
  }
}

const char* scatter_name(ReductionType reduction) {
  switch (reduction) {
    case ReductionType::MAX:
      return "amax";
    case ReductionType::MIN:
      return "amin";
    case ReductionType::PROD:
      return "prod";
    default:
      return "sum";
  }
}

Tensor reduced(const Tensor& data,
               const Segments& s,
               ReductionType reduction,
               const Scalar& initial) {
  return at::full(s.reduced, initial, data.options())
      .scatter_reduce(s.axis, s.places, data, scatter_name(reduction))
      .narrow(s.axis, 0, s.count);
}

Tensor reduce_by_offsets(ReductionType reduction,
                         const Tensor& data,
                         const Tensor& offsets,
                         int64_t axis,
                         const Initial& initial) {
  const Segments s = segments_of(data, offsets, axis);
  const Tensor result =
      reduced(data, s, reduction, initial.value_or(neutral(reduction)));
  if (reduction != ReductionType::MEAN) {
    return result.contiguous();  // copy: without the segment of none
  }
  // An empty segment has no mean, unless one is given.
  const Tensor lengths = along(s.lengths, data, s.count).to(data.scalar_type());
  return initial.has_value()
             ? at::where(lengths.eq(0), result, result.div(lengths))
             : result.div(lengths);
}

Tensor reduce_by_lengths(ReductionType reduction,
                         const Tensor& data,
                         const Tensor& lengths,
                         int64_t axis,
                         const Initial& initial) {
  return reduce_by_offsets(reduction, data, offsets_of(lengths), axis, initial);
}

// The gradient of a product without the element itself: zeros are counted
// apart.
Tensor product_without(const Tensor& data,
                       const Segments& s,
                       const Scalar& initial) {
  const Tensor is_zero = data.eq(0);
  const Tensor zeros =
      reduced(is_zero.to(data.scalar_type()), s, ReductionType::SUM, 0);
  const Tensor others =
      reduced(data.masked_fill(is_zero, 1), s, ReductionType::PROD, initial);
  const Tensor places = s.places.clamp_max(s.count - 1);
  const Tensor product = others.gather(s.axis, places);
  const Tensor count = zeros.gather(s.axis, places);
  return at::where(
      is_zero, product.mul(count.eq(1)), product.div(data).mul(count.eq(0)));
}

Tensor backward_by_offsets(const Tensor& grad,
                           const Tensor& output,
                           const Tensor& data,
                           ReductionType reduction,
                           const Tensor& offsets,
                           int64_t axis,
                           const Initial& initial) {
  const Segments s = segments_of(data, offsets, axis);
  if (s.count == 0 || data.numel() == 0) {
    return at::full(data.sizes(), 0, data.options());
  }
  const Tensor places = s.places.clamp_max(s.count - 1);
  Tensor scaled = grad;
  if (reduction == ReductionType::MEAN) {
    // An empty segment passes nothing on.
    const Tensor lengths = s.lengths.clamp_min(1);
    scaled = grad.div(along(lengths, data, s.count).to(grad.scalar_type()));
  }
  const Tensor is_outside = s.places.ge(s.count);
  Tensor factor = is_outside.logical_not().to(data.scalar_type());
  if (reduction == ReductionType::PROD) {
    factor.mul_(product_without(data, s, initial.value_or(1)));
  } else if (reduction == ReductionType::MAX ||
             reduction == ReductionType::MIN) {
    // Shared by the elements that have the extreme, and NaN counts as one.
    const Tensor extreme = output.gather(axis, places);
    const Tensor has_it =
        data.eq(extreme)
            .logical_or(data.isnan().logical_and(extreme.isnan()))
            .to(data.scalar_type());
    const Tensor sharers = reduced(has_it, s, ReductionType::SUM, 0);
    factor.mul_(has_it);
    scaled = scaled.div(sharers.clamp_min(1));
  }
  // Not by the factor alone: a gradient may be infinite or NaN.
  return scaled.gather(axis, places).mul_(factor).masked_fill_(is_outside, 0);
}

Tensor backward_by_lengths(const Tensor& grad,
                           const Tensor& output,
                           const Tensor& data,
                           ReductionType reduction,
                           const Tensor& lengths,
                           int64_t axis,
                           const Initial& initial) {
  return backward_by_offsets(
      grad, output, data, reduction, offsets_of(lengths), axis, initial);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("segment_reduce",
         &WithFallback<at::_ops::segment_reduce,
                       &at::native::segment_reduce_kernel>::call);
  m.impl("_segment_reduce_backward",
         &WithFallback<at::_ops::_segment_reduce_backward,
                       &at::native::_segment_reduce_backward_kernel>::call);
}

}  // namespace torch_opencl::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_stub,
                              &torch_opencl::ops::reduce_by_lengths)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_stub,
                              &torch_opencl::ops::reduce_by_offsets)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_backward_stub,
                              &torch_opencl::ops::backward_by_lengths)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_backward_stub,
                              &torch_opencl::ops::backward_by_offsets)

}  // namespace at::native
