// Recurrences on GPUs: one launch a step, or one for all steps.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/packed_weight.h"
#include "../gemm/packed.h"
#include "kernel_sources.h"
#include "recurrence.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kRows = 4;
constexpr int64_t kGroup = 256;
// A compute unit reads a weight of so many elements from the GPU's cache in
// about the time of a launch: then it may as well walk all steps.
constexpr int64_t kWeightOfGroup = int64_t(1) << 18;
// A GPU's watchdog ends kernels of seconds.
constexpr int64_t kMostSteps = 4096;

struct Groups {
  int64_t units;  // at once
  int64_t blocks;
  int64_t steps;
  NDRange range;
};

Groups groups_of(int64_t batch, int64_t steps, int64_t units, int64_t gates) {
  const bool is_whole = steps > 1 && units * units * gates <= kWeightOfGroup;
  int64_t at_once = 32;
  while (is_whole && at_once < std::min(units, kGroup)) {
    at_once *= 2;
  }
  const int64_t blocks = ceil_div(units, at_once);
  return {
      at_once,
      is_whole ? blocks : 1,
      is_whole ? std::min(steps, kMostSteps) : 1,
      range(ceil_div(batch, kRows) * kGroup, is_whole ? 1 : blocks, kGroup, 1)};
}

ScalarArgument stride(int64_t value) {
  return index_argument(value, true);
}

int32_t number(int64_t value) {
  return static_cast<int32_t>(value);
}

}  // namespace

void walk_in_groups(const RecurrenceInputs& inputs,
                    const RecurrenceOptions& options,
                    bool keeps,
                    const RecurrenceResults& results) {
  const Tensor& gates = inputs.gates;
  const Tensor& out = results.out;
  const int64_t time = options.time;
  const int64_t steps = gates.size(time);
  const int64_t batch = gates.size(1 - time);
  const int64_t units = inputs.hx.size(1);
  const int64_t count = gates_of(options.kind);
  // A work-item reads its unit's gates at once, neighbours neighbouring units.
  const Tensor weight =
      packed_weight(inputs.weight, sources::recurrence_groups, {count}, [&] {
        return inputs.weight.view({count, units, units})
            .permute({2, 1, 0})
            .contiguous();  // copy: kernels read it so
      });
  const Groups groups = groups_of(batch, steps, units, count);
  for (int64_t step = 0; step < steps; step += groups.steps) {
    launch(gates,
           sources::recurrence_groups,
           "recurrence_groups",
           {{"DTYPE", dtype_of(gates)},
            {"UNITS", groups.units},
            {"IS_LSTM", options.kind == Recurrence::kLstm},
            {"IS_GRU", options.kind == Recurrence::kGru},
            {"IS_RELU", options.kind == Recurrence::kRelu},
            {"HAS_BIAS", inputs.bias.defined()},
            {"IS_KEPT", keeps}},
           groups.range,
           arg_in(gates),
           arg_in(weight),
           arg_in(inputs.bias),
           arg_in(inputs.hx),
           arg_in(inputs.cx),
           arg(out),
           arg(results.hy),
           arg(results.cells),
           arg(results.kept),
           number(batch),
           number(units),
           number(steps),
           number(step),
           number(std::min(step + groups.steps, steps)),
           number(options.is_reverse),
           number(groups.blocks),
           stride(gates.stride(time)),
           stride(gates.stride(1 - time)),
           stride(out.stride(time)),
           stride(out.stride(1 - time)),
           stride(keeps ? batch * units : 0));
  }
}

void walk_back_in_groups(const RecurrenceInputs& inputs,
                         const RecurrenceOptions& options,
                         const RecurrenceResults& results,
                         const Tensor& grad_out,
                         const Tensor& grad_hy,
                         const Tensor& grad_cy,
                         const RecurrenceGradients& grads) {
  const Tensor& out = results.out;
  const int64_t time = options.time;
  const int64_t steps = out.size(time);
  const int64_t batch = out.size(1 - time);
  const int64_t units = out.size(2);
  const int64_t count = gates_of(options.kind);
  const Tensor weight = inputs.weight.contiguous();  // copy: none of a layer's
  const Groups groups = groups_of(batch, steps, units, count);
  for (int64_t end = steps; end > 0; end -= groups.steps) {
    launch(out,
           sources::recurrence_groups,
           "recurrence_groups_backward",
           {{"DTYPE", dtype_of(out)},
            {"UNITS", groups.units},
            {"IS_LSTM", options.kind == Recurrence::kLstm},
            {"IS_GRU", options.kind == Recurrence::kGru},
            {"IS_RELU", options.kind == Recurrence::kRelu},
            {"IS_BACKWARD", 1}},
           groups.range,
           arg_in(grad_out),
           arg_in(grad_hy),
           arg_in(grad_cy),
           arg_in(weight),
           arg_in(inputs.hx),
           arg_in(inputs.cx),
           arg_in(out),
           arg_in(results.cells),
           arg_in(results.kept),
           arg(grads.gates),
           arg(grads.hidden),
           arg(grads.carry),
           number(batch),
           number(units),
           number(steps),
           number(std::max<int64_t>(end - groups.steps, 0)),
           number(end),
           number(options.is_reverse),
           number(groups.blocks),
           stride(grads.gates.stride(time)),
           stride(grads.gates.stride(1 - time)),
           stride(out.stride(time)),
           stride(out.stride(1 - time)),
           number(grad_out.defined()),
           number(grad_hy.defined()),
           number(grad_cy.defined()));
  }
}

}  // namespace torch_opencl::ops
