#include "counter.h"

#include "../common/kernel_text.h"
#include "../epilogue/epilogue.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

class PendingAddition : public runtime::PendingLaunch {
 public:
  PendingAddition(CounterAddition addition, const runtime::KernelLaunch& launch)
      : PendingLaunch("aten::add_"),
        addition_(std::move(addition)),
        launch_(launch) {}

  void enqueue(runtime::Queue& queue) const override {
    if (addition_.counter.defined()) {
      launch_.enqueue(queue);
    }
  }

  CounterAddition take(std::initializer_list<Tensor> others) {
    const auto shares = [this](const Tensor& other) {
      return other.defined() &&
             other.storage().is_alias_of(addition_.counter.storage());
    };
    if (!addition_.counter.defined() ||
        std::any_of(others.begin(), others.end(), shares)) {
      return {};
    }
    return std::exchange(addition_, {});
  }

 private:
  CounterAddition addition_;  // taken: nothing is launched
  runtime::KernelLaunch launch_;
};

}  // namespace

CounterAddition counter_addition(const at::TensorIteratorBase& iter,
                                 const PointwiseOp& op,
                                 c10::ArrayRef<at::Scalar> scalars) {
  if (iter.numel() != 1 || iter.noutputs() != 1 || iter.ntensors() != 3 ||
      scalars.size() != 1 || !iter.is_cpu_scalar(2) ||
      !iter.tensor_base(0).is_same(iter.tensor_base(1)) ||
      iter.dtype(0) != at::kLong || iter.dtype(2) != at::kLong) {
    return {};
  }
  const at::TensorBase& counter = iter.tensor_base(0);
  const runtime::Queue& queue = queue_of(counter);
  if (queue.device().is_cpu() || !queue.can_pend()) {
    return {};
  }
  // As the kernel multiplies: integers wrap around.
  const auto amount = static_cast<int64_t>(
      static_cast<uint64_t>(scalars[0].toLong()) *
      static_cast<uint64_t>(cpu_scalar_value(iter, 2).toLong()));
  return {alias_of(counter), amount};
}

void pend_counter(const CounterAddition& addition,
                  const runtime::KernelLaunch& launch) {
  queue_of(addition.counter)
      .pend(std::make_unique<PendingAddition>(addition, launch));
}

CounterAddition take_counter_addition(runtime::Queue& queue,
                                      std::initializer_list<Tensor> others) {
  CounterAddition addition;
  queue.join_pending([&](runtime::PendingLaunch& pending) {
    auto* launch = dynamic_cast<PendingAddition*>(&pending);
    if (launch != nullptr) {
      addition = launch->take(others);
    }
    return launch != nullptr;
  });
  return addition;
}

}  // namespace torch_opencl::ops
