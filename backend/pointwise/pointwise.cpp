#include "kernel.h"

#include "../../cpp/aten/reports.h"
#include "../common/bits.h"
#include "../common/half_numbers.h"
#include "../common/integers.h"
#include "../common/kernel_table.h"
#include "../common/non_temporal.h"
#include "../float8/float8.h"
#include "../rearrange/transpose.h"
#include "counter.h"
#include "joined.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string_view>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

// Elements of a contiguous chunk, or of a row, that one work-item loops over.
constexpr int64_t kMinChunk = 1024;
constexpr int64_t kMaxChunk = 65536;
constexpr int32_t kShortRun = 16;

runtime::Kernel& find_kernel(runtime::Device& device, const PointwiseKey& key) {
  static auto* table = new KernelTable<PointwiseKey>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    return device.programs().get_generated(
        key.op->name,
        pointwise_text(key),
        "pointwise",
        keeps_dtypes(*key.op) ? literal_options(key.dtypes) : "");
  });
}

// The dtype that operands are converted to. An iterator that was not asked to
// promote reports its first input's dtype, which for where() is the
// condition's: the values come last.
at::ScalarType common_dtype(const at::TensorIteratorBase& iter) {
  const at::ScalarType last = iter.dtype(iter.ntensors() - 1);
  const at::ScalarType common = iter.maybe_common_dtype().value_or(last);
  return common == at::kBool ? last : common;
}

// Whether numbers have to be values of the common dtype. Those of half types
// are float32 on the CPU, too.
bool checks_scalars(const PointwiseOp& op, at::ScalarType common) {
  return op.checks_scalars || at::isIntegralType(common, /*includeBool=*/true);
}

// Raises where the divisor is a number, and zero as an integer of `compute`.
void check_divisor(const at::TensorIteratorBase& iter,
                   const PointwiseOp& op,
                   at::ScalarType compute) {
  const int divisor = iter.ntensors() - 1;
  if (!op.divides || at::isFloatingType(compute) ||
      !iter.is_cpu_scalar(divisor)) {
    return;
  }
  const ScalarArgument value =
      scalar_argument(cpu_scalar_value(iter, divisor), compute);
  TORCH_CHECK(std::any_of(value.bytes.begin(),
                          value.bytes.begin() + value.size,
                          [](unsigned char byte) { return byte != 0; }),
              "ZeroDivisionError");
}

void check_dtype(const PointwiseOp& op, at::ScalarType common) {
  const bool supported =
      at::isComplexType(common)
          ? *op.complex_expression != '\0' || keeps_dtypes(op)
          : op.dtypes == Dtypes::kAll ||
                (op.dtypes == Dtypes::kFloating) == at::isFloatingType(common);
  const auto name = [&op] {
    const std::string_view full = op.name;
    return full.substr(0, full.find('.'));
  };
  TORCH_CHECK_NOT_IMPLEMENTED(
      supported, '"', name(), "\" not implemented for '", common, "'");
}

// Operands that have the common dtype and are moved: as integers, since half
// types would lose NaNs' bits on their way through float32. None where there is
// another one, but for a condition.
uint8_t moved_operands(const at::TensorIteratorBase& iter,
                       const PointwiseOp& op,
                       at::ScalarType common) {
  if (!op.moves || !at::isReducedFloatingType(common)) {
    return 0;
  }
  uint8_t moved = 0;
  for (int i = 0; i < iter.ntensors(); ++i) {
    if (iter.dtype(i) == common && !iter.is_cpu_scalar(i)) {
      moved |= 1 << i;
    } else if (iter.dtype(i) != at::kBool || iter.noutputs() > i) {
      return 0;
    }
  }
  return moved;
}

PointwiseLayout choose_layout(const runtime::DeviceInfo& info,
                              bool contiguous) {
  const bool items = info.device_class == runtime::DeviceClass::kGpu;
  if (contiguous) {
    return items ? PointwiseLayout::kItems : PointwiseLayout::kChunks;
  }
  return items ? PointwiseLayout::kStridedItems
               : PointwiseLayout::kStridedChunks;
}

// Lines that were just read are in a cache: writing past it gains nothing.
bool writes_elsewhere(const at::TensorIteratorBase& iter) {
  bool reads = false;
  for (int i = iter.noutputs(); i < iter.ntensors(); ++i) {
    if (iter.data_ptr(i) == iter.data_ptr(0)) {
      return false;
    }
    reads |= !iter.is_cpu_scalar(i);
  }
  return reads;
}

