#include "joined.h"

#include "../../cpp/aten/clamp_epilogue.h"
#include "../common/half_numbers.h"
#include "../epilogue/epilogue.h"
#include "kernel.h"

#include <ATen/ScalarOps.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

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

class PointwiseStep : public EpilogueStep {
 public:
  PointwiseStep(const PointwiseOp& op,
                c10::ArrayRef<at::Scalar> scalars,
                std::vector<at::Scalar> numbers,
                const Tensor& out)
      : EpilogueStep({op.expression, op.inputs, op.scalars, op.uses_math}, out),
        op_(op),
        values_(scalars.vec()),
        numbers_(std::move(numbers)) {}

  void run_alone(const Tensor& value) const override {
    // The value with the layout it had when the op was called.
    Tensor input = value;
    if (input.sizes() != out.sizes() || input.strides() != out.strides()) {
      input = alias_of(value);
      input.unsafeGetTensorImpl()->set_sizes_and_strides(out.sizes(),
                                                         out.strides());
    }
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false)
        .promote_inputs_to_common_dtype(true)
        .allow_cpu_scalars(true)
        .resize_outputs(false)
        .add_output(out);
    size_t number = 0;
    for (const EpilogueOperand& operand : operands) {
      switch (operand.kind) {
        case OperandKind::kValue:
          config.add_owned_const_input(input);
          break;
        case OperandKind::kNumber:
          config.add_owned_const_input(
              at::native::wrapped_scalar_tensor(numbers_[number++]));
          break;
        case OperandKind::kChannel: {
          std::vector<int64_t> shape(out.dim(), 1);
          shape[1] = -1;
          config.add_owned_const_input(operand.tensor.view(shape));
          break;
        }
        default:
          config.add_owned_const_input(operand.tensor);
      }
    }
    at::TensorIterator iter = config.build();
    pointwise(iter, op_, values_);
  }

 private:
  const PointwiseOp& op_;
  std::vector<at::Scalar> values_;
  std::vector<at::Scalar> numbers_;
};

// Null where the op has to be a launch of its own.
std::unique_ptr<EpilogueStep> step_of(const at::TensorIteratorBase& iter,
                                      const PointwiseOp& op,
                                      c10::ArrayRef<at::Scalar> scalars,
                                      const EpilogueResult& result) {
  const at::TensorBase& out = iter.tensor_base(0);
  const at::ScalarType dtype = out.scalar_type();
  const at::ScalarType compute = compute_type(dtype);
  const uint8_t rounded = rounded_operands(iter, op, dtype);
  std::vector<EpilogueOperand> operands;
  std::vector<at::Scalar> numbers;
  bool has_value = false;
  for (int i = 1; i < iter.ntensors(); ++i) {
    if (iter.is_cpu_scalar(i)) {
      const at::Scalar value = cpu_scalar_value(iter, i);
      operands.push_back({OperandKind::kNumber});
      operands.back().number = scalar_argument(
          rounded >> i & 1 ? rounded_to_half(value.toDouble(), dtype) : value,
          compute);
      numbers.push_back(value);
      continue;
    }
    auto operand = result.operand(iter.tensor_base(i), out);
    if (!operand.has_value()) {
      return nullptr;
    }
    has_value |= operand->kind == OperandKind::kValue;
    operands.push_back(std::move(*operand));
  }
  if (!has_value) {
    return nullptr;
  }
  auto step = std::make_unique<PointwiseStep>(
      op, scalars, std::move(numbers), alias_of(out));
  step->operands = std::move(operands);
  for (const at::Scalar& scalar : scalars) {
    step->scalars.push_back(scalar_argument(scalar, compute));
  }
  return step;
}

// A result of its inputs' floating dtype, without reports to the host.
bool may_be_step(const at::TensorIteratorBase& iter, const PointwiseOp& op) {
  const at::TensorBase& out = iter.tensor_base(0);
  if (iter.noutputs() != 1 || keeps_dtypes(op) || *op.preamble != '\0' ||
      iter.ntensors() - 1 > static_cast<int>(kMaxEpilogueOperands) ||
      op.dtypes == Dtypes::kIntegral || op.checks_scalars ||
      !at::isFloatingType(out.scalar_type()) ||
      !out.is_non_overlapping_and_dense() ||
      std::string_view(op.expression) == op.inputs) {
    return false;
  }
  for (int i = 1; i < iter.ntensors(); ++i) {
    const at::ScalarType dtype = iter.dtype(i);
    if (iter.is_cpu_scalar(i) ? at::isComplexType(dtype)
                              : dtype != out.scalar_type()) {
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
  if (!queue_of(out).has_pending()) {
    return false;
  }
  return joins_as_clamp(iter, op, scalars) ||
         (may_be_step(iter, op) &&
          join_epilogue(out, [&](const EpilogueResult& result) {
            return step_of(iter, op, scalars, result);
          }));
}

}  // namespace torch_opencl::ops
