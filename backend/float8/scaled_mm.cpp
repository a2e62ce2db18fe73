// Products of float8 matrices with a scale each, or one a row: _scaled_mm.
#include "../common/optional_tensor.h"
#include "../quantized/rows.h"
#include "float8.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/IListRef.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_scaled_mm_v2_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include <sstream>
#include <tuple>
#include <vector>

namespace torch_opencl::ops {
namespace {

using at::IntArrayRef;
using at::ScalarType;
using at::Tensor;

enum class Scaling : int64_t { kTensorWise = 0, kRowWise = 1 };

constexpr PointwiseOp kScale{
    .name = "_scaled_mm",
    .expression = "result = product * scale_a * scale_b",
    .inputs = "product scale_a scale_b",
    .outputs = "result"};
constexpr PointwiseOp kScaleAndAdd{
    .name = "_scaled_mm_bias",
    .expression = "result = product * scale_a * scale_b + (float)bias",
    .inputs = "product scale_a scale_b bias",
    .outputs = "result"};

std::string description(const char* name, const OptionalTensor& scale) {
  std::ostringstream text;
  text << name;
  if (scale.has_value()) {
    text << ".dtype()=" << scale->scalar_type() << ", " << name
         << ".size()=" << scale->sizes();
  } else {
    text << "=None";
  }
  return text.str();
}

[[noreturn]] void refuse_scaling(const Tensor& self,
                                 const Tensor& mat2,
                                 const OptionalTensor& scale_a,
                                 const OptionalTensor& scale_b) {
  std::ostringstream text;
  text
      << "Invalid scaling configuration.\n"
      << "- For TensorWise scaling, a and b should be float8, scales should be "
         "float and singletons.\n"
      << "- For RowWise scaling, a and b should be float8, scales should be "
         "float, scale_a should be ("
      << self.size(0) << ", 1) and scale_b should be (1, " << mat2.size(1)
      << "), and both should be contiguous.\nGot mat_a.dtype()="
      << self.scalar_type() << ", " << description("scale_a", scale_a);
  if (scale_a.has_value()) {
    text << ", scale_a.stride()=" << scale_a->strides();
  }
  text << ", mat_b.dtype()=" << mat2.scalar_type()
       << (scale_b.has_value() ? ", " : " and ")
       << description("scale_b", scale_b);
  if (scale_b.has_value()) {
    text << " and scale_b.stride()=" << scale_b->strides();
  }
  C10_THROW_ERROR(ValueError, text.str());
}

bool is_tensor_wise(const Tensor& matrix, const Tensor& scale) {
  return is_float8(matrix) && scale.scalar_type() == at::kFloat &&
         scale.numel() == 1;
}

// Of the rows of `matrix`.
bool is_row_wise(const Tensor& matrix, const Tensor& scale) {
  return is_float8(matrix) && scale.scalar_type() == at::kFloat &&
         scale.dim() == 2 && scale.size(0) == matrix.size(0) &&
         scale.size(1) == 1 && scale.is_contiguous();
}

void check_scales(const Tensor& self,
                  const Tensor& mat2,
                  const Tensor& scale_a,
                  const Tensor& scale_b) {
  const Tensor columns = mat2.t();
  const Tensor column_scales = scale_b.t();
  const bool fits =
      (is_tensor_wise(self, scale_a) &&
       is_tensor_wise(columns, column_scales)) ||
      (is_row_wise(self, scale_a) && is_row_wise(columns, column_scales));
  if (!fits) {
    refuse_scaling(self, mat2, scale_a, scale_b);
  }
}

std::string shapes_text(const Tensor& self, const Tensor& mat2) {
  return c10::str("mat_a and mat_b shapes cannot be multiplied (",
                  self.size(0),
                  "x",
                  self.size(1),
                  " and ",
                  mat2.size(0),
                  "x",
                  mat2.size(1),
                  ")");
}

void check_shapes(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.dim() == 2, "mat1 must be a matrix");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(self.size(1) == mat2.size(0), shapes_text(self, mat2));
}

Tensor number(const Tensor& scale) {
  return scale.numel() == 1 ? scale.reshape({}) : scale;
}

// The scales multiply sums, not what is summed: they are the same for all of
// it.
void scale_into(const Tensor& out,
                const Tensor& product,
                const Tensor& scale_a,
                const Tensor& scale_b,
                const OptionalTensor& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .resize_outputs(false)
      .set_check_mem_overlap(false)
      .add_output(out)
      .add_const_input(product)
      .add_owned_const_input(number(scale_a))
      .add_owned_const_input(number(scale_b));
  if (has_bias) {
    config.add_const_input(*bias);
  }
  auto iter = config.build();
  pointwise(iter, has_bias ? kScaleAndAdd : kScale, {});
}

// The product of float8 matrices in float32. Of the second one, a weight whose
// lines follow each other, a block at a time is decoded.
Tensor multiply(const Tensor& self, const Tensor& mat2) {
  const Tensor product =
      at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kFloat));
  if (self.size(1) == 0) {
    return product.zero_();
  }
  const Tensor lines = mat2.t();
  multiply_dequantized(
      float8_values(self), product, [&](int64_t first, const Tensor& weights) {
        copy_float8(weights, lines.narrow(0, first, weights.size(0)));
      });
  return product;
}