struct Operands {
  std::array<void*, kMaxOperands> data{};
  std::array<Dimensions, kMaxOperands> strides;  // of the operands there are
  Dimensions sizes{};
  bool contiguous = true;
  std::vector<at::Tensor> transposed;  // what some of `data` belongs to
};

// Strides in elements, at least one dimension.
void describe(const at::TensorIteratorBase& iter, Operands& operands) {
  const int dimensions = iter.ndim();
  operands.sizes[0] = 1;
  for (int d = 0; d < dimensions; ++d) {
    operands.sizes[d] = static_cast<int32_t>(iter.shape()[d]);
  }
  for (int i = 0; i < iter.ntensors(); ++i) {
    operands.data[i] = iter.data_ptr(i);
    operands.strides[i] = {};
    // A shift: elements have 1, 2, 4, 8 or 16 bytes.
    const int item =
        std::countr_zero(static_cast<uint64_t>(iter.element_size(i)));
    const at::IntArrayRef strides = iter.strides(i);
    for (int d = 0; d < dimensions; ++d) {
      operands.strides[i][d] = static_cast<int32_t>(strides[d] >> item);
    }
    if (!iter.is_cpu_scalar(i) && dimensions > 0) {
      operands.contiguous &= dimensions == 1 && operands.strides[i][0] == 1;
    }
  }
}

// For runs of CPUs. Where another dimension is the innermost of a large input
// than of the output, a run would touch a line of memory for each element: the
// input is copied into the output's order first.
void transpose_inputs(const at::TensorIteratorBase& iter, Operands& operands) {
  constexpr int64_t kFewestElements = 1 << 16;
  if (iter.numel() < kFewestElements) {
    return;
  }
  at::DimVector sizes(iter.shape().rbegin(), iter.shape().rend());
  for (int i = iter.noutputs(); i < iter.ntensors(); ++i) {
    const at::TensorBase& input = iter.tensor_base(i);
    if (iter.is_cpu_scalar(i) || operands.strides[i][0] <= 1 ||
        input.numel() != iter.numel()) {
      continue;
    }
    at::DimVector strides;
    for (int d = iter.ndim() - 1; d >= 0; --d) {
      strides.push_back(operands.strides[i][d]);
    }
    const at::Tensor view =
        at::as_strided(iter.tensor(i), sizes, strides, input.storage_offset());
    const at::Tensor transposed = at::empty(sizes, view.options());
    auto copying = at::TensorIteratorConfig()
                       .set_check_mem_overlap(false)
                       .add_output(transposed)
                       .add_const_input(view)
                       .resize_outputs(false)
                       .build();
    if (copy_transposed(copying)) {
      operands.data[i] = transposed.data_ptr();
      int64_t stride = 1;
      for (int d = 0; d < iter.ndim(); ++d) {
        operands.strides[i][d] = static_cast<int32_t>(stride);
        stride *= iter.shape()[d];
      }
      operands.transposed.push_back(transposed);
    }
  }
}

// Runs of few elements cost more than they hold: a longer dimension becomes the
// innermost. The ones it passes follow at once, so that their lines of memory
// are still in the caches.
void lengthen_runs(Operands& operands, int dimensions, int count) {
  int longest = 0;
  for (int d = 1; d < dimensions && operands.sizes[longest] < kShortRun; ++d) {
    if (operands.sizes[d] > operands.sizes[longest]) {
      longest = d;
    }
  }
  const auto front = [longest](Dimensions& values) {
    std::rotate(
        values.begin(), values.begin() + longest, values.begin() + longest + 1);
  };
  front(operands.sizes);
  for (int i = 0; i < count; ++i) {
    front(operands.strides[i]);
  }
}

// Makes chunks of runs joined ones where that saves their last, tails:
// all operands are contiguous, have a number for each run or repeat one.
void join_runs(PointwiseKey& key, const Operands& operands, int dimensions) {
  const int32_t run = operands.sizes[0];
  if (key.layout != PointwiseLayout::kStridedChunks || run < kValueLanes ||
      run > kLongestRun || run % kValueLanes == 0) {
    return;
  }
  auto inner = key.inner;
  for (int i = 0; i < key.operands; ++i) {
    const Dimensions& strides = operands.strides[i];
    const bool is_input = i > 0;
    if ((key.host_operands >> i & 1) || (is_input && strides[0] == 0)) {
      continue;
    }
    bool contiguous = true;
    int32_t stride = 1;
    for (int d = 0; d < dimensions; ++d) {
      contiguous &= strides[d] == stride;
      stride *= operands.sizes[d];
    }
    if (contiguous) {
      continue;
    }
    if (!is_input || strides[0] != 1 || strides[1] != 0) {
      return;
    }
    inner[i] = kRepeatedRun;
  }
  key.inner = inner;
  key.layout = PointwiseLayout::kJoinedChunks;
}

