// Launches of a recurrence's steps: what kernels of both classes of device
// take.
#pragma once

#include "../../cpp/aten/launch.h"
#include "recurrence.h"

#include <algorithm>

namespace torch_opencl::ops {

// How a class of device divides a recurrence. A kernel uses of the last three
// what it knows: lanes, rows and units that a work-item or a work-group has at
// once.
struct RecurrenceBlocking {
  const aten::KernelSource& source;
  int64_t steps;  // of a launch
  aten::NDRange range;
  int64_t lanes = 1;
  int64_t rows = 1;
  int64_t units = 1;
};

// What a kernel of recurrences is compiled for, beside its blocking.
struct RecurrencePass {
  bool has_bias;
  bool keeps;  // what backward needs
  bool is_backward;
};

template <class... Arguments>
void launch_recurrence(const at::Tensor& on,
                       const RecurrencePass& pass,
                       const RecurrenceOptions& options,
                       const RecurrenceBlocking& blocking,
                       const char* kernel_name,
                       const Arguments&... arguments) {
  aten::launch(on,
               blocking.source,
               kernel_name,
               {{"DTYPE", aten::dtype_of(on)},
                {"LANES", blocking.lanes},
                {"ROWS", blocking.rows},
                {"UNITS", blocking.units},
                {"IS_LSTM", options.kind == Recurrence::kLstm},
                {"IS_GRU", options.kind == Recurrence::kGru},
                {"IS_RELU", options.kind == Recurrence::kRelu},
                {"HAS_BIAS", pass.has_bias},
                {"IS_KEPT", pass.keeps},
                {"IS_BACKWARD", pass.is_backward}},
               blocking.range,
               arguments...);
}

// `weight` lies as the kernel reads it. `split` are the kernel's own arguments.
template <class... Split>
void launch_steps(const RecurrenceInputs& inputs,
                  const RecurrenceOptions& options,
                  bool keeps,
                  const RecurrenceResults& results,
                  const RecurrenceBlocking& blocking,
                  const char* kernel_name,
                  const at::Tensor& weight,
                  const Split&... split) {
  using namespace aten;
  const at::Tensor& gates = inputs.gates;
  const at::Tensor& out = results.out;
  const int64_t time = options.time;
  const int64_t steps = gates.size(time);
  const int64_t batch = gates.size(1 - time);
  const int64_t units = inputs.hx.size(1);
  for (int64_t step = 0; step < steps; step += blocking.steps) {
    launch_recurrence(
        gates,
        {inputs.bias.defined(), keeps, false},
        options,
        blocking,
        kernel_name,
        arg_in(gates),
        arg_in(weight),
        arg_in(inputs.bias),
        arg_in(inputs.hx),
        arg_in(inputs.cx),
        arg(out),
        arg(results.hy),
        arg(results.cells),
        arg(results.kept),
        static_cast<int32_t>(batch),
        static_cast<int32_t>(units),
        static_cast<int32_t>(steps),
        static_cast<int32_t>(step),
        static_cast<int32_t>(std::min(step + blocking.steps, steps)),
        static_cast<int32_t>(options.is_reverse),
        static_cast<int32_t>(split)...,
        gates.stride(time),
        gates.stride(1 - time),
        out.stride(time),
        out.stride(1 - time),
        keeps ? batch * units : int64_t{0});
  }
}

template <class... Split>
void launch_steps_backward(const RecurrenceInputs& inputs,
                           const RecurrenceOptions& options,
                           const RecurrenceResults& results,
                           const RecurrenceResultGradients& given,
                           const RecurrenceGradients& grads,
                           const RecurrenceBlocking& blocking,
                           const char* kernel_name,
                           const at::Tensor& weight,
                           const Split&... split) {
  using namespace aten;
  const at::Tensor& out = results.out;
  const int64_t time = options.time;
  const int64_t steps = out.size(time);
  for (int64_t end = steps; end > 0; end -= blocking.steps) {
    launch_recurrence(
        out,
        {false, false, true},
        options,
        blocking,
        kernel_name,
        arg_in(given.out),
        arg_in(given.hy),
        arg_in(given.cy),
        arg_in(weight),
        arg_in(inputs.hx),
        arg_in(inputs.cx),
        arg_in(out),
        arg_in(results.cells),
        arg_in(results.kept),
        arg(grads.gates),
        arg(grads.hidden),
        arg(grads.carry),
        static_cast<int32_t>(out.size(1 - time)),
        static_cast<int32_t>(out.size(2)),
        static_cast<int32_t>(steps),
        static_cast<int32_t>(std::max<int64_t>(end - blocking.steps, 0)),
        static_cast<int32_t>(end),
        static_cast<int32_t>(options.is_reverse),
        static_cast<int32_t>(split)...,
        grads.gates.stride(time),
        grads.gates.stride(1 - time),
        out.stride(time),
        out.stride(1 - time),
        static_cast<int32_t>(given.out.defined()),
        static_cast<int32_t>(given.hy.defined()),
        static_cast<int32_t>(given.cy.defined()));
  }
}

}  // namespace torch_opencl::ops
