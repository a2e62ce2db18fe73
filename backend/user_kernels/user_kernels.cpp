// Kernels of users on the engines of aten's own: torch_opencl.ElementwiseKernel
// and ReductionKernel (python/torch_opencl/kernels) write the expressions. The
// engines know a kernel by its row's address, so rows live as long as the
// process and equal definitions share one.
#include "../../cpp/aten/launch.h"
#include "../../cpp/aten/same_device.h"
#include "../reduction/reduction.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <deque>
#include <map>
#include <mutex>

namespace torch_opencl::ops {
namespace {

using at::Tensor;
using std::string;

template <class Row>
class Rows {
 public:
  // The number of the row made of these texts.
  int64_t define(const std::vector<string>& texts) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] =
        numbers_.try_emplace(texts, static_cast<int64_t>(rows_.size()));
    if (is_new) {
      rows_.emplace_back(texts);
    }
    return found->second;
  }
  const Row& at(int64_t number) {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(number >= 0 && number < static_cast<int64_t>(rows_.size()),
                "no kernel of number ",
                number);
    return rows_[number];
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<string>, int64_t> numbers_;
  std::deque<Row> rows_;
};

struct Elementwise {
  explicit Elementwise(const std::vector<string>& values)
      : texts(values),
        op{.name = texts[0].c_str(),
           .expression = texts[1].c_str(),
           .bool_expression = "",
           .integral_expression = "",
           .inputs = texts[2].c_str(),
           .scalars = "",
           .uses_math = false,
           .outputs = texts[3].c_str(),
           .preamble = texts[4].c_str()} {}
  Elementwise(const Elementwise&) = delete;
  std::vector<string> texts;
  PointwiseOp op;
};

struct Reduction {
  explicit Reduction(const std::vector<string>& values)
      : texts(values),
        op{.name = texts[0].c_str(),
           .state = "user_state_t",
           .identity = "user_identity()",
           .step = texts[1].c_str(),
           .combine = "user_combine(a, b)",
           .results = {},
           .scalars = "",
           .inputs = texts[2].c_str(),
           .preamble = texts[3].c_str(),
           .keeps_dtypes = true,
           .state_bytes = std::stoll(texts[4])} {
    for (size_t i = 5; i < texts.size(); ++i) {
      op.results[i - 5] = texts[i].c_str();
      of_nothing_texts.push_back("user_out = " + of_nothing(texts[i]));
    }
    for (const string& text : of_nothing_texts) {
      of_nothing_ops.push_back({.name = op.name,
                                .expression = text.c_str(),
                                .bool_expression = "",
                                .integral_expression = "",
                                .inputs = "",
                                .scalars = "",
                                .uses_math = false,
                                .outputs = "user_out",
                                .preamble = op.preamble});
    }
  }
  Reduction(const Reduction&) = delete;
  // "user_result0(state, count)" of no elements.
  static string of_nothing(const string& result) {
    return result.substr(0, result.find('(')) + "(user_identity(), 0)";
  }
  std::vector<string> texts;
  ReductionOp op;
  // What outputs are where there is nothing to reduce.
  std::vector<string> of_nothing_texts;
  std::vector<PointwiseOp> of_nothing_ops;
};

Rows<Elementwise>& elementwise_rows() {
  static auto* rows = new Rows<Elementwise>();
  return *rows;
}

Rows<Reduction>& reduction_rows() {
  static auto* rows = new Rows<Reduction>();
  return *rows;
}

int64_t define_elementwise(string name,
                           string operation,
                           string inputs,
                           string outputs,
                           string preamble) {
  return elementwise_rows().define(
      {name, operation, inputs, outputs, preamble});
}

int64_t define_reduction(string name,
                         string step,
                         string inputs,
                         string preamble,
                         int64_t state_bytes,
                         std::vector<string> results) {
  TORCH_CHECK(results.size() <= kMaxReductionOutputs,
              name,
              ": opencl supports up to ",
              kMaxReductionOutputs,
              " results of a reduction, got ",
              results.size());
  std::vector<string> texts{
      name, step, inputs, preamble, std::to_string(state_bytes)};
  texts.insert(texts.end(), results.begin(), results.end());
  return reduction_rows().define(texts);
}

// An output of the inputs' broadcast shape and common layout.
Tensor elementwise_output(at::TensorList inputs,
                          at::ScalarType dtype,
                          c10::Device device) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(dtype, device)
      .add_owned_output(Tensor());
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  return config.build().output();
}

