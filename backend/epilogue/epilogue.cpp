#include "epilogue.h"

#include "../../cpp/device/stream.h"
#include "epilogue_text.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

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

bool is_in(const Tensor& tensor, const void* begin, const void* end) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return false;
  }
  const c10::Storage& storage = tensor.storage();
  const auto* first = static_cast<const char*>(storage.data());
  return first < end && begin < first + storage.nbytes();
}

// True where writing `out` would change what `tensor` has. Both have memory.
bool overlap(const Tensor& tensor, const at::TensorBase& out) {
  const auto* begin = static_cast<const char*>(out.const_data_ptr());
  return is_in(tensor, begin, begin + out.nbytes());
}

bool lies_as(const at::TensorBase& a, const at::TensorBase& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Four elements are loaded at once.
bool begins_at_four(const at::TensorBase& tensor) {
  return arg_in(tensor).offset % 4 == 0;
}

class EpilogueLaunch : public runtime::PendingLaunch {
 public:
  EpilogueLaunch(const EpilogueTarget& target,
                 const KernelSource& source,
                 const char* kernel_name,
                 std::span<const Define> defines,
                 const NDRange& range,
                 const runtime::KernelArguments& arguments)
      : PendingLaunch(target.op),
        target_(target),
        source_(source),
        kernel_name_(kernel_name),
        defines_(defines.begin(), defines.end()),
        range_(range),
        arguments_(arguments) {
    target_.out = alias_of(target.out);
    for (Tensor& tensor : target_.uses) {
      if (tensor.defined()) {
        tensor = alias_of(tensor);
      }
    }
  }

  EpilogueResult result() const { return {value(steps_.size()), target_}; }

  bool add(std::unique_ptr<EpilogueStep> step) {
    if (reads_earlier(*step) || !may_write(*step)) {
      return false;
    }
    steps_.push_back(std::move(step));
    return true;
  }
  bool is_full() const { return steps_.size() == kMaxEpilogueSteps; }

  void enqueue(runtime::Queue& queue) const override {
    const CurrentQueue current(queue);
    const size_t fused = fused_steps();
    launch(queue, fused);
    for (size_t i = fused; i < steps_.size(); ++i) {
      steps_[i]->run_alone(value(i));
    }
  }

 private:
  // The result behind `steps` of them.
  const Tensor& value(size_t steps) const {
    return steps == 0 ? target_.out : steps_[steps - 1]->out;
  }

  template <class Function>
  void for_each_tensor(const Function& function) const {
    function(target_.out);
    for (const Tensor& tensor : target_.uses) {
      function(tensor);
    }
    for (const auto& step : steps_) {
      function(step->out);
      for (const EpilogueOperand& operand : step->operands) {
        function(operand.tensor);
      }
    }
  }

  // What lies between may never be written.
  bool reads_earlier(const EpilogueStep& step) const {
    for (const EpilogueOperand& operand : step.operands) {
      for (size_t i = 0; i <= steps_.size(); ++i) {
        if (overlap(operand.tensor, value(i))) {
          return true;
        }
      }
    }
    return false;
  }

  // Work-items write `out` while others read what the launch uses; an operand
  // is read by the one that writes in its place.
  bool may_write(const EpilogueStep& step) const {
    const auto is_apart = [&step](const EpilogueOperand& operand) {
      const bool is_in_place =
          operand.kind == OperandKind::kSame &&
          operand.tensor.const_data_ptr() == step.out.const_data_ptr() &&
          lies_as(operand.tensor, step.out);
      return is_in_place || !overlap(operand.tensor, step.out);
    };
    const auto are_apart = [&is_apart](const EpilogueStep& of) {
      return std::all_of(of.operands.begin(), of.operands.end(), is_apart);
    };
    return std::none_of(target_.uses.begin(),
                        target_.uses.end(),
                        [&step](const Tensor& tensor) {
                          return overlap(tensor, step.out);
                        }) &&
           are_apart(step) &&
           std::all_of(
               steps_.begin(), steps_.end(), [&are_apart](const auto& earlier) {
                 return are_apart(*earlier);
               });
  }

  // Nobody but this launch can look at it any more.
  bool is_dead(const Tensor& tensor) const {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    size_t own = 0;
    for_each_tensor([&](const Tensor& other) {
      own +=
          other.defined() && other.storage().unsafeGetStorageImpl() == storage;
    });
    return tensor.storage().use_count() == own;
  }

  // Steps up to a result that has to be written.
  size_t fused_steps() const {
    size_t steps = 0;
    while (steps < steps_.size()) {
      const Tensor& before = value(steps);
      const bool is_overwritten =
          before.const_data_ptr() == value(steps + 1).const_data_ptr();
      if (!is_overwritten && !is_dead(before)) {
        break;
      }
      ++steps;
    }
    return steps;
  }

  // The kernel with the first `steps` of its epilogue.
  void launch(runtime::Queue& queue, size_t steps) const {
    runtime::KernelArguments arguments(arg(value(steps)));
    arguments.append(arguments_);
    EpilogueKey key{&source_, dtype_of(target_.out), steps, {}};
    for (size_t i = 0; i < steps; ++i) {
      const EpilogueStep& step = *steps_[i];
      key.steps[i].text = step.text;
      for (size_t k = 0; k < step.operands.size(); ++k) {
        const EpilogueOperand& operand = step.operands[k];
        key.steps[i].kinds[k] = operand.kind;
        if (operand.kind == OperandKind::kNumber) {
          arguments.add(operand.number);
        } else if (operand.kind != OperandKind::kValue) {
          key.steps[i].dtypes[k] = dtype_of(operand.tensor);
          arguments.add(arg_in(operand.tensor));
        }
        if (operand.kind == OperandKind::kChannel) {
          arguments.add(static_cast<int32_t>(operand.channel_stride));
        }
      }
      for (const ScalarArgument& scalar : step.scalars) {
        arguments.add(scalar);
      }
    }
    const KernelSource& source =
        steps == 0 ? source_ : source_with_epilogue(key);
    runtime::KernelLaunch(
        queue.device().programs().get(source, kernel_name_, defines_),
        range_,
        arguments)
        .enqueue(queue);
  }

  EpilogueTarget target_;
  const KernelSource& source_;
  const char* kernel_name_;
  std::vector<Define> defines_;
  NDRange range_;
  runtime::KernelArguments arguments_;  // all but the output
  std::vector<std::unique_ptr<EpilogueStep>> steps_;
};

}  // namespace

