#include "float8.h"

#include "../../cpp/aten/launch.h"
#include "kernel_sources.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace torch_opencl::ops {
namespace {

using at::ScalarType;
using at::Tensor;

// Conversions of one format: `result` and `self` keep their dtypes, of which
// the float8 one is bytes.
struct Format {
  ScalarType type;
  PointwiseOp decode;
  PointwiseOp encode;
};

PointwiseOp conversion(const char* name, const char* expression) {
  return {.name = name,
          .expression = expression,
          .inputs = "self",
          .outputs = "result",
          .preamble = sources::float8.text};
}

#define TORCH_OPENCL_FLOAT8(type, name)                                     \
  Format {                                                                  \
    ScalarType::type,                                                       \
        conversion("decode_" #name, "result = value_" #name "(self)"),      \
        conversion("encode_" #name, "result = bits_" #name "((float)self)") \
  }

const Format& format_of(ScalarType type) {
  static const auto* formats = new std::array<Format, 5>{
      TORCH_OPENCL_FLOAT8(Float8_e4m3fn, float8_e4m3fn),
      TORCH_OPENCL_FLOAT8(Float8_e5m2, float8_e5m2),
      TORCH_OPENCL_FLOAT8(Float8_e4m3fnuz, float8_e4m3fnuz),
      TORCH_OPENCL_FLOAT8(Float8_e5m2fnuz, float8_e5m2fnuz),
      TORCH_OPENCL_FLOAT8(Float8_e8m0fnu, float8_e8m0fnu)};
  for (const Format& format : *formats) {
    if (format.type == type) {
      return format;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "opencl kernels do not support dtype ", type);
}

#undef TORCH_OPENCL_FLOAT8

void convert(const Tensor& destination,
             const Tensor& source,
             const PointwiseOp& op) {
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(as_bytes(destination))
                  .add_owned_const_input(as_bytes(source))
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .build();
  pointwise(iter, op, {});
}

// The CPU's ops that take float8 and compute. e8m0fnu has fewer of them.
bool takes_float8(std::string_view op, bool is_e8m0) {
  constexpr std::array<std::string_view, 4> kOps{
      "eq.Tensor_out", "ne.Tensor_out", "mul.out", "conj_physical.out"};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end() ||
         (op == "abs.out" && !is_e8m0);
}

}  // namespace

Tensor as_bytes(const Tensor& tensor) {
  return is_float8(tensor) ? tensor.view(at::kByte) : tensor;
}

void copy_float8(const Tensor& destination, const Tensor& source) {
  const bool decodes = is_float8(source);
  const bool encodes = is_float8(destination);
  const bool is_direct =
      encodes || at::isFloatingType(destination.scalar_type());
  if (decodes && (encodes || !is_direct)) {
    destination.copy_(float8_values(source));
  } else {
    convert(destination,
            source,
            decodes ? format_of(source.scalar_type()).decode
                    : format_of(destination.scalar_type()).encode);
  }
}

Tensor float8_values(const Tensor& tensor) {
  const Tensor values =
      at::empty_like(tensor, tensor.options().dtype(at::kFloat));
  if (tensor.numel() > 0) {
    copy_float8(values, tensor);
  }
  return values;
}

void pointwise_float8(at::TensorIteratorBase& iter,
                      const PointwiseOp& op,
                      c10::ArrayRef<at::Scalar> scalars) {
  const ScalarType common = iter.dtype(iter.ntensors() - 1);
  const std::string_view name = op.name;
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.moves || takes_float8(name, common == ScalarType::Float8_e8m0fnu),
      '"',
      name.substr(0, name.find('.')),
      "\" not implemented for '",
      common,
      "'");
  const auto operand = [&](int i) -> Tensor {
    const Tensor& tensor = iter.tensor(i);
    if (op.moves) {
      return as_bytes(tensor);
    }
    if (iter.is_cpu_scalar(i)) {
      // Rounded to the format, as a TensorIterator on the CPU converts it.
      return tensor.to(iter.maybe_common_dtype().value_or(common))
          .to(at::kFloat);
    }
    return is_float8(tensor) ? float8_values(tensor) : tensor;
  };
  const Tensor& out = iter.tensor(0);
  const Tensor result =
      !is_float8(out) ? out
      : op.moves      ? as_bytes(out)
                      : at::empty(out.sizes(), out.options().dtype(at::kFloat));
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .resize_outputs(false)
      .set_check_mem_overlap(false)
      .add_output(result);
  for (int i = iter.noutputs(); i < iter.ntensors(); ++i) {
    config.add_owned_const_input(operand(i));
  }
  auto converted = config.build();
  pointwise(converted, op, scalars);
  if (is_float8(out) && !op.moves) {
    out.copy_(result);
  }
}

}  // namespace torch_opencl::ops
