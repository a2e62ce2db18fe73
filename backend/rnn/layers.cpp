// lstm, gru, rnn_tanh and rnn_relu of whole sequences, where the steps of a
// layer are few launches or one. What is not of that kind goes ATen's way, step
// by step: other dtypes, projections, packed sequences, forward
// gradients, functorch, autocast and whatever traces.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/no_autocast.h"
#include "recurrence.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What gradients of gradients are made of: out, hy and cy by ops that have
// them.
variable_list differentiable(const RecurrenceInputs& inputs,
                             const RecurrenceOptions& options) {
  const int64_t steps = inputs.gates.size(options.time);
  const Tensor weight = inputs.weight.t();
  Tensor h = inputs.hx;
  Tensor c = inputs.cx;
  std::vector<Tensor> out(steps);
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t place = options.is_reverse ? steps - 1 - step : step;
    const Tensor gates = inputs.gates.select(options.time, place);
    Tensor hidden = at::mm(h, weight);
    if (inputs.bias.defined()) {
      hidden = hidden + inputs.bias;
    }
    switch (options.kind) {
      case Recurrence::kLstm:
        std::tie(h, c, std::ignore) =
            at::_thnn_fused_lstm_cell(gates, hidden, c);
        break;
      case Recurrence::kGru:
        h = std::get<0>(at::_thnn_fused_gru_cell(gates, hidden, h));
        break;
      case Recurrence::kTanh:
        h = at::tanh(gates + hidden);
        break;
      case Recurrence::kRelu:
        h = at::relu(gates + hidden);
    }
    out[place] = h;
  }
  return {at::stack(out, options.time), h, c};
}

variable_list gradients_of_graph(const RecurrenceInputs& inputs,
                                 const RecurrenceOptions& options,
                                 const variable_list& grads) {
  // Aliases: one tensor may be given twice.
  const auto own = [](const Tensor& tensor) {
    return tensor.defined() ? at::alias(tensor) : tensor;
  };
  const RecurrenceInputs copies{own(inputs.gates),
                                own(inputs.hx),
                                own(inputs.cx),
                                own(inputs.weight),
                                own(inputs.bias)};
  const variable_list results = differentiable(copies, options);
  variable_list outputs;
  variable_list seeds;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) {
      outputs.push_back(results[i]);
      seeds.push_back(grads[i]);
    }
  }
  const variable_list all{
      copies.gates, copies.hx, copies.cx, copies.weight, copies.bias};
  variable_list wanted;
  for (const Tensor& tensor : all) {
    if (tensor.defined() && tensor.requires_grad()) {
      wanted.push_back(tensor);
    }
  }
  const variable_list found = torch::autograd::grad(outputs,
                                                    wanted,
                                                    seeds,
                                                    /*retain_graph=*/true,
                                                    /*create_graph=*/true,
                                                    /*allow_unused=*/true);
  variable_list answer(all.size());
  for (size_t i = 0, next = 0; i < all.size(); ++i) {
    if (all[i].defined() && all[i].requires_grad()) {
      answer[i] = found[next++];
    }
  }
  return answer;
}

struct RecurrenceFunction : torch::autograd::Function<RecurrenceFunction> {
  static variable_list forward(AutogradContext* context,
                               const Tensor& gates,
                               const Tensor& hx,
                               const std::optional<Tensor>& given_cx,
                               const Tensor& weight,
                               const std::optional<Tensor>& given_bias,
                               int64_t kind,
                               int64_t time,
                               bool is_reverse) {
    const RecurrenceOptions options{
        static_cast<Recurrence>(kind), time, is_reverse};
    const Tensor cx = given_cx.value_or(Tensor());
    const Tensor bias = given_bias.value_or(Tensor());
    const RecurrenceResults r =
        recurrence({gates, hx, cx, weight, bias}, options, true);
    context->saved_data["kind"] = kind;
    context->saved_data["time"] = time;
    context->saved_data["is_reverse"] = is_reverse;
    context->set_materialize_grads(false);
    context->save_for_backward(
        {gates, hx, cx, weight, bias, r.out, r.cells, r.kept});
    return r.cy.defined() ? variable_list{r.out, r.hy, r.cy}
                          : variable_list{r.out, r.hy};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const aten::NoAutocast guard;
    const variable_list saved = context->get_saved_variables();
    const RecurrenceInputs inputs{
        saved[0], saved[1], saved[2], saved[3], saved[4]};
    const RecurrenceOptions options{
        static_cast<Recurrence>(context->saved_data["kind"].toInt()),
        context->saved_data["time"].toInt(),
        context->saved_data["is_reverse"].toBool()};
    variable_list answer(8);
    if (at::GradMode::is_enabled()) {
      const variable_list found = gradients_of_graph(inputs, options, grads);
      std::copy(found.begin(), found.end(), answer.begin());
      return answer;
    }
    for (Tensor& grad : grads) {
      grad = grad.defined() ? grad.contiguous() : grad;  // copy: rows
    }
    const Tensor& out = saved[5];
    const RecurrenceGradients g =
        recurrence_backward(inputs,
                            options,
                            {out, {}, {}, saved[6], saved[7]},
                            grads[0],
                            grads[1],
                            grads.size() > 2 ? grads[2] : Tensor());
    const int64_t time = options.time;
    const int64_t steps = out.size(time);
    const bool is_lstm = options.kind == Recurrence::kLstm;
    answer[0] = g.gates;
    if (inputs.hx.requires_grad()) {
      const Tensor first =
          g.hidden.select(time, options.is_reverse ? steps - 1 : 0);
      const Tensor product = at::mm(first, inputs.weight);
      answer[1] =
          options.kind == Recurrence::kGru ? product.add_(g.carry) : product;
    }
    if (is_lstm && inputs.cx.requires_grad()) {
      answer[2] = g.carry;
    }
    const Tensor hidden = g.hidden.flatten(0, 1);
    if (inputs.weight.requires_grad()) {
      const Tensor first = inputs.hx.unsqueeze(time);
      const Tensor rest =
          out.narrow(time, options.is_reverse ? 1 : 0, steps - 1);
      const Tensor states = options.is_reverse ? at::cat({rest, first}, time)
                                               : at::cat({first, rest}, time);
      answer[3] = at::mm(hidden.t(), states.flatten(0, 1));
    }
    if (inputs.bias.defined() && inputs.bias.requires_grad()) {
      answer[4] = hidden.sum(0);
    }
    return answer;
  }
};