Tensor alias_of(const at::TensorBase& tensor) {
  Tensor alias = at::detail::make_tensor<at::TensorImpl>(
      c10::Storage(tensor.storage()),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      tensor.dtype());
  at::TensorImpl* impl = alias.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return alias;
}

bool EpilogueResult::is_computed_as(const at::TensorBase& operand) const {
  return at::isFloatingType(operand.scalar_type()) &&
         compute_type(operand.scalar_type()) ==
             compute_type(value_.scalar_type());
}

bool EpilogueResult::is(const at::TensorBase& tensor) const {
  return tensor.numel() == value_.numel() &&
         tensor.scalar_type() == value_.scalar_type() &&
         tensor.const_data_ptr() == value_.const_data_ptr() &&
         tensor.is_non_overlapping_and_dense();
}

std::optional<EpilogueOperand> EpilogueResult::operand(
    const at::TensorBase& operand, const at::TensorBase& like) const {
  if (is(operand)) {
    return lies_as(operand, like) ? std::optional(EpilogueOperand{})
                                  : std::nullopt;
  }
  if (operand.scalar_type() != value_.scalar_type() ||
      operand.device() != value_.device()) {
    return std::nullopt;
  }
  if (lies_as(operand, like) && begins_at_four(operand)) {
    return EpilogueOperand{OperandKind::kSame, alias_of(operand)};
  }
  if (operand.numel() == 1) {
    return EpilogueOperand{OperandKind::kOne, alias_of(operand)};
  }
  const int64_t leading = like.dim() - operand.dim();
  if (leading > 1 || like.dim() < 2 || operand.numel() != like.size(1) ||
      operand.size(1 - leading) != like.size(1)) {
    return std::nullopt;
  }
  const at::Tensor numbers = alias_of(operand);
  numbers.unsafeGetTensorImpl()->set_sizes_and_strides(
      at::IntArrayRef{operand.numel()},
      at::IntArrayRef{operand.stride(1 - leading)});
  return channel_operand(numbers, like);
}

std::optional<EpilogueOperand> EpilogueResult::channel_operand(
    const at::TensorBase& operand, const at::TensorBase& like) const {
  const Tensor& out = target_.out;
  // Where dimension 1 is as long and as far apart, an element's channel is what
  // it is in the kernel.
  const bool has_channels =
      target_.has_channels && like.dim() > 1 && like.size(1) == out.size(1) &&
      (like.size(1) == 1 || like.stride(1) == out.stride(1));
  if (!has_channels || !is_computed_as(operand) ||
      operand.device() != value_.device() || operand.dim() != 1 ||
      operand.size(0) != out.size(1)) {
    return std::nullopt;
  }
  return EpilogueOperand{
      OperandKind::kChannel, alias_of(operand), operand.stride(0)};
}

bool join_epilogue(
    const at::TensorBase& out,
    const std::function<std::unique_ptr<EpilogueStep>(const EpilogueResult&)>&
        make) {
  return queue_of(out).join_pending([&make](runtime::PendingLaunch& pending) {
    auto* launch = dynamic_cast<EpilogueLaunch*>(&pending);
    if (launch == nullptr || launch->is_full()) {
      return false;
    }
    std::unique_ptr<EpilogueStep> step = make(launch->result());
    return step != nullptr && launch->add(std::move(step));
  });
}

bool can_have_epilogue(const EpilogueTarget& target) {
  const at::ScalarType dtype = target.out.scalar_type();
  return at::isFloatingType(dtype) &&
         target.out.is_non_overlapping_and_dense() &&
         queue_of(target.out).can_pend();
}

void pend_with_epilogue(const EpilogueTarget& target,
                        const KernelSource& source,
                        const char* kernel_name,
                        std::span<const Define> defines,
                        const NDRange& range,
                        const runtime::KernelArguments& arguments) {
  queue_of(target.out)
      .pend(std::make_unique<EpilogueLaunch>(
          target, source, kernel_name, defines, range, arguments));
}

}  // namespace torch_opencl::ops
