#include "counter.h"

#include "../../cpp/device/stream.h"
#include "../common/kernel_text.h"
#include "../epilogue/epilogue.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Makes a queue the current one of its device.
class CurrentQueue {
 public:
  explicit CurrentQueue(const runtime::Queue& queue)
      : previous_(device::exchange_stream(
            c10::Stream(c10::Stream::UNSAFE,
                        c10::Device(c10::kPrivateUse1, queue.device().index()),
                        queue.stream_id()))) {}
  ~CurrentQueue() { device::exchange_stream(previous_); }
  CurrentQueue(const CurrentQueue&) = delete;
  CurrentQueue& operator=(const CurrentQueue&) = delete;

 private:
  c10::Stream previous_;
};

class PendingAddition : public runtime::PendingLaunch {
 public:
  PendingAddition(const PointwiseOp& op, CounterAddition addition)
      : PendingLaunch("aten::add_"), op_(op), addition_(std::move(addition)) {}

  void enqueue(runtime::Queue& queue) const override {
    if (!addition_.counter.defined()) {
      return;
    }
    const CurrentQueue current(queue);
    at::TensorIterator iter =
        at::TensorIteratorConfig()
            .add_output(addition_.counter)
            .add_const_input(addition_.counter)
            .add_owned_const_input(
                at::native::wrapped_scalar_tensor(addition_.amount))
            .allow_cpu_scalars(true)
            .promote_inputs_to_common_dtype(true)
            .resize_outputs(false)
            .build();
    pointwise(iter, op_, {at::Scalar(1)});
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
  const PointwiseOp& op_;
  CounterAddition addition_;
};

}  // namespace

bool pends_as_counter(const at::TensorIteratorBase& iter,
                      const PointwiseOp& op,
                      c10::ArrayRef<at::Scalar> scalars) {
  if (iter.numel() != 1 || iter.noutputs() != 1 || iter.ntensors() != 3 ||
      scalars.size() != 1 || !iter.is_cpu_scalar(2) ||
      !iter.tensor_base(0).is_same(iter.tensor_base(1)) ||
      iter.dtype(0) != at::kLong || iter.dtype(2) != at::kLong ||
      std::string_view(op.name) != "add.out") {
    return false;
  }
  const at::TensorBase& counter = iter.tensor_base(0);
  runtime::Queue& queue = queue_of(counter);
  if (queue.device().is_cpu() || !queue.can_pend()) {
    return false;
  }
  // As the kernel multiplies: integers wrap around.
  const auto amount = static_cast<int64_t>(
      static_cast<uint64_t>(scalars[0].toLong()) *
      static_cast<uint64_t>(cpu_scalar_value(iter, 2).toLong()));
  queue.pend(std::make_unique<PendingAddition>(
      op, CounterAddition{alias_of(counter), amount}));
  return true;
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