// Iterators take one number on the CPU, kernels any.
void check_devices(at::TensorList outputs, at::TensorList inputs) {
  const c10::Device device = outputs[0].device();
  const auto check = [device](const Tensor& tensor, bool may_be_number) {
    TORCH_CHECK(tensor.device() == device ||
                    (may_be_number && aten::is_number_on_cpu(tensor)),
                "Expected all tensors to be on the same device, but found at "
                "least two devices, ",
                device,
                " and ",
                tensor.device(),
                "!");
  };
  for (const Tensor& output : outputs) {
    check(output, false);
  }
  for (const Tensor& input : inputs) {
    check(input, true);
  }
}

// Autograd counts writes of single tensors by itself, not those of lists.
void count_writes(at::TensorList outputs) {
  for (const Tensor& output : outputs) {
    output.unsafeGetTensorImpl()->bump_version();
  }
}

void elementwise(int64_t kernel,
                 at::TensorList outputs,
                 at::TensorList inputs) {
  check_devices(outputs, inputs);
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .check_all_same_device(false)
      .resize_outputs(false)
      .allow_cpu_scalars(true);
  for (const Tensor& output : outputs) {
    config.add_output(output);
  }
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  at::TensorIterator iter = config.build();
  pointwise(iter, elementwise_rows().at(kernel).op, {});
  count_writes(outputs);
}

// The same into a new output of the inputs' broadcast shape and layout.
Tensor elementwise_new(int64_t kernel,
                       at::TensorList inputs,
                       at::ScalarType dtype,
                       c10::Device device) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .check_all_same_device(false)
      .allow_cpu_scalars(true)
      .declare_static_dtype_and_device(dtype, device)
      .add_owned_output(Tensor());
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  at::TensorIterator iter = config.build();
  pointwise(iter, elementwise_rows().at(kernel).op, {});
  return iter.output();
}

// `output` with stride 0 along `dims` of an input's shape.
Tensor along_inputs(const Tensor& output,
                    at::IntArrayRef shape,
                    at::IntArrayRef dims) {
  at::assert_no_internal_overlap(output);
  at::DimVector strides;
  int64_t kept = 0;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const bool is_reduced =
        std::find(dims.begin(), dims.end(), d) != dims.end();
    strides.push_back(is_reduced ? 0 : output.stride(kept++));
  }
  return output.as_strided(shape, strides);
}

// Outputs lack the reduced dimensions `dims`; inputs have one shape.
void reduction(int64_t kernel,
               at::TensorList outputs,
               at::TensorList inputs,
               at::IntArrayRef dims) {
  const Reduction& row = reduction_rows().at(kernel);
  const ReductionOp& op = row.op;
  TORCH_CHECK(inputs.size() <= kMaxReductionInputs,
              op.name,
              ": opencl supports up to ",
              kMaxReductionInputs,
              " inputs of a reduction, got ",
              inputs.size());
  if (inputs[0].numel() == 0) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor output = outputs[i];
      at::TensorIterator iter = at::TensorIterator::nullary_op(output);
      pointwise(iter, row.of_nothing_ops[i], {});
    }
    count_writes(outputs);
    return;
  }
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .resize_outputs(false)
      .is_reduction(true);
  for (const Tensor& output : outputs) {
    config.add_owned_output(along_inputs(output, inputs[0].sizes(), dims));
  }
  for (const Tensor& input : inputs) {
    config.add_const_input(input);
  }
  at::TensorIterator iter = config.build();
  reduce(iter, op, {});
  count_writes(outputs);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.def(
      "_define_elementwise(str name, str operation, str inputs, str outputs, "
      "str preamble) -> int",
      TORCH_FN(define_elementwise));
  m.def(
      "_define_reduction(str name, str step, str inputs, str preamble, "
      "int state_bytes, str[] results) -> int",
      TORCH_FN(define_reduction));
  m.def(
      "_elementwise_output(Tensor[] inputs, ScalarType dtype, Device device) "
      "-> Tensor",
      TORCH_FN(elementwise_output));
  m.def("_elementwise(int kernel, Tensor(a!)[] outputs, Tensor[] inputs) -> ()",
        TORCH_FN(elementwise));
  m.def(
      "_elementwise_new(int kernel, Tensor[] inputs, ScalarType dtype, "
      "Device device) -> Tensor",
      TORCH_FN(elementwise_new));
  m.def(
      "_reduction(int kernel, Tensor(a!)[] outputs, Tensor[] inputs, "
      "int[] dims) -> ()",
      TORCH_FN(reduction));
}

}  // namespace torch_opencl::ops