void check_limits(const at::TensorIteratorBase& iter, const PointwiseOp& op) {
  check_dimensions(op.name, iter.ndim());
  TORCH_CHECK(iter.ntensors() <= kMaxOperands,
              op.name,
              ": opencl supports up to ",
              kMaxOperands,
              " operands, got ",
              iter.ntensors());
}

// Their dtypes, which are numbers of the host, and the innermost strides.
void set_operands(PointwiseKey& key,
                  const at::TensorIteratorBase& iter,
                  const Operands& operands,
                  uint8_t moved) {
  for (int i = 0; i < key.operands; ++i) {
    key.dtypes[i] = moved >> i & 1 ? key.common : dtype_of(iter.dtype(i));
    if (iter.is_cpu_scalar(i)) {
      key.host_operands |= 1 << i;
    } else if (key.layout == PointwiseLayout::kStridedChunks) {
      const int32_t inner = operands.strides[i][0];
      key.inner[i] = inner >= 0 && inner <= 2 ? inner : 3;
    }
  }
}

// What a launch needs besides its arguments' values.
struct Plan {
  Operands operands;
  PointwiseKey key{};
  at::ScalarType common{};
  at::ScalarType compute{};
  c10::SmallVector<ScalarArgument, 3> scalars;
  int64_t workers = 0;  // on CPUs, for which work is divided
  runtime::Kernel* kernel = nullptr;
};

Plan plan_pointwise(runtime::Device& device,
                    at::TensorIteratorBase& iter,
                    const PointwiseOp& op,
                    c10::ArrayRef<at::Scalar> scalars) {
  check_limits(iter, op);
  Plan plan;
  describe(iter, plan.operands);
  plan.common = keeps_dtypes(op) ? iter.dtype(0) : common_dtype(iter);
  plan.compute = compute_type(plan.common);
  check_dtype(op, plan.common);
  check_divisor(iter, op, plan.compute);
  for (const at::Scalar& scalar : scalars) {
    plan.scalars.push_back(scalar_argument(
        checks_scalars(op, plan.common) ? checked_scalar(scalar, plan.common)
                                        : scalar,
        plan.compute));
  }
  const runtime::DeviceInfo& info = device.info();
  Operands& operands = plan.operands;

  PointwiseKey& key = plan.key;
  key.op = &op;
  key.common = dtype_of(plan.common);
  key.rounded = rounded_operands(iter, op, plan.common);
  key.compute = dtype_of(plan.compute);
  const uint8_t moved = moved_operands(iter, op, plan.common);
  if (moved != 0) {
    key.common = key.compute = bits_dtype(iter.element_size(0));
  }
  key.layout = choose_layout(info, operands.contiguous);
  key.operands = static_cast<uint8_t>(iter.ntensors());
  key.outputs = static_cast<uint8_t>(iter.noutputs());
  if (is_strided(key.layout)) {
    key.dimensions = static_cast<uint8_t>(iter.ndim());
  }
  if (key.layout == PointwiseLayout::kStridedChunks) {
    transpose_inputs(iter, operands);
    lengthen_runs(operands, iter.ndim(), key.operands);
  }
  set_operands(key, iter, operands, moved);
  if (uses_lanes(key)) {
    key.non_temporal = is_non_temporal(device, iter.dtype(0), iter.numel()) &&
                       writes_elsewhere(iter);
    join_runs(key, operands, iter.ndim());
  } else if (key.layout == PointwiseLayout::kChunks &&
             info.vectorizes_work_items) {
    key.layout = PointwiseLayout::kItems;
  }
  plan.workers = int64_t(info.compute_units) * 4;
  plan.kernel = &find_kernel(device, key);
  return plan;
}

