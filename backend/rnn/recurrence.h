// The recurrence of one layer in one direction, of float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

enum class Recurrence : int64_t { kLstm, kGru, kTanh, kRelu };

constexpr int64_t gates_of(Recurrence kind) {
  return kind == Recurrence::kLstm ? 4 : kind == Recurrence::kGru ? 3 : 1;
}

struct RecurrenceOptions {
  Recurrence kind;
  int64_t time;  // the dimension of sequences that is time: 0, or 1
  bool is_reverse;
};

// `gates` are products with the input, of three dimensions, contiguous; `cx`
// and `cells` are an LSTM's; `bias`, that of the state, may be undefined.
struct RecurrenceInputs {
  at::Tensor gates;
  at::Tensor hx;
  at::Tensor cx;
  at::Tensor weight;
  at::Tensor bias;
};

struct RecurrenceResults {
  at::Tensor out;
  at::Tensor hy;
  at::Tensor cy;
  // For gradients, where they were asked for.
  at::Tensor cells;
  at::Tensor kept;
};

RecurrenceResults recurrence(const RecurrenceInputs& inputs,
                             const RecurrenceOptions& options,
                             bool keeps);

// `hidden` are those of the products with the state, `carry` that of an LSTM's
// first cell, or of a GRU's first state as far as it does not pass the product.
struct RecurrenceGradients {
  at::Tensor gates;
  at::Tensor hidden;
  at::Tensor carry;
};

// Gradients may be undefined.
RecurrenceGradients recurrence_backward(const RecurrenceInputs& inputs,
                                        const RecurrenceOptions& options,
                                        const RecurrenceResults& results,
                                        const at::Tensor& grad_out,
                                        const at::Tensor& grad_hy,
                                        const at::Tensor& grad_cy);

// Gradients of the results, which may be undefined.
struct RecurrenceResultGradients {
  const at::Tensor& out;
  const at::Tensor& hy;
  const at::Tensor& cy;
};

// Their launches on GPUs, into results that are allocated.
void walk_in_groups(const RecurrenceInputs& inputs,
                    const RecurrenceOptions& options,
                    bool keeps,
                    const RecurrenceResults& results);
void walk_back_in_groups(const RecurrenceInputs& inputs,
                         const RecurrenceOptions& options,
                         const RecurrenceResults& results,
                         const RecurrenceResultGradients& given,
                         const RecurrenceGradients& grads);

}  // namespace torch_opencl::ops