bool is_traced_or_cast(TensorList tensors) {
  if (at::areAnyTensorSubclassLike(tensors) ||
      at::autocast::is_autocast_enabled(at::kPrivateUse1) ||
      at::functorch::functorchTLSAccessor() != nullptr) {
    return true;
  }
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) {
    return t._fw_grad(0).defined();
  });
}

struct Layers {
  Recurrence kind;
  bool has_biases;
  int64_t count;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  size_t parameters() const { return has_biases ? 4 : 2; }
};

// False also for what ATen refuses, by its texts.
bool supports(const Layers& layers,
              const Tensor& input,
              TensorList states,
              TensorList parameters) {
  if (states.size() != (layers.kind == Recurrence::kLstm ? 2 : 1)) {
    return false;
  }
  std::vector<Tensor> all{input};
  all.insert(all.end(), states.begin(), states.end());
  all.insert(all.end(), parameters.begin(), parameters.end());
  if (is_traced_or_cast(all) || input.dim() != 3 || input.numel() == 0 ||
      !std::all_of(all.begin(), all.end(), [&](const Tensor& tensor) {
        return tensor.device() == input.device() &&
               tensor.scalar_type() == at::kFloat &&
               tensor.layout() == at::kStrided && tensor.numel() > 0;
      })) {
    return false;
  }
  const int64_t total = layers.count * layers.directions();
  const int64_t batch = input.size(layers.batch_first ? 0 : 1);
  const int64_t units = states[0].size(-1);
  const int64_t gates = gates_of(layers.kind) * units;
  const std::array<int64_t, 3> expected{total, batch, units};
  if (!std::all_of(states.begin(),
                   states.end(),
                   [&](const Tensor& state) {
                     return state.sizes() == at::IntArrayRef(expected);
                   }) ||
      parameters.size() != total * layers.parameters()) {
    return false;
  }
  for (int64_t i = 0; i < total; ++i) {
    const Tensor* p = &parameters[i * layers.parameters()];
    const int64_t inputs =
        i < layers.directions() ? input.size(2) : units * layers.directions();
    const std::array<int64_t, 2> of_input{gates, inputs};
    const std::array<int64_t, 2> of_state{gates, units};
    const std::array<int64_t, 1> of_bias{gates};
    if (p[0].sizes() != at::IntArrayRef(of_input) ||
        p[1].sizes() != at::IntArrayRef(of_state) ||
        (layers.has_biases && (p[2].sizes() != at::IntArrayRef(of_bias) ||
                               p[3].sizes() != at::IntArrayRef(of_bias)))) {
      return false;
    }
  }
  return aten::fits_int32(gates * units);
}

