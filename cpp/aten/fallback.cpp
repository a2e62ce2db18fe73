#include "fallback.h"

#include "fallback_policy.h"

#include "../runtime/config.h"
#include "../runtime/device.h"
#include "cpu_on_purpose.h"

#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch_opencl::aten {
namespace {

struct Statistics {
  std::mutex mutex;
  std::unordered_map<std::string, int64_t> calls;
};

Statistics& statistics() {
  static auto* instance = new Statistics();
  return *instance;
}

// True at the first call of `name`.
bool count(const std::string& name) {
  Statistics& stats = statistics();
  const std::lock_guard lock(stats.mutex);
  return ++stats.calls[name] == 1;
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> fallback_stats() {
  Statistics& stats = statistics();
  const std::lock_guard lock(stats.mutex);
  std::vector<std::pair<std::string, int64_t>> result(stats.calls.begin(),
                                                      stats.calls.end());
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return result;
}

void reset_fallback_stats() {
  Statistics& stats = statistics();
  const std::lock_guard lock(stats.mutex);
  stats.calls.clear();
}

bool is_supported(const at::Tensor& tensor, Numbers numbers) {
  if (!tensor.defined()) {
    return true;
  }
  const at::ScalarType type = tensor.scalar_type();
  if (tensor.is_complex() && numbers != Numbers::kAny &&
      (numbers == Numbers::kReal || type == at::kComplexHalf)) {
    return false;  // a number on the CPU makes the result complex
  }
  if (!tensor.is_privateuseone()) {
    return true;
  }
  return !lacks_float64(tensor);
}

bool lacks_float64(const at::Tensor& tensor) {
  return c10::toRealValueType(tensor.scalar_type()) == at::kDouble &&
         !runtime::device(tensor.device().index()).info().has_fp64;
}

// Integers may be lengths or pivots.
void check_devices(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().is_cpu() &&
        !is_number_on_cpu(value.toTensor()) &&
        value.toTensor().is_floating_point()) {
      check_is_opencl(value.toTensor().device());
    }
  }
}

namespace {

bool is_without_float64(c10::ArrayRef<c10::IValue> arguments) {
  const auto lacks = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_privateuseone() &&
           lacks_float64(tensor);
  };
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && lacks(value.toTensor())) {
      return true;
    }
    if (value.isTensorList()) {
      const std::vector<at::Tensor> list = value.toTensorVector();
      if (std::any_of(list.begin(), list.end(), lacks)) {
        return true;
      }
    }
  }
  return false;
}

// torch's CPU writes past the end of an `out` whose batches have gaps (tril,
// linalg.lu): an op that computes there is given contiguous ones.
class ContiguousOuts {
 public:
  ContiguousOuts(const c10::FunctionSchema& op, torch::jit::Stack* stack) {
    const size_t count = op.arguments().size();
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& value = torch::jit::peek(*stack, i, count);
      if (!op.arguments()[i].is_out() || !value.isTensor()) {
        continue;
      }
      const at::Tensor out = value.toTensor();
      if (out.defined() && out.is_privateuseone() && !out.is_contiguous()) {
        outs_.emplace_back(out, out.clone(at::MemoryFormat::Contiguous));
        value = outs_.back().second;
      }
    }
  }

  // After the op, when its results are on the stack.
  void copy_back(size_t results, torch::jit::Stack* stack) const {
    for (const auto& [out, contiguous] : outs_) {
      if (out.sizes() != contiguous.sizes()) {
        out.resize_(contiguous.sizes());
        out.as_strided_(contiguous.sizes(), contiguous.strides());
      }
      out.copy_(contiguous);
      for (size_t i = 0; i < results; ++i) {
        c10::IValue& value = torch::jit::peek(*stack, i, results);
        if (value.isTensor() && value.toTensor().is_same(contiguous)) {
          value = out;
        }
      }
    }
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> outs_;
};

}  // namespace

void note_fallback(const c10::OperatorHandle& op,
                   c10::ArrayRef<c10::IValue> arguments) {
  const std::string name = c10::toString(op.schema().operator_name());
  const std::string& policy = runtime::config().fallback;
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy != "error",
      "The operator '",
      name,
      "' is not implemented for the opencl device with these arguments",
      is_without_float64(arguments) ? " (the device has no float64)" : "",
      ", and TORCH_OPENCL_FALLBACK=error forbids running it on the CPU.");
  if (count(name) && policy == "warn") {
    TORCH_WARN("The operator '",
               name,
               "' has no opencl kernel for these arguments and runs on the "
               "CPU; this may be slow. torch.opencl.fallback_stats() counts "
               "such calls, TORCH_OPENCL_FALLBACK=error forbids them.");
  }
}

void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments =
      torch::jit::last(*stack, op.schema().arguments().size());
  check_devices(arguments);
  if (is_cpu_on_purpose(op.schema().name())) {
    keep_order_of_matrix(op.schema(), stack);
  } else {
    note_fallback(op, arguments);
  }
  const ContiguousOuts outs(op.schema(), stack);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  outs.copy_back(op.schema().returns().size(), stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&cpu_fallback>());
}

}  // namespace torch_opencl::aten