void compute(const Tensor& self,
             const Tensor& mat2,
             const Tensor& scale_a,
             const Tensor& scale_b,
             const OptionalTensor& bias,
             const OptionalTensor& scale_result,
             const Tensor& out) {
  if (out.numel() == 0) {
    return;
  }
  const ScalarType type = out.scalar_type();
  const bool is_direct =
      type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  const Tensor product = multiply(self, mat2);
  const Tensor& scaled = is_direct ? out : product;
  scale_into(scaled, product, scale_a, scale_b, bias);
  if (is_direct) {
    return;
  }
  const bool scales_result =
      type == ScalarType::Float8_e4m3fn || type == ScalarType::Float8_e5m2;
  if (scales_result && scale_result.has_value() && scale_result->defined()) {
    product.mul_(scale_result->reshape({}).reciprocal());
  }
  out.copy_(product);
}

Tensor& _scaled_mm_out(const Tensor& self,
                       const Tensor& mat2,
                       const Tensor& scale_a,
                       const Tensor& scale_b,
                       const OptionalTensor& bias,
                       const OptionalTensor& scale_result,
                       std::optional<ScalarType> out_dtype,
                       bool /*use_fast_accum*/,
                       Tensor& out) {
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(),
                    "out_dtype must match output matrix type");
  check_scales(self, mat2, scale_a, scale_b);
  check_shapes(self, mat2);
  TORCH_CHECK(!scale_result.has_value() || !scale_result->defined() ||
                  (scale_result->numel() == 1 &&
                   scale_result->scalar_type() == at::kFloat),
              "scale_result must be a float scalar");
  TORCH_CHECK(
      !bias.has_value() || !bias->defined() || bias->numel() == mat2.size(1),
      "Bias must be size ",
      mat2.size(1),
      " but got ",
      bias.has_value() ? bias->numel() : 0);
  at::native::resize_output(out, {self.size(0), mat2.size(1)});
  compute(self, mat2, scale_a, scale_b, bias, scale_result, out);
  return out;
}

Tensor _scaled_mm(const Tensor& self,
                  const Tensor& mat2,
                  const Tensor& scale_a,
                  const Tensor& scale_b,
                  const OptionalTensor& bias,
                  const OptionalTensor& scale_result,
                  std::optional<ScalarType> out_dtype,
                  bool use_fast_accum) {
  Tensor out = at::empty(
      {0}, self.options().dtype(out_dtype.value_or(self.scalar_type())));
  return _scaled_mm_out(self,
                        mat2,
                        scale_a,
                        scale_b,
                        bias,
                        scale_result,
                        out_dtype,
                        use_fast_accum,
                        out);
}

// -- the second version: lists of scales, each with the recipe it follows

void check_v2_shapes(const Tensor& self,
                     const Tensor& mat2,
                     IntArrayRef contraction) {
  TORCH_CHECK_VALUE(self.dim() == 2, "mat_a must be a matrix");
  TORCH_CHECK_VALUE(mat2.dim() == 2, "mat_b must be a matrix");
  TORCH_CHECK_VALUE(contraction.empty() || contraction.size() == 2,
                    "contraction_dim must have exactly 2 elements");
  const int64_t dim_a = contraction.empty() ? 1 : contraction[0];
  const int64_t dim_b = contraction.empty() ? 0 : contraction[1];
  std::ostringstream dims;
  if (!contraction.empty()) {
    dims << " with contraction dims mat_a: " << dim_a << ", mat_b: " << dim_b;
  }
  TORCH_CHECK_VALUE(self.size(dim_a) == mat2.size(dim_b),
                    shapes_text(self, mat2),
                    dims.str());
}

bool follows(const std::vector<Tensor>& scales,
             IntArrayRef recipe,
             Scaling wanted) {
  return scales.size() == 1 && recipe.size() == 1 &&
         recipe[0] == static_cast<int64_t>(wanted) &&
         scales[0].scalar_type() == at::kFloat;
}

void check_row_scales(const Tensor& self,
                      const Tensor& mat2,
                      const Tensor& scale_a,
                      const Tensor& scale_b) {
  const int64_t rows = self.size(0);
  const int64_t columns = mat2.size(1);
  TORCH_CHECK_VALUE(scale_a.size(0) == rows && scale_a.size(1) == 1,
                    "scale_a must have shape [",
                    rows,
                    ", 1], got [",
                    scale_a.sizes(),
                    "]");
  TORCH_CHECK_VALUE(scale_b.numel() == columns,
                    "scale_b must have ",
                    columns,
                    " Float elements, got ",
                    scale_b.numel());
  for (const auto& [name, scale] :
       {std::pair("scale_a", scale_a), std::pair("scale_b", scale_b)}) {
    TORCH_CHECK_VALUE(scale.stride(1) == 1,
                      "expected ",
                      name,
                      ".stride(1) to be 1, but got ",
                      scale.stride(1));
  }
  TORCH_CHECK(scale_b.size(0) == 1,
              "The size of tensor a (",
              mat2.size(0),
              ") must match the size of tensor b (",
              scale_b.size(0),
              ") at non-singleton dimension 0");
}