// out, hy and, of an LSTM, cy.
variable_list run_direction(const Layers& layers,
                            const Tensor& input,
                            const Tensor& hx,
                            const Tensor& cx,
                            const Tensor* parameters,
                            bool is_reverse) {
  Tensor input_bias = layers.has_biases ? parameters[2] : Tensor();
  Tensor bias;
  if (layers.has_biases) {
    bias = parameters[3].contiguous();  // copy: kernels read it as a row
  }
  const bool trains = at::GradMode::is_enabled() &&
                      (input.requires_grad() || hx.requires_grad() ||
                       (cx.defined() && cx.requires_grad()) ||
                       std::any_of(parameters,
                                   parameters + layers.parameters(),
                                   [](const Tensor& tensor) {
                                     return tensor.requires_grad();
                                   }));
  if (trains && bias.defined() && layers.kind != Recurrence::kGru) {
    // One sum of gradients serves both.
    input_bias = input_bias + bias;
    bias = Tensor();
  }
  const Tensor products = at::linear(input, parameters[0], input_bias);
  const Tensor gates = products.contiguous();  // copy: none of a new tensor
  const int64_t time = layers.batch_first ? 1 : 0;
  if (trains) {
    return RecurrenceFunction::apply(gates,
                                     hx,
                                     std::optional<Tensor>(cx),
                                     parameters[1],
                                     std::optional<Tensor>(bias),
                                     static_cast<int64_t>(layers.kind),
                                     time,
                                     is_reverse);
  }
  const RecurrenceResults r = recurrence({gates, hx, cx, parameters[1], bias},
                                         {layers.kind, time, is_reverse},
                                         false);
  return {r.out, r.hy, r.cy};
}

Tensor stacked(const std::vector<Tensor>& states) {
  return states.size() == 1 ? states[0].unsqueeze(0) : at::stack(states);
}

std::tuple<Tensor, Tensor, Tensor> run(const Layers& layers,
                                       const Tensor& input,
                                       TensorList states,
                                       TensorList parameters) {
  const bool is_lstm = layers.kind == Recurrence::kLstm;
  const int64_t directions = layers.directions();
  Tensor x = input.contiguous();            // copy: rows
  const Tensor h = states[0].contiguous();  // copy: rows of every state
  Tensor c;
  if (is_lstm) {
    c = states[1].contiguous();  // copy: rows of every state
  }
  std::vector<Tensor> hys;
  std::vector<Tensor> cys;
  for (int64_t layer = 0; layer < layers.count; ++layer) {
    std::vector<Tensor> outs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t i = layer * directions + direction;
      const variable_list results =
          run_direction(layers,
                        x,
                        h.select(0, i),
                        is_lstm ? c.select(0, i) : Tensor(),
                        &parameters[i * layers.parameters()],
                        direction == 1);
      outs.push_back(results[0]);
      hys.push_back(results[1]);
      if (is_lstm) {
        cys.push_back(results[2]);
      }
    }
    x = directions == 1 ? outs[0] : at::cat(outs, 2);
    if (layer + 1 == layers.count && directions == 1 && x.requires_grad()) {
      // Whoever writes to the result must not reach what backward reads.
      x = x.clone();
    }
    if (layers.dropout != 0 && layers.train && layer + 1 < layers.count) {
      x = at::dropout(x, layers.dropout, true);
    }
  }
  return {x, stacked(hys), is_lstm ? stacked(cys) : Tensor()};
}

template <class Results, class States>
using Composition = Results(
    const Tensor&, States, TensorList, bool, int64_t, double, bool, bool, bool);

// ATen's composition takes what has no kernel.
template <Recurrence kind,
          class Results,
          class States,
          Composition<Results, States>* composition>
Results recurrent(const Tensor& input,
                  States hx,
                  TensorList params,
                  bool has_biases,
                  int64_t num_layers,
                  double dropout,
                  bool train,
                  bool bidirectional,
                  bool batch_first) {
  const Layers layers{
      kind, has_biases, num_layers, dropout, train, bidirectional, batch_first};
  if (!supports(layers, input, hx, params)) {
    return composition(input,
                       hx,
                       params,
                       has_biases,
                       num_layers,
                       dropout,
                       train,
                       bidirectional,
                       batch_first);
  }
  auto [out, hy, cy] = run(layers, input, hx, params);
  if constexpr (kind == Recurrence::kLstm) {
    return {out, hy, cy};
  } else {
    return {out, hy};
  }
}

template <Recurrence kind, auto composition>
constexpr auto one_state =
    &recurrent<kind, std::tuple<Tensor, Tensor>, const Tensor&, composition>;

void register_layers(torch::Library& m) {
  m.impl("lstm.input",
         &recurrent<Recurrence::kLstm,
                    std::tuple<Tensor, Tensor, Tensor>,
                    TensorList,
                    &at::native::lstm>);
  using OneState = Composition<std::tuple<Tensor, Tensor>, const Tensor&>;
  constexpr OneState* gru = &at::native::gru;
  constexpr OneState* rnn_tanh = &at::native::rnn_tanh;
  constexpr OneState* rnn_relu = &at::native::rnn_relu;
  m.impl("gru.input", one_state<Recurrence::kGru, gru>);
  m.impl("rnn_tanh.input", one_state<Recurrence::kTanh, rnn_tanh>);
  m.impl("rnn_relu.input", one_state<Recurrence::kRelu, rnn_relu>);
}

}  // namespace

// These ops are compositions: of ops with gradients or, without, below
// autograd.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  register_layers(m);
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_layers(m);
}

}  // namespace torch_opencl::ops
