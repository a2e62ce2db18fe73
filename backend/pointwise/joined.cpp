#include "joined.h"

#include "../../cpp/aten/clamp_epilogue.h"
#include "../common/half_numbers.h"
#include "../epilogue/epilogue.h"
#include "kernel.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Clamps in place join the pending launch that writes what they clamp.
bool joins_as_clamp(const at::TensorIteratorBase& iter,
                    const PointwiseOp& op,
                    c10::ArrayRef<at::Scalar> scalars) {
  if (op.clamp == Clamp::kNone || scalars.empty() || iter.ntensors() != 2 ||
      !iter.tensor_base(0).is_same(iter.tensor_base(1))) {
    return false;
  }
  ClampBounds bounds;
  if (op.clamp != Clamp::kAbove) {
    bounds.lower = scalars.front().toDouble();
  }
  if (op.clamp != Clamp::kBelow) {
    bounds.upper = scalars.back().toDouble();
  }
  return !std::isnan(bounds.lower) && !std::isnan(bounds.upper) &&
         join_clamp(iter.tensor_base(0), bounds);
}

// None where the op has to be a launch of its own.
std::optional<EpilogueStep> step_of(const at::TensorIteratorBase& iter,
                                    const PointwiseOp& op,
                                    c10::ArrayRef<at::Scalar> scalars,
                                    const EpilogueValues& values) {
  const at::TensorBase& out = iter.tensor_base(0);
  const at::ScalarType dtype = out.scalar_type();
  const at::ScalarType compute = compute_type(dtype);
  const uint8_t rounded = rounded_operands(iter, op, dtype);
  EpilogueStep step{{op.expression, op.inputs, op.scalars, op.uses_math}};
  bool has_value = false;
  for (int i = 1; i < iter.ntensors(); ++i) {
    if (iter.is_cpu_scalar(i)) {
      const at::Scalar value = cpu_scalar_value(iter, i);
      step.operands.push_back({OperandKind::kNumber});
      step.operands.back().number = scalar_argument(
          rounded >> i & 1 ? rounded_to_half(value.toDouble(), dtype) : value,
          compute);
      continue;
    }
    auto operand = values.operand(iter.tensor_base(i), out);
    if (!operand.has_value()) {
      return std::nullopt;
    }
    has_value |= operand->kind == OperandKind::kValue;
    step.operands.push_back(std::move(*operand));
  }
  if (!has_value) {
    return std::nullopt;
  }
  for (const at::Scalar& scalar : scalars) {
    step.scalars.push_back(scalar_argument(scalar, compute));
  }
  step.out = alias_of(out);
  return step;
}

// A result of its inputs' floating dtype, without reports to the host.
bool may_be_step(const at::TensorIteratorBase& iter, const PointwiseOp& op) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (iter.noutputs() != 1 || keeps_dtypes(op) || *op.preamble != '\0' ||
      iter.ntensors() - 1 > static_cast<int>(kMaxEpilogueOperands) ||
      op.dtypes == Dtypes::kIntegral || op.checks_scalars ||
      *op.probabilities != '\0' || !at::isFloatingType(out.scalar_type()) ||
      !out.is_non_overlapping_and_dense() ||
      std::string_view(op.expression) == op.inputs) {
    return false;
  }
  for (int i = 1; i < iter.ntensors(); ++i) {
    const at::ScalarType dtype = iter.dtype(i);
    if (iter.is_cpu_scalar(i)
            ? at::isComplexType(dtype)
            : dtype != out.scalar_type() && dtype != at::kBool) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool joins_pending(at::TensorIteratorBase& iter,
                   const PointwiseOp& op,
                   c10::ArrayRef<at::Scalar> scalars) {
  const at::TensorBase& out = iter.tensor_base(0);
  return joins_as_clamp(iter, op, scalars) ||
         (may_be_step(iter, op) &&
          join_epilogue(out, [&](const EpilogueValues& values) {
            return step_of(iter, op, scalars, values);
          }));
}

bool copy_joins_pending(const Tensor& destination, const Tensor& source) {
  return destination.scalar_type() == source.scalar_type() &&
         destination.is_non_overlapping_and_dense() &&
         join_epilogue(
             destination,
             [&](const EpilogueValues& values) -> std::optional<EpilogueStep> {
               auto operand = values.operand(source, destination);
               if (!operand || operand->kind != OperandKind::kValue) {
                 return std::nullopt;
               }
               EpilogueStep step{{"self", "self", "", false}};
               step.operands.push_back(std::move(*operand));
               step.out = alias_of(destination);
               return step;
             });
}

}  // namespace torch_opencl::ops
