// Recurrences on GPUs: one launch a step, or one for all steps.
#include "../../cpp/aten/packed_weight.h"
#include "../common/integers.h"
#include "kernel_sources.h"
#include "recurrence_launch.h"

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr int64_t kRows = 4;
constexpr int64_t kGroup = 256;
// A GPU's watchdog ends kernels of seconds.
constexpr int64_t kMostSteps = 4096;

struct Groups {
  RecurrenceBlocking blocking;
  int64_t blocks;  // of units, of a work-group
};

// A work-group that reads the weight in about the time of a launch may as well
// walk all steps.
Groups groups_of(const runtime::DeviceInfo& device,
                 int64_t batch,
                 int64_t steps,
                 int64_t units,
                 int64_t gates) {
  const auto weight =
      static_cast<int64_t>(device.tuning->numbers.recurrence_weight_of_unit);
  const bool is_whole = steps > 1 && units * units * gates <= weight;
  int64_t at_once = 32;
  while (is_whole && at_once < std::min(units, kGroup)) {
    at_once *= 2;
  }
  const int64_t blocks = ceil_div(units, at_once);
  return {
      {.source = sources::recurrence_groups,
       .steps = is_whole ? std::min(steps, kMostSteps) : 1,
       .range = range(
           ceil_div(batch, kRows) * kGroup, is_whole ? 1 : blocks, kGroup, 1),
       .units = at_once},
      is_whole ? blocks : 1};
}

}  // namespace

void walk_in_groups(const RecurrenceInputs& inputs,
                    const RecurrenceOptions& options,
                    bool keeps,
                    const RecurrenceResults& results) {
  const Tensor& gates = inputs.gates;
  const int64_t units = inputs.hx.size(1);
  const int64_t count = gates_of(options.kind);
  // A work-item reads its unit's gates at once, neighbours neighbouring units.
  const Tensor weight =
      packed_weight(inputs.weight, sources::recurrence_groups, {count}, [&] {
        return inputs.weight.view({count, units, units})
            .permute({2, 1, 0})
            .contiguous();  // copy: kernels read it so
      });
  const Groups groups = groups_of(aten::device_of(gates).info(),
                                  gates.size(1 - options.time),
                                  gates.size(options.time),
                                  units,
                                  count);
  launch_steps(inputs,
               options,
               keeps,
               results,
               groups.blocking,
               "recurrence_groups",
               weight,
               groups.blocks);
}

void walk_back_in_groups(const RecurrenceInputs& inputs,
                         const RecurrenceOptions& options,
                         const RecurrenceResults& results,
                         const RecurrenceResultGradients& given,
                         const RecurrenceGradients& grads) {
  const Tensor& out = results.out;
  const Tensor weight = inputs.weight.contiguous();  // copy: none of a layer's
  const Groups groups = groups_of(aten::device_of(out).info(),
                                  out.size(1 - options.time),
                                  out.size(options.time),
                                  out.size(2),
                                  gates_of(options.kind));
  launch_steps_backward(inputs,
                        options,
                        results,
                        given,
                        grads,
                        groups.blocking,
                        "recurrence_groups_backward",
                        weight,
                        groups.blocks);
}

}  // namespace torch_opencl::ops
