// searchsorted, bucketize and isin.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/structured.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"
#include "../sorting/sort.h"
#include "kernel_sources.h"

#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/isin_ops.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/searchsorted_ops.h>
#include <torch/library.h>

#include <limits>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Scalar;
using at::Tensor;
using OptionalSide = std::optional<c10::string_view>;

Tensor& searchsorted_out(const Tensor& sorted_sequence,
                         const Tensor& self,
                         bool out_int32,
                         bool right,
                         OptionalSide side,
                         const OptionalTensor& sorter,
                         Tensor& out) {
  const Tensor order = sorter.value_or(Tensor());
  at::native::searchsorted_pre_check(
      sorted_sequence, self, out, out_int32, right, side, order);
  check_number("searchsorted_out_cpu", self);
  check_number("searchsorted_out_cpu", sorted_sequence);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) {
    return out;
  }
  if (sorted_sequence.numel() == 0) {
    return out.zero_();
  }
  const at::ScalarType type = at::result_type(sorted_sequence, self);
  const Tensor values = self.to(type).contiguous();  // copy: rows
  const Tensor boundaries =
      sorted_sequence.to(type).contiguous();  // copy: rows
  const Tensor places =
      order.defined() ? order.contiguous() : Tensor();  // copy: rows
  const Tensor found = at::empty(self.sizes(), self.options().dtype(at::kLong));
  const int64_t length = boundaries.size(-1);
  const int64_t columns =
      boundaries.dim() == 1 ? values.numel() : values.size(-1);
  const bool is_right = right || (side.has_value() && *side == "right");
  launch(out,
         sources::search,
         "search_sorted",
         {{"DTYPE", dtype_of(values)}, {"WG_SIZE", kWorkGroup}},
         range(values.numel(), kWorkGroup),
         arg(found),
         arg_in(values),
         arg_in(boundaries),
         arg_in(places),
         static_cast<uint64_t>(values.numel()),
         static_cast<uint64_t>(columns),
         length,
         static_cast<uint64_t>(boundaries.dim() == 1 ? 0 : length),
         static_cast<int32_t>(!places.defined()),
         static_cast<int32_t>(is_right));
  return out.copy_(found);
}

Tensor searchsorted_tensor(const Tensor& sorted_sequence,
                           const Tensor& self,
                           bool out_int32,
                           bool right,
                           OptionalSide side,
                           const OptionalTensor& sorter) {
  Tensor out =
      at::empty({0}, self.options().dtype(out_int32 ? at::kInt : at::kLong));
  return searchsorted_out(
      sorted_sequence, self, out_int32, right, side, sorter, out);
}

Tensor searchsorted_number(const Tensor& sorted_sequence,
                           const Scalar& self,
                           bool out_int32,
                           bool right,
                           OptionalSide side,
                           const OptionalTensor& sorter) {
  return searchsorted_tensor(
      sorted_sequence,
      at::native::searchsorted_scalar_tensor(self, sorted_sequence.device()),
      out_int32,
      right,
      side,
      sorter);
}

Tensor& searchsorted_number_out(const Tensor& sorted_sequence,
                                const Scalar& self,
                                bool out_int32,
                                bool right,
                                OptionalSide side,
                                const OptionalTensor& sorter,
                                Tensor& out) {
  return searchsorted_out(
      sorted_sequence,
      at::native::searchsorted_scalar_tensor(self, sorted_sequence.device()),
      out_int32,
      right,
      side,
      sorter,
      out);
}

void check_boundaries(const Tensor& boundaries) {
  TORCH_CHECK(boundaries.dim() == 1,
              "boundaries tensor must be 1 dimension, but got dim(",
              boundaries.dim(),
              ")");
}

Tensor& bucketize_out(const Tensor& self,
                      const Tensor& boundaries,
                      bool out_int32,
                      bool right,
                      Tensor& out) {
  check_boundaries(boundaries);
  return searchsorted_out(
      boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor bucketize(const Tensor& self,
                 const Tensor& boundaries,
                 bool out_int32,
                 bool right) {
  check_boundaries(boundaries);
  return searchsorted_tensor(
      boundaries, self, out_int32, right, std::nullopt, std::nullopt);
}

Tensor bucketize_number(const Scalar& self,
                        const Tensor& boundaries,
                        bool out_int32,
                        bool right) {
  return bucketize(
      at::native::searchsorted_scalar_tensor(self, boundaries.device()),
      boundaries,
      out_int32,
      right);
}

// Where one is in the sorted others, it is equal to what it is found before.
// NaNs, which are sorted last, are infinite for the search and equal nothing.
void isin(const Tensor& elements,
          const Tensor& test_elements,
          bool invert,
          const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  if (test_elements.numel() == 0) {
    out.fill_(invert);
    return;
  }
  const at::ScalarType type = at::result_type(elements, test_elements);
  const Tensor row =
      test_elements.to(type).reshape({1, -1}).contiguous();  // copy: one row
  const Tensor sorted =
      row.gather(1, sorted_order(row, false, row.size(1))).reshape({-1});
  const Tensor values = elements.to(type).reshape({-1});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor boundaries =
      at::isFloatingType(type)
          ? at::nan_to_num(sorted, kInfinity, kInfinity, -kInfinity)
          : sorted;
  const Tensor place =
      at::searchsorted(boundaries, values).clamp_max_(sorted.size(0) - 1);
  const Tensor equal = sorted.index_select(0, place).eq(values);
  out.copy_((invert ? equal.logical_not() : equal).view(elements.sizes()));
}

struct isin_Tensor_Tensor_out : at::meta::structured_isin_Tensor_Tensor {
  void impl(const Tensor& elements,
            const Tensor& test_elements,
            bool,
            bool invert,
            const Tensor& out) {
    isin(elements, test_elements, invert, out);
  }
};

struct isin_Tensor_Scalar_out : at::meta::structured_isin_Tensor_Scalar {
  void impl(const Tensor& elements,
            const Scalar& test_element,
            bool,
            bool invert,
            const Tensor& out) {
    out.copy_(invert ? elements.ne(test_element) : elements.eq(test_element));
  }
};

struct isin_Scalar_Tensor_out : at::meta::structured_isin_Scalar_Tensor {
  void impl(const Scalar& element,
            const Tensor& test_elements,
            bool,
            bool invert,
            const Tensor& out) {
    const Tensor found = test_elements.eq(element).any();
    // meta() announces no element; the answer is one.
    out.resize_({});
    out.copy_(invert ? found.logical_not() : found);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  native<at::_ops::searchsorted_Tensor, &searchsorted_tensor>(m);
  native<at::_ops::searchsorted_Tensor_out, &searchsorted_out>(m);
  native<at::_ops::searchsorted_Scalar, &searchsorted_number>(m);
  native<at::_ops::searchsorted_Scalar_out, &searchsorted_number_out>(m);
  native<at::_ops::bucketize_Tensor, &bucketize>(m);
  native<at::_ops::bucketize_Tensor_out, &bucketize_out>(m);
  native<at::_ops::bucketize_Scalar, &bucketize_number>(m);
  structured<isin_Tensor_Tensor_out, at::_ops::isin_Tensor_Tensor_out>(m);
  structured<isin_Tensor_Scalar_out, at::_ops::isin_Tensor_Scalar_out>(m);
  structured<isin_Scalar_Tensor_out, at::_ops::isin_Scalar_Tensor_out>(m);
}

}  // namespace torch_opencl::ops
