// embedding_bag, its gradients, and embedding_renorm_.
#include "../../cpp/aten/fallback.h"
#include "../../cpp/aten/reports.h"
#include "../common/integers.h"
#include "../common/optional_tensor.h"
#include "../sorting/sort.h"
#include "kernel_sources.h"

#include <ATen/TensorUtils.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_backward_ops.h>
#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_ops.h>
#include <ATen/ops/embedding_renorm_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kSum = 0;
constexpr int64_t kMean = 1;
constexpr int64_t kMax = 2;

// problem_t of embedding_bag.cl.
struct EmbeddingBagProblem {
  int64_t samples = 0;
  int64_t bags = 0;
  int64_t offsets = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  int64_t grad_row_stride = 0;
  int64_t grad_column_stride = 0;
  int64_t padding = -1;
  int32_t is_mean = 0;
  int32_t is_weighted = 0;
  int32_t is_by_frequency = 0;
  int32_t end_padding = 0;  // the struct's own alignment
};

// Columns and bags that a work-group covers, and columns of a work-item.
struct Tile {
  int x;
  int y;
  int lanes;
};

Tile tile_of(const Tensor& tensor, int64_t mode) {
  if (!aten::device_of(tensor).is_cpu()) {
    return {32, 2, 1};
  }
  return mode == kMax ? Tile{16, 1, 1} : Tile{1, 16, 16};
}

NDRange range_of(const Tile& tile, int64_t columns, int64_t count) {
  return range(ceil_div(columns, tile.lanes), count, tile.x, tile.y);
}

// copy: the kernels find the weight of a sample by its number
OptionalTensor contiguous_weights(const OptionalTensor& weights) {
  return is_given(weights) ? OptionalTensor(weights->contiguous()) : weights;
}

void check_weighted_mode(int64_t mode,
                         const OptionalTensor& per_sample_weights) {
  TORCH_CHECK(
      mode == kSum || !is_given(per_sample_weights),
      "embedding_bag: per_sample_weights only supported with mode='sum'");
}

void check_index_types(const Tensor& indices, const Tensor& offsets) {
  constexpr at::CheckedFrom kOp = "embedding_bag";
  at::checkScalarTypes(
      kOp, at::TensorArg(indices, "indices", 1), {at::kLong, at::kInt});
  at::checkScalarTypes(
      kOp, at::TensorArg(offsets, "offsets", 1), {at::kLong, at::kInt});
}