void check_v2_scales(const Tensor& self,
                     const Tensor& mat2,
                     const std::vector<Tensor>& scale_a,
                     IntArrayRef recipe_a,
                     const std::vector<Tensor>& scale_b,
                     IntArrayRef recipe_b) {
  const auto both_follow = [&](Scaling wanted) {
    return is_float8(self) && is_float8(mat2) &&
           follows(scale_a, recipe_a, wanted) &&
           follows(scale_b, recipe_b, wanted);
  };
  if (both_follow(Scaling::kTensorWise)) {
    TORCH_CHECK_VALUE(scale_a[0].numel() == 1,
                      "scale_a must have 1 Float element");
    TORCH_CHECK_VALUE(scale_b[0].numel() == 1,
                      "scale_b must have 1 Float element");
  } else if (both_follow(Scaling::kRowWise)) {
    check_row_scales(self, mat2, scale_a[0], scale_b[0]);
  } else {
    const auto first = [](const std::vector<Tensor>& scales) {
      return scales.empty() ? OptionalTensor() : OptionalTensor(scales[0]);
    };
    refuse_scaling(self, mat2, first(scale_a), first(scale_b));
  }
}

// Lists of tensors are of another type in later versions of torch.
template <class Function>
struct ListOf;
template <class R, class A, class B, class List, class... Rest>
struct ListOf<R(A, B, List, Rest...)> {
  using type = List;
};
using Scales = ListOf<at::_ops::_scaled_mm_v2::schema>::type;

Tensor& _scaled_mm_v2_out(const Tensor& self,
                          const Tensor& mat2,
                          Scales scale_a,
                          IntArrayRef recipe_a,
                          IntArrayRef swizzle_a,
                          Scales scale_b,
                          IntArrayRef recipe_b,
                          IntArrayRef swizzle_b,
                          const OptionalTensor& bias,
                          std::optional<ScalarType> out_dtype,
                          IntArrayRef contraction_dim,
                          bool /*use_fast_accum*/,
                          Tensor& out) {
  const std::vector<Tensor> scales_a(scale_a.begin(), scale_a.end());
  const std::vector<Tensor> scales_b(scale_b.begin(), scale_b.end());
  const bool has_bias = bias.has_value() && bias->defined();
  check_v2_shapes(self, mat2, contraction_dim);
  TORCH_CHECK_VALUE(!has_bias || bias->numel() == mat2.size(1),
                    "Bias must be size ",
                    mat2.size(1),
                    " but got ",
                    has_bias ? bias->numel() : 0);
  TORCH_CHECK_VALUE(!out_dtype || *out_dtype == out.scalar_type(),
                    "out_dtype must match output matrix type");
  TORCH_CHECK_VALUE(!has_bias || bias->scalar_type() == at::kFloat ||
                        bias->scalar_type() == at::kBFloat16 ||
                        bias->scalar_type() == at::kHalf,
                    "Bias must be Float32 or BFloat16 or Half, but got ",
                    has_bias ? bias->scalar_type() : at::kFloat);
  TORCH_CHECK_VALUE(swizzle_a.empty() || swizzle_b.empty() ||
                        (swizzle_a[0] == 0 && swizzle_b[0] == 0),
                    "CPU does not support swizzle.");
  check_v2_scales(self, mat2, scales_a, recipe_a, scales_b, recipe_b);
  check_shapes(self, mat2);
  at::native::resize_output(out, {self.size(0), mat2.size(1)});
  compute(self, mat2, scales_a[0], scales_b[0], bias, std::nullopt, out);
  return out;
}

Tensor _scaled_mm_v2(const Tensor& self,
                     const Tensor& mat2,
                     Scales scale_a,
                     IntArrayRef recipe_a,
                     IntArrayRef swizzle_a,
                     Scales scale_b,
                     IntArrayRef recipe_b,
                     IntArrayRef swizzle_b,
                     const OptionalTensor& bias,
                     std::optional<ScalarType> out_dtype,
                     IntArrayRef contraction_dim,
                     bool use_fast_accum) {
  Tensor out = at::empty(
      {0}, self.options().dtype(out_dtype.value_or(self.scalar_type())));
  return _scaled_mm_v2_out(self,
                           mat2,
                           scale_a,
                           recipe_a,
                           swizzle_a,
                           scale_b,
                           recipe_b,
                           swizzle_b,
                           bias,
                           out_dtype,
                           contraction_dim,
                           use_fast_accum,
                           out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_mm", TORCH_FN(_scaled_mm));
  m.impl("_scaled_mm.out", TORCH_FN(_scaled_mm_out));
  m.impl("_scaled_mm_v2", TORCH_FN(_scaled_mm_v2));
  m.impl("_scaled_mm_v2.out", TORCH_FN(_scaled_mm_v2_out));
}

}  // namespace torch_opencl::ops