// Adds them to an ArgumentBinder or KernelArguments. How many work-items run.
template <class Arguments>
NDRange add_arguments(Arguments& arguments,
                      const Plan& plan,
                      const at::TensorIteratorBase& iter,
                      const PointwiseOp& op) {
  const PointwiseKey& key = plan.key;
  const Operands& operands = plan.operands;
  const int64_t count = iter.numel();
  const int64_t chunk =
      std::clamp(ceil_div(count, plan.workers), kMinChunk, kMaxChunk);

  for (int i = 0; i < key.operands; ++i) {
    if (key.host_operands >> i & 1) {
      arguments.add(scalar_argument(
          key.rounded >> i & 1
              ? rounded_to_half(cpu_scalar_value(iter, i).toDouble(),
                                plan.common)
              : cpu_scalar_value(iter, i),
          keeps_dtypes(op) ? compute_type(iter.dtype(i)) : plan.compute));
      continue;
    }
    arguments.add(i < key.outputs ? arg_at(operands.data[i], iter.dtype(i))
                                  : arg_in_at(operands.data[i], iter.dtype(i)));
    if (is_strided(key.layout)) {
      arguments.add(operands.strides[i]);
    }
  }
  for (const ScalarArgument& scalar : plan.scalars) {
    arguments.add(scalar);
  }
  if (is_strided(key.layout)) {
    arguments.add(operands.sizes);
  }
  const int64_t run = operands.sizes[0];
  NDRange work = range(count, kPointwiseGroup);
  if (key.layout == PointwiseLayout::kStridedChunks) {
    // Short runs are taken several at a time.
    const int64_t runs = ceil_div(run, chunk) * (count / run);
    const int64_t runs_per_item = std::max<int64_t>(1, chunk / run);
    arguments.add(static_cast<uint32_t>(runs_per_item));
    arguments.add(static_cast<uint32_t>(chunk));
    arguments.add(static_cast<uint32_t>(runs));
    work = range(ceil_div(runs, runs_per_item), 1);
  } else {
    arguments.add(static_cast<uint32_t>(count));
    arguments.add(static_cast<uint32_t>(chunk));
    if (key.layout == PointwiseLayout::kJoinedChunks) {
      arguments.add(static_cast<uint32_t>(count / run));
    }
    if (!is_element_wise(key.layout)) {
      work = range(ceil_div(count, chunk), 1);
    }
  }
  return work;
}

void launch_pointwise(runtime::Queue& queue,
                      at::TensorIteratorBase& iter,
                      const PointwiseOp& op,
                      c10::ArrayRef<at::Scalar> scalars) {
  const Plan plan = plan_pointwise(queue.device(), iter, op, scalars);
  const auto lock = queue.lock(*plan.kernel);
  ArgumentBinder arguments(*plan.kernel);
  std::optional<runtime::ReportArgument> report;
  if (may_report(plan.key)) {
    report.emplace(queue, op.name);
    arguments.add(*report);
  }
  const NDRange work = add_arguments(arguments, plan, iter, op);
  arguments.launch(queue, work);
}

// True where it is pending.
bool pend_counter_addition(runtime::Queue& queue,
                           at::TensorIteratorBase& iter,
                           const PointwiseOp& op,
                           c10::ArrayRef<at::Scalar> scalars) {
  const CounterAddition addition = counter_addition(iter, op, scalars);
  if (!addition.counter.defined()) {
    return false;
  }
  const Plan plan = plan_pointwise(queue.device(), iter, op, scalars);
  runtime::KernelArguments arguments;
  const NDRange work = add_arguments(arguments, plan, iter, op);
  pend_counter(addition, {*plan.kernel, work, arguments});
  return true;
}

}  // namespace

uint8_t rounded_operands(const at::TensorIteratorBase& iter,
                         const PointwiseOp& op,
                         at::ScalarType common) {
  if (compute_type(common) == common || keeps_dtypes(op) ||
      std::string_view(op.expression) == op.inputs) {  // a copy
    return 0;
  }
  uint8_t rounded = 0;
  for (int i = 0; i < iter.ntensors(); ++i) {
    const bool is_number = op.keeps_numbers && i + 1 == iter.ntensors() &&
                           iter.tensor_base(i).numel() == 1;
    const bool is_kept =
        op.keeps_integers && at::isIntegralType(iter.dtype(i), true);
    if (iter.dtype(i) != common && iter.dtype(i) != at::kBool && !is_number &&
        !is_kept) {
      rounded |= 1 << i;
    }
  }
  return rounded;
}

void pointwise(at::TensorIteratorBase& iter,
               const PointwiseOp& op,
               c10::ArrayRef<at::Scalar> scalars) {
  if (iter.numel() == 0) {
    return;
  }
  if (has_float8(iter)) {
    pointwise_float8(iter, op, scalars);
    return;
  }
  runtime::Queue& queue = queue_of(iter.tensor_base(0));
  if ((queue.has_pending() && joins_pending(iter, op, scalars)) ||
      (op.counts && pend_counter_addition(queue, iter, op, scalars))) {
    return;
  }
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) {
      launch_pointwise(queue, part, op, scalars);
    }
    return;
  }
  launch_pointwise(queue, iter, op, scalars);
}

}  // namespace torch_opencl::ops