void check_arguments(const Tensor& weight,
                     const Tensor& indices,
                     const Tensor& offsets,
                     int64_t mode,
                     const OptionalTensor& per_sample_weights,
                     bool include_last_offset) {
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ",
              indices.dim());
  TORCH_CHECK(indices.dim() != 1 || offsets.dim() == 1,
              "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets.dim());
  TORCH_CHECK(weight.dim() == 2,
              "weight has to be a 2D Tensor, but got Tensor of dimension ",
              weight.dim());
  check_index_types(indices, offsets);
  const at::TensorArg table(weight, "weight", 1);
  at::checkScalarTypes("embedding_bag",
                       table,
                       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  check_weighted_mode(mode, per_sample_weights);
  if (is_given(per_sample_weights)) {
    at::checkSameType(
        "embedding_bag",
        table,
        at::TensorArg(*per_sample_weights, "per_sample_weights", 1));
    TORCH_CHECK(per_sample_weights->dim() == 1);
    TORCH_CHECK(per_sample_weights->numel() == indices.numel());
  }
  TORCH_CHECK(!include_last_offset || offsets.size(0) >= 1,
              "include_last_offset: number of offset should be at least 1");
}

// What the forward reads: all but the weight are contiguous.
struct BagOperands {
  Tensor weight;
  Tensor indices;
  Tensor offsets;
  OptionalTensor per_sample_weights;
};

struct BagResults {
  Tensor output;
  Tensor offset2bag;
  Tensor bag_size;
  Tensor maximum_indices;
};

EmbeddingBagProblem forward_problem(const BagOperands& in,
                                    int64_t mode,
                                    bool include_last_offset,
                                    int64_t padding_idx) {
  EmbeddingBagProblem problem;
  problem.samples = in.indices.numel();
  problem.offsets = in.offsets.size(0);
  problem.bags = problem.offsets - include_last_offset;
  problem.rows = in.weight.size(0);
  problem.columns = in.weight.size(1);
  problem.row_stride = in.weight.stride(0);
  problem.column_stride = in.weight.stride(1);
  problem.padding = padding_idx;
  problem.is_mean = mode == kMean;
  problem.is_weighted = is_given(in.per_sample_weights);
  return problem;
}

BagResults empty_results(const BagOperands& in,
                         const EmbeddingBagProblem& problem,
                         int64_t mode) {
  const at::TensorOptions integers = in.indices.options();
  BagResults out;
  out.output = at::empty({problem.bags, problem.columns}, in.weight.options());
  out.offset2bag = at::empty({problem.samples}, integers);
  out.bag_size = at::zeros(in.offsets.sizes(), integers);
  out.maximum_indices = mode == kMax ? at::empty(out.output.sizes(), integers)
                                     : at::empty({0}, integers);
  return out;
}

// The bag of each sample.
void find_bags(const BagOperands& in,
               const BagResults& out,
               const EmbeddingBagProblem& problem) {
  launch(in.weight,
         sources::embedding_bag,
         "embedding_bag_of",
         {{"DTYPE", dtype_of(in.weight)}, {"INDEX", dtype_of(in.indices)}},
         range(std::max<int64_t>(problem.samples, 1), 64),
         arg(out.offset2bag),
         arg_in(in.offsets),
         problem,
         reports(in.weight, "embedding_bag"));
}

void reduce_bags(const BagOperands& in,
                 const BagResults& out,
                 const EmbeddingBagProblem& problem,
                 int64_t mode) {
  const Tile tile = tile_of(in.weight, mode);
  const auto run = [&](const char* kernel, const auto&... outputs) {
    launch(in.weight,
           sources::embedding_bag,
           kernel,
           {{"DTYPE", dtype_of(in.weight)},
            {"INDEX", dtype_of(in.indices)},
            {"LANES", tile.lanes},
            {"WG_X", tile.x},
            {"WG_Y", tile.y}},
           range_of(tile, problem.columns, problem.bags),
           outputs...,
           problem,
           reports(in.weight, "embedding_bag"));
  };
  if (mode == kMax) {
    run("embedding_bag_max",
        arg(out.output),
        arg(out.bag_size),
        arg(out.maximum_indices),
        arg_in(in.weight),
        arg_in(in.indices),
        arg_in(in.offsets));
  } else {
    run("embedding_bag_sum",
        arg(out.output),
        arg(out.bag_size),
        arg_in(in.weight),
        arg_in(in.indices),
        arg_in(in.offsets),
        arg_in(in.per_sample_weights));
  }
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(
    const Tensor& weight,
    const Tensor& indices_,
    const Tensor& offsets_,
    bool /*scale_grad_by_freq*/,
    int64_t mode,
    bool /*sparse*/,
    const OptionalTensor& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx) {
  const at::ScalarType type =
      c10::promoteTypes(indices_.scalar_type(), offsets_.scalar_type());
  const Tensor indices = indices_.to(type).contiguous();  // copy: ranges
  const Tensor offsets = offsets_.to(type).contiguous();  // copy: ranges
  check_arguments(
      weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  const BagOperands in{
      weight, indices, offsets, contiguous_weights(per_sample_weights)};
  const EmbeddingBagProblem problem =
      forward_problem(in, mode, include_last_offset, padding_idx);
  const BagResults out = empty_results(in, problem, mode);
  if (problem.samples > 0 || problem.offsets > 0) {
    find_bags(in, out, problem);
  }
  if (out.output.numel() > 0) {
    reduce_bags(in, out, problem, mode);
  }
  return {out.output, out.offset2bag, out.bag_size, out.maximum_indices};
}

Tensor embedding_bag_dense_backward(const Tensor& grad,
                                    const Tensor& indices_,
                                    const Tensor& offset2bag,
                                    const Tensor& bag_size,
                                    const Tensor& maximum_indices,
                                    int64_t num_weights,
                                    bool scale_grad_by_freq,
                                    int64_t mode,
                                    const OptionalTensor& per_sample_weights,
                                    int64_t padding_idx) {
  check_weighted_mode(mode, per_sample_weights);
  const Tensor grad_weight =
      at::zeros({num_weights, grad.size(1)}, grad.options());
  const int64_t samples = indices_.numel();
  if (samples == 0 || grad_weight.numel() == 0 || grad.numel() == 0) {
    return grad_weight;
  }
  const at::ScalarType type = indices_.scalar_type();
  const Tensor indices =
      indices_.contiguous().view({1, samples});  // copy: one row to sort
  const Tensor order = sorted_order(indices, false, samples);
  const Tensor sorted = indices.gather(1, order);
  const OptionalTensor weights = contiguous_weights(per_sample_weights);
  EmbeddingBagProblem problem;
  problem.samples = samples;
  problem.bags = grad.size(0);
  problem.rows = num_weights;
  problem.columns = grad.size(1);
  problem.grad_row_stride = grad.stride(0);
  problem.grad_column_stride = grad.stride(1);
  problem.padding = padding_idx;
  problem.is_mean = mode == kMean;
  problem.is_weighted = is_given(weights);
  problem.is_by_frequency = scale_grad_by_freq && mode != kMax;
  const Tile tile = tile_of(grad, mode);
  launch(grad,
         sources::embedding_bag,
         "embedding_bag_gradient",
         {{"DTYPE", dtype_of(grad)},
          {"INDEX", dtype_of(type)},
          {"LANES", tile.lanes},
          {"WG_X", tile.x},
          {"WG_Y", tile.y},
          {"IS_MAX", mode == kMax}},
         range_of(tile, problem.columns, samples),
         arg(grad_weight),
         arg_in(grad),
         arg_in(sorted),
         arg_in(order),
         arg_in(offset2bag.to(type).contiguous()),       // copy: by number
         arg_in(bag_size.to(type).contiguous()),         // copy: by number
         arg_in(maximum_indices.to(type).contiguous()),  // copy: by number
         arg_in(weights),
         problem,
         reports(grad, "_embedding_bag_dense_backward"));
  return grad_weight;
}

Tensor embedding_bag_per_sample_weights_backward(const Tensor& grad,
                                                 const Tensor& weight,
                                                 const Tensor& indices_,
                                                 const Tensor& offsets,
                                                 const Tensor& offset2bag,
                                                 int64_t mode,
                                                 int64_t padding_idx) {
  TORCH_CHECK(mode == kSum,
              "embedding_bag_backward: per_sample_weights only supported for "
              "mode='sum'");
  TORCH_CHECK(grad.dim() == 2);
  TORCH_CHECK(indices_.dim() == 1);
  TORCH_CHECK(weight.dim() == 2);
  TORCH_CHECK(weight.size(1) == grad.size(1));
  check_index_types(indices_, offsets);
  const at::ScalarType type = indices_.scalar_type();
  const Tensor indices = indices_.contiguous();  // copy: by number
  EmbeddingBagProblem problem;
  problem.samples = indices.numel();
  problem.bags = grad.size(0);
  problem.rows = weight.size(0);
  problem.columns = weight.size(1);
  problem.row_stride = weight.stride(0);
  problem.column_stride = weight.stride(1);
  problem.grad_row_stride = grad.stride(0);
  problem.grad_column_stride = grad.stride(1);
  problem.padding = padding_idx;
  const Tensor out = at::empty({problem.samples}, grad.options());
  if (problem.samples > 0) {
    launch(grad,
           sources::embedding_bag,
           "embedding_bag_weights_gradient",
           {{"DTYPE", dtype_of(grad)}, {"INDEX", dtype_of(type)}},
           range(problem.samples, 16),
           arg(out),
           arg_in(grad),
           arg_in(weight),
           arg_in(indices),
           arg_in(offset2bag.to(type).contiguous()),  // copy: by number
           problem,
           reports(grad, "_embedding_bag_per_sample_weights_backward"));
  }
  return out;
}

// Rows named more than once are written more than once, always the same.
Tensor& embedding_renorm_(Tensor& self,
                          const Tensor& indices,
                          double max_norm,
                          double norm_type) {
  at::checkDim("embedding_renorm_", at::TensorArg(self, "self", 1), 2);
  at::checkScalarTypes("embedding_renorm_",
                       at::TensorArg(indices, "indices", 2),
                       {at::kLong, at::kInt});
  if (indices.numel() == 0) {
    return self;
  }
  const ReportAs report_as("embedding_renorm_");
  const Tensor flat = indices.reshape({-1});
  const Tensor rows = self.index_select(0, flat);
  const Tensor norm = at::linalg_vector_norm(rows,
                                             norm_type,
                                             at::IntArrayRef{1},
                                             true,
                                             compute_type(self.scalar_type()));
  const Tensor factor = at::where(
      norm.gt(max_norm), norm.add(1e-7).reciprocal_().mul_(max_norm), 1.0);
  return self.index_copy_(
      0, flat.to(at::kLong), rows.mul(factor).to(self.scalar_type()));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag",
         &WithFallback<at::_ops::_embedding_bag, &embedding_bag>::call);
  m.impl("_embedding_bag_forward_only",
         &WithFallback<at::_ops::_embedding_bag_forward_only,
                       &embedding_bag>::call);
  m.impl("_embedding_bag_backward",
         TORCH_FN(at::native::_embedding_bag_backward_symint));
  m.impl("_embedding_bag_dense_backward",
         &WithFallback<at::_ops::_embedding_bag_dense_backward,
                       &embedding_bag_dense_backward>::call);
  m.impl("_embedding_bag_per_sample_weights_backward",
         &WithFallback<at::_ops::_embedding_bag_per_sample_weights_backward,
                       &embedding_bag_per_sample_weights_backward>::call);
  m.impl("embedding_renorm_",
         &WithFallback<at::_ops::embedding_renorm_, &embedding_renorm_>::call);
}

}  // namespace torch_opencl::ops
