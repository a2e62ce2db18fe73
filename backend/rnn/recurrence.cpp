#include "recurrence.h"

#include "../common/lanes.h"
#include "../gemm/packed.h"
#include "kernel_sources.h"
#include "recurrence_launch.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Multiplications of a step that take a core less time than a launch takes.
constexpr int64_t kStepOfCore = int64_t(1) << 18;
// Elements of a weight that a core's own cache holds through a step.
constexpr int64_t kWeightOfCore = int64_t(1) << 18;

struct Share {
  RecurrenceBlocking blocking;
  int64_t rows_of_item;
  int64_t panels_of_item;
};

// `vectors` of a row have sums in registers together.
Share share_of(const Tensor& on,
               int64_t batch,
               int64_t steps,
               int64_t units,
               int64_t depth,
               int64_t gates,
               int64_t vectors) {
  const runtime::DeviceInfo& info = aten::device_of(on).info();
  const int64_t cores = info.compute_units;
  const int64_t sums = info.has_avx512_registers ? 24 : 6;
  const int64_t rows_at_once = std::clamp<int64_t>(
      ceil_div(batch, std::min<int64_t>(cores, 2)),
      1,
      std::min<int64_t>(8, std::max<int64_t>(sums / vectors, 1)));
  const auto blocking = [&](int64_t steps_at_once, const NDRange& items) {
    return RecurrenceBlocking{.source = sources::recurrence,
                              .steps = steps_at_once,
                              .range = items,
                              .lanes = kLanes,
                              .rows = rows_at_once};
  };
  const int64_t blocks = ceil_div(batch, rows_at_once);
  const int64_t panels = ceil_div(units, kLanes);
  const int64_t weight = units * units * gates;
  const bool is_whole =
      steps > 1 && ((weight <= kWeightOfCore && blocks >= cores) ||
                    weight * batch <= kStepOfCore);
  if (is_whole) {
    const int64_t rows =
        round_up(ceil_div(batch, std::min(blocks, cores)), rows_at_once);
    return {
        blocking(steps, range(ceil_div(batch, rows), 1, 1, 1)), rows, panels};
  }
  // All rows read a panel while it is in a cache.
  const int64_t at_once = depth > units || vectors > gates ? vectors : 1;
  const int64_t groups = ceil_div(panels, at_once);
  const int64_t slabs = std::min(groups, 4 * cores);
  const int64_t panels_of_item = ceil_div(groups, slabs) * at_once;
  const int64_t parts = std::min(blocks, ceil_div(cores, slabs));
  const int64_t rows = round_up(ceil_div(batch, parts), rows_at_once);
  return {
      blocking(
          1,
          range(ceil_div(batch, rows), ceil_div(panels, panels_of_item), 1, 1)),
      rows,
      panels_of_item};
}

void walk(const RecurrenceInputs& inputs,
          const RecurrenceOptions& options,
          bool keeps,
          const RecurrenceResults& results) {
  const Tensor& gates = inputs.gates;
  const int64_t units = inputs.hx.size(1);
  const Tensor& weight = inputs.weight;
  const int64_t count = gates_of(options.kind);
  const Tensor panels = pack_kept(weight,
                                  0,
                                  {{},
                                   level(units, weight.stride(0)),
                                   level(units, weight.stride(1)),
                                   units * weight.stride(0)},
                                  count,
                                  units,
                                  units,
                                  kLanes);
  const Share share = share_of(gates,
                               gates.size(1 - options.time),
                               gates.size(options.time),
                               units,
                               units,
                               count,
                               count);
  launch_steps(inputs,
               options,
               keeps,
               results,
               share.blocking,
               "recurrence",
               panels,
               share.rows_of_item,
               share.panels_of_item);
}

void walk_back(const RecurrenceInputs& inputs,
               const RecurrenceOptions& options,
               const RecurrenceResults& results,
               const RecurrenceResultGradients& given,
               const RecurrenceGradients& grads) {
  const Tensor& out = results.out;
  const int64_t units = out.size(2);
  const int64_t count = gates_of(options.kind);
  const Tensor& weight = inputs.weight;
  const Tensor panels = pack_kept(weight,
                                  0,
                                  {{},
                                   level(units, weight.stride(1)),
                                   level(count * units, weight.stride(0)),
                                   0},
                                  1,
                                  units,
                                  count * units,
                                  kLanes);
  const Share share = share_of(out,
                               out.size(1 - options.time),
                               out.size(options.time),
                               units,
                               count * units,
                               count,
                               4);
  launch_steps_backward(inputs,
                        options,
                        results,
                        given,
                        grads,
                        share.blocking,
                        "recurrence_backward",
                        panels,
                        share.rows_of_item,
                        share.panels_of_item);
}

}  // namespace

RecurrenceResults recurrence(const RecurrenceInputs& inputs,
                             const RecurrenceOptions& options,
                             bool keeps) {
  const bool is_lstm = options.kind == Recurrence::kLstm;
  const Tensor& gates = inputs.gates;
  const int64_t time = options.time;
  const int64_t steps = gates.size(time);
  const int64_t batch = gates.size(1 - time);
  const int64_t units = inputs.hx.size(1);
  const Tensor out =
      at::empty({gates.size(0), gates.size(1), units}, gates.options());
  RecurrenceResults results{
      out, at::empty({batch, units}, gates.options()), {}, {}, {}};
  if (is_lstm) {
    results.cells =
        at::empty({keeps ? steps : 1, batch, units}, gates.options());
  }
  if (keeps && gates_of(options.kind) > 1) {
    results.kept = at::empty({steps, batch, 4 * units}, gates.options());
  }
  if (aten::device_of(gates).is_cpu()) {
    walk(inputs, options, keeps, results);
  } else {
    walk_in_groups(inputs, options, keeps, results);
  }
  if (is_lstm) {
    const Tensor last =
        results.cells.select(0, !keeps || options.is_reverse ? 0 : steps - 1);
    results.cy = keeps ? last.clone() : last;
  }
  return results;
}

RecurrenceGradients recurrence_backward(const RecurrenceInputs& inputs,
                                        const RecurrenceOptions& options,
                                        const RecurrenceResults& results,
                                        const Tensor& grad_out,
                                        const Tensor& grad_hy,
                                        const Tensor& grad_cy) {
  const bool is_gru = options.kind == Recurrence::kGru;
  const Tensor& out = results.out;
  const int64_t batch = out.size(1 - options.time);
  const int64_t units = out.size(2);
  const int64_t count = gates_of(options.kind);
  RecurrenceGradients grads;
  grads.gates =
      at::empty({out.size(0), out.size(1), count * units}, out.options());
  grads.hidden = is_gru ? at::empty_like(grads.gates) : grads.gates;
  if (count > 1) {
    grads.carry = at::empty({batch, units}, out.options());
  }
  const RecurrenceResultGradients given{grad_out, grad_hy, grad_cy};
  if (aten::device_of(out).is_cpu()) {
    walk_back(inputs, options, results, given, grads);
  } else {
    walk_back_in_groups(inputs, options, results, given, grads);
  }
  return grads;
}

}  // namespace torch_opencl::ops
