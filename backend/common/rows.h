// Tensors of one shape as rows along a dimension, for the kernels that include
// rows.clh.
#pragma once

#include "../../cpp/aten/launch.h"
#include "int_size.h"
#include "integers.h"

#include <ATen/core/Tensor.h>

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace torch_opencl::ops {

inline constexpr int kRowsRank = 8;
inline constexpr int kRowsTensors = 3;

// rows_t of rows.clh.
template <class Index>
struct Rows {
  Index count;
  Index row_strides[kRowsTensors];
  Index strides[kRowsTensors][kRowsRank];
  int32_t sizes[kRowsRank];
  int32_t rank;
  int32_t row_size;
};

class RowsProblem {
 public:
  // The first tensor, the one written, decides which dimension is innermost.
  RowsProblem(const char* op,
              std::initializer_list<at::Tensor> tensors,
              int64_t dim)
      : tensors_(tensors) {
    const at::Tensor& written = tensors_[0];
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const at::Tensor& tensor = tensors_[t];
      int64_t last = 0;
      for (int64_t i = 0; i < tensor.dim(); ++i) {
        last += (tensor.size(i) - 1) * tensor.stride(i);
      }
      extent_ = std::max(extent_, last + 1);
      row_strides_[t] = written.dim() ? tensor.stride(dim) : 1;
    }
    row_size_ = int_size(op, written.dim() ? written.size(dim) : 1);
    c10::SmallVector<int64_t, kRowsRank + 1> order;
    for (int64_t i = 0; i < written.dim(); ++i) {
      if (i != dim && written.size(i) != 1) {
        order.push_back(i);
      }
    }
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return written.stride(a) < written.stride(b) ||
             (written.stride(a) == written.stride(b) && a > b);
    });
    for (const int64_t i : order) {
      append(op, i);
    }
    if (sizes_.empty()) {
      sizes_.push_back(1);
      strides_.emplace_back().fill(1);
    }
    TORCH_CHECK(sizes_.size() <= kRowsRank,
                "tensors whose strides leave more than ",
                kRowsRank + 1,
                " dimensions are not supported");
  }

  int tensors() const { return static_cast<int>(tensors_.size()); }
  int64_t row_size() const { return row_size_; }
  int64_t row_stride(int tensor) const { return row_strides_[tensor]; }
  // Of the dimension along which rows are nearest to each other.
  int64_t inner_size() const { return sizes_[0]; }
  int64_t inner_stride(int tensor) const { return strides_[0][tensor]; }
  int64_t count() const {
    return std::accumulate(
        sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
  }
  bool rows_contiguous() const {
    return row_size_ == 1 ||
           std::all_of(row_strides_.begin(),
                       row_strides_.begin() + tensors_.size(),
                       [](int64_t stride) { return stride == 1; });
  }
  // One past the largest element offset.
  int64_t extent() const { return extent_; }
  template <class Launch>
  auto with_index(const Launch& launch) const {
    return aten::with_index(extent_, launch);
  }

  // What numbers the rows, the innermost first, for group_rows.clh.
  int32_t rank() const { return static_cast<int32_t>(sizes_.size()); }
  std::array<int32_t, kRowsRank> sizes() const {
    std::array<int32_t, kRowsRank> result;
    result.fill(1);
    std::copy(sizes_.begin(), sizes_.end(), result.begin());
    return result;
  }
  template <class Index>
  std::array<Index, kRowsRank> strides(int tensor) const {
    std::array<Index, kRowsRank> result{};
    for (size_t i = 0; i < strides_.size(); ++i) {
      result[i] = static_cast<Index>(strides_[i][tensor]);
    }
    return result;
  }

  // Blocks of `lanes` rows.
  int64_t blocks(int lanes) const {
    return count() / sizes_[0] * (ceil_div(sizes_[0], lanes));
  }

  template <class Index>
  Rows<Index> rows(int lanes) const {
    Rows<Index> rows{};
    rows.count = static_cast<Index>(blocks(lanes));
    rows.rank = static_cast<int32_t>(sizes_.size());
    rows.row_size = static_cast<int32_t>(row_size_);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      rows.sizes[i] = static_cast<int32_t>(sizes_[i]);
    }
    for (size_t t = 0; t < tensors_.size(); ++t) {
      rows.row_strides[t] = static_cast<Index>(row_strides_[t]);
      for (size_t i = 0; i < sizes_.size(); ++i) {
        rows.strides[t][i] = static_cast<Index>(strides_[i][t]);
      }
    }
    return rows;
  }

 private:
  using OfTensors = std::array<int64_t, kRowsTensors>;

  void append(const char* op, int64_t dim) {
    const int64_t size = int_size(op, tensors_[0].size(dim));
    OfTensors strides{};
    bool joins = !sizes_.empty() && size <= kLargestIntSize / sizes_.back();
    for (size_t t = 0; t < tensors_.size(); ++t) {
      strides[t] = tensors_[t].stride(dim);
      joins = joins && strides[t] == strides_.back()[t] * sizes_.back();
    }
    if (joins) {
      sizes_.back() *= size;
    } else {
      sizes_.push_back(size);
      strides_.push_back(strides);
    }
  }

  c10::SmallVector<at::Tensor, kRowsTensors> tensors_;
  OfTensors row_strides_{};
  c10::SmallVector<int64_t, kRowsRank> sizes_;
  c10::SmallVector<OfTensors, kRowsRank> strides_;  // [dimension][tensor]
  int64_t row_size_ = 1;
  int64_t extent_ = 1;
};

}  // namespace torch_opencl::ops
