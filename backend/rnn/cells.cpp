// _thnn_fused_lstm_cell and _thnn_fused_gru_cell, which torch's recurrent
// layers call for every step on a device like ours.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "../common/dtype_check.h"
#include "../common/optional_tensor.h"
#include "kernel_sources.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// In the dtype that a kernel reads all its arguments by.
Tensor dense(const OptionalTensor& tensor, at::ScalarType type) {
  return is_given(tensor) ? tensor->to(type).contiguous()  // copy: rows
                          : Tensor();
}

at::ScalarType common_type(const Tensor& input_gates,
                           const Tensor& hidden_gates,
                           const Tensor& state) {
  return at::promoteTypes(
      at::promoteTypes(input_gates.scalar_type(), hidden_gates.scalar_type()),
      state.scalar_type());
}

void check_gates(const char* name,
                 const Tensor& input_gates,
                 const Tensor& hidden_gates,
                 const Tensor& state,
                 int64_t gates) {
  check_floating(name, input_gates);
  TORCH_CHECK(input_gates.dim() == 2 && state.dim() == 2 &&
                  input_gates.sizes() == hidden_gates.sizes() &&
                  input_gates.size(0) == state.size(0) &&
                  input_gates.size(1) == gates * state.size(1),
              name,
              ": expected gates of shape (batch, ",
              gates,
              " * units) for a state of shape ",
              state.sizes(),
              ", got ",
              input_gates.sizes(),
              " and ",
              hidden_gates.sizes());
}

// As a row, or undefined where there is none.
Tensor bias_of(const OptionalTensor& bias,
               const Tensor& gates,
               at::ScalarType type) {
  if (!is_given(bias)) {
    return {};
  }
  check_dtype_of_mat2("self", *bias, gates);
  return dense(bias->expand({gates.size(1)}), type);
}

template <class... Arguments>
void launch_cell(const char* kernel,
                 const Tensor& state,
                 bool has_bias,
                 const Arguments&... arguments) {
  if (state.numel() == 0) {
    return;
  }
  launch(state,
         sources::cells,
         kernel,
         {{"DTYPE", dtype_of(state)},
          {"HAS_BIAS", has_bias},
          {"WG_SIZE", kWorkGroup}},
         range(state.numel(), kWorkGroup),
         arguments...);
}

uint64_t count_of(const Tensor& state) {
  return static_cast<uint64_t>(state.numel());
}

uint64_t units_of(const Tensor& state) {
  return static_cast<uint64_t>(state.size(1));
}

// After `arguments` the state, and the biases if there are any: both, for
// backward asks for the first one only.
template <class... Arguments>
void launch_cell_forward(const char* kernel_name,
                         const Tensor& state,
                         const Tensor& input_bias,
                         const Tensor& hidden_bias,
                         const Arguments&... arguments) {
  TORCH_CHECK(input_bias.defined() == hidden_bias.defined(),
              kernel_name,
              ": expected both biases or none");
  const auto launch_with = [&](bool has_bias, const auto&... biases) {
    launch_cell(kernel_name,
                state,
                has_bias,
                arguments...,
                arg_in(state),
                count_of(state),
                units_of(state),
                biases...);
  };
  if (input_bias.defined()) {
    launch_with(true, arg_in(input_bias), arg_in(hidden_bias));
  } else {
    launch_with(false);
  }
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_lstm_cell", input_gates, hidden_gates, cx, 4);
  const at::ScalarType type = common_type(input_gates, hidden_gates, cx);
  const Tensor state = dense(cx, type);
  const Tensor inputs = dense(input_gates, type);
  const Tensor hiddens = dense(hidden_gates, type);
  const Tensor hy = at::empty_like(state);
  const Tensor cy = at::empty_like(state);
  const Tensor workspace = at::empty_like(inputs);
  launch_cell_forward("lstm_cell",
                      state,
                      bias_of(input_bias, input_gates, type),
                      bias_of(hidden_bias, hidden_gates, type),
                      arg(hy),
                      arg(cy),
                      arg(workspace),
                      arg_in(inputs),
                      arg_in(hiddens));
  return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy,
    const OptionalTensor& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias) {
  if (!is_given(grad_hy) && !is_given(grad_cy)) {
    return {};
  }
  const at::ScalarType type = workspace.scalar_type();
  const Tensor gates = dense(workspace, type);
  const Tensor state = dense(cy, type);
  const Tensor grad_gates = at::empty_like(gates);
  const Tensor grad_cx = at::empty_like(state);
  launch_cell("lstm_cell_backward",
              state,
              false,
              arg(grad_gates),
              arg(grad_cx),
              arg_in(dense(grad_hy, type)),
              arg_in(dense(grad_cy, type)),
              arg_in(dense(cx, type)),
              arg_in(state),
              arg_in(gates),
              count_of(state),
              units_of(state),
              static_cast<int32_t>(is_given(grad_hy)),
              static_cast<int32_t>(is_given(grad_cy)));
  const aten::NoAutocast guard;
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates,
                                    const Tensor& hidden_gates,
                                    const Tensor& hx,
                                    const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  check_gates("_thnn_fused_gru_cell", input_gates, hidden_gates, hx, 3);
  const at::ScalarType type = common_type(input_gates, hidden_gates, hx);
  const Tensor state = dense(hx, type);
  const Tensor inputs = dense(input_gates, type);
  const Tensor hiddens = dense(hidden_gates, type);
  const Tensor hy = at::empty_like(state);
  const Tensor workspace =
      at::empty({state.size(0), 5 * state.size(1)}, state.options());
  launch_cell_forward("gru_cell",
                      state,
                      bias_of(input_bias, input_gates, type),
                      bias_of(hidden_bias, hidden_gates, type),
                      arg(hy),
                      arg(workspace),
                      arg_in(inputs),
                      arg_in(hiddens));
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const at::ScalarType type = workspace.scalar_type();
  const Tensor grad = dense(grad_hy, type);
  const std::vector<int64_t> gates{grad.size(0), 3 * grad.size(1)};
  const Tensor grad_input_gates = at::empty(gates, grad.options());
  const Tensor grad_hidden_gates = at::empty(gates, grad.options());
  const Tensor grad_hx = at::empty_like(grad);
  launch_cell("gru_cell_backward",
              grad,
              false,
              arg(grad_input_gates),
              arg(grad_hidden_gates),
              arg(grad_hx),
              arg_in(grad),
              arg_in(dense(workspace, type)),
              count_of(grad),
              units_of(grad));
  const aten::NoAutocast guard;
  return {grad_input_gates,
          grad_hidden_gates,
          grad_hx,
          has_bias ? grad_input_gates.sum(0) : Tensor(),
          has_bias ? grad_hidden_gates.sum(0) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace torch_opencl::ops
