#include "epilogue.h"

#include "../../cpp/device/allocator.h"
#include "../../cpp/runtime/ahead_of_pending.h"
#include "epilogue_text.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;
using at::Tensor;

namespace {

bool has_memory(const Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0;
}

bool is_in(const Tensor& tensor, const void* begin, const void* end) {
  if (!has_memory(tensor)) {
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

// Storages of adopted memory may overlap without being the same.
bool shares_storage(const Tensor& a, const Tensor& b) {
  if (!has_memory(a) || !has_memory(b)) {
    return false;
  }
  const auto* begin = static_cast<const char*>(b.storage().data());
  return is_in(a, begin, begin + b.storage().nbytes());
}

// Both are dense: the same elements, if from the same address on.
bool is_at(const at::TensorBase& a, const at::TensorBase& b) {
  return a.numel() == b.numel() && a.scalar_type() == b.scalar_type() &&
         a.const_data_ptr() == b.const_data_ptr();
}

bool lies_as(const at::TensorBase& a, const at::TensorBase& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Four elements are loaded at once.
bool begins_at_four(const at::TensorBase& tensor) {
  return arg_in(tensor).offset % 4 == 0;
}

// The memory that the op was called for, also of a copy-on-write storage: its
// copies are made after this launch.
BufferView arg_of(const Tensor& value) {
  return arg_at(value.const_data_ptr(), value.scalar_type());
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
    for (auto* tensors : {&target_.uses, &target_.writes}) {
      for (Tensor& tensor : *tensors) {
        if (tensor.defined()) {
          tensor = alias_of(tensor);
        }
      }
    }
  }

  EpilogueValues values() const { return {target_, steps_}; }

  bool add(EpilogueStep step) {
    arguments_of_steps_ += count_arguments(step);
    if (steps_.size() == kMaxEpilogueSteps ||
        arguments_of_steps_ > kMaxStepArguments || !begins_at_four(step.out) ||
        reads_what_changes(step) || !may_write(step)) {
      return false;
    }
    steps_.push_back(std::move(step));
    return true;
  }

  // Whether a command that reads and writes these may come before the launch.
  bool is_independent(std::initializer_list<Tensor> reads,
                      std::initializer_list<Tensor> writes) const {
    const auto writes_any = [&](const Tensor& written) {
      return std::any_of(
          writes.begin(), writes.end(), [&](const Tensor& tensor) {
            return shares_storage(tensor, written);
          });
    };
    const auto touches_any = [&](const Tensor& written) {
      return writes_any(written) ||
             std::any_of(reads.begin(), reads.end(), [&](const Tensor& tensor) {
               return shares_storage(tensor, written);
             });
    };
    bool result =
        std::none_of(target_.writes.begin(), target_.writes.end(), touches_any);
    result = result && !touches_any(target_.out);
    for (const EpilogueStep& step : steps_) {
      result = result && !touches_any(step.out);
    }
    for_each_tensor(
        [&](const Tensor& tensor) { result = result && !writes_any(tensor); });
    return result;
  }

  void enqueue(runtime::Queue& queue) const override {
    runtime::KernelArguments arguments(arg_of(values()[steps_.size()]));
    arguments.append(arguments_);
    const KernelSource& source =
        steps_.empty() ? source_ : source_with_epilogue(add_steps(arguments));
    runtime::KernelLaunch(
        queue.device().programs().get(source, kernel_name_, defines_),
        range_,
        arguments)
        .enqueue(queue);
  }

 private:
  // Beside those of the kernel itself.
  static constexpr size_t kMaxStepArguments = 40;

  static size_t count_arguments(const EpilogueStep& step) {
    size_t count = step.scalars.size();
    for (const EpilogueOperand& operand : step.operands) {
      count += operand.kind == OperandKind::kNumber    ? 1
               : operand.kind == OperandKind::kChannel ? 3
               : operand.kind == OperandKind::kValue   ? 0
                                                       : 2;
    }
    return count;
  }

  template <class Function>
  void for_each_tensor(const Function& function) const {
    function(target_.out);
    for (const Tensor& tensor : target_.uses) {
      function(tensor);
    }
    for (const Tensor& tensor : target_.writes) {
      function(tensor);
    }
    for (const EpilogueStep& step : steps_) {
      function(step.out);
      for (const EpilogueOperand& operand : step.operands) {
        function(operand.tensor);
      }
    }
  }

  // What the launch writes is no operand in memory: work-items of other
  // elements would write it.
  bool reads_what_changes(const EpilogueStep& step) const {
    const EpilogueValues all = values();
    for (const EpilogueOperand& operand : step.operands) {
      for (size_t i = 0; i < all.count(); ++i) {
        if (overlap(operand.tensor, all[i])) {
          return true;
        }
      }
      for (const Tensor& tensor : target_.writes) {
        if (has_memory(tensor) && overlap(operand.tensor, tensor)) {
          return true;
        }
      }
    }
    return false;
  }

  // Work-items write `out` while others read what the launch uses; an operand
  // is read by the one that writes in its place, and a value is replaced by it.
  bool may_write(const EpilogueStep& step) const {
    const auto overlaps = [&step](const Tensor& tensor) {
      return overlap(tensor, step.out);
    };
    const auto is_apart = [&](const EpilogueOperand& operand) {
      const bool is_in_place =
          operand.kind == OperandKind::kSame &&
          operand.tensor.const_data_ptr() == step.out.const_data_ptr() &&
          lies_as(operand.tensor, step.out);
      return is_in_place || !overlaps(operand.tensor);
    };
    const auto are_apart = [&is_apart](const EpilogueStep& of) {
      return std::all_of(of.operands.begin(), of.operands.end(), is_apart);
    };
    const EpilogueValues all = values();
    for (size_t i = 0; i < all.count(); ++i) {
      if (overlaps(all[i]) && !is_at(step.out, all[i])) {
        return false;
      }
    }
    return std::none_of(target_.uses.begin(), target_.uses.end(), overlaps) &&
           std::none_of(
               target_.writes.begin(), target_.writes.end(), overlaps) &&
           are_apart(step) &&
           std::all_of(steps_.begin(), steps_.end(), are_apart);
  }

  // Nobody but this launch can look at it any more.
  bool is_dead(const Tensor& tensor) const {
    const auto* storage = tensor.storage().unsafeGetStorageImpl();
    size_t own = 0;
    for_each_tensor([&](const Tensor& other) {
      own +=
          other.defined() && other.storage().unsafeGetStorageImpl() == storage;
    });
    return device::owns_block(tensor.storage()) &&
           tensor.storage().use_count() == own;
  }

  // A value that is there when all steps have been taken, and that somebody
  // holds.
  bool is_kept(size_t value) const {
    const EpilogueValues all = values();
    for (size_t later = value + 1; later < all.count(); ++later) {
      if (is_at(all[later], all[value])) {
        return false;
      }
    }
    return !is_dead(all[value]);
  }

  // The steps' arguments, and what the kernel's text depends on.
  EpilogueKey add_steps(runtime::KernelArguments& arguments) const {
    EpilogueKey key{&source_, dtype_of(target_.out), steps_.size()};
    for (size_t i = 0; i < steps_.size(); ++i) {
      const EpilogueStep& step = steps_[i];
      EpilogueKey::Step& text = key.steps[i];
      text.text = step.text;
      for (size_t k = 0; k < step.operands.size(); ++k) {
        const EpilogueOperand& operand = step.operands[k];
        text.kinds[k] = operand.kind;
        text.values[k] = static_cast<uint8_t>(operand.value);
        if (operand.kind == OperandKind::kNumber) {
          arguments.add(operand.number);
        } else if (operand.kind != OperandKind::kValue) {
          text.dtypes[k] = dtype_of(operand.tensor);
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
    for (size_t value = 0; value < steps_.size(); ++value) {
      key.keeps[value] = is_kept(value);
      if (key.keeps[value]) {
        arguments.add(arg_of(values()[value]));
      }
    }
    return key;
  }

  EpilogueTarget target_;
  const KernelSource& source_;
  const char* kernel_name_;
  std::vector<Define> defines_;
  NDRange range_;
  runtime::KernelArguments arguments_;  // all but the output
  std::vector<EpilogueStep> steps_;
  size_t arguments_of_steps_ = 0;
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

bool EpilogueValues::is_computed_as(const at::TensorBase& operand) const {
  return at::isFloatingType(operand.scalar_type()) &&
         compute_type(operand.scalar_type()) ==
             compute_type(target_.out.scalar_type());
}

std::optional<size_t> EpilogueValues::find(const at::TensorBase& tensor) const {
  if (!tensor.is_non_overlapping_and_dense()) {
    return std::nullopt;
  }
  // The last one that is there has replaced the others.
  for (size_t value = count(); value > 0; --value) {
    if (is_at(tensor, (*this)[value - 1])) {
      return value - 1;
    }
  }
  return std::nullopt;
}

std::optional<EpilogueOperand> EpilogueValues::operand(
    const at::TensorBase& operand, const at::TensorBase& like) const {
  if (const std::optional<size_t> value = find(operand)) {
    return lies_as(operand, like)
               ? std::optional(EpilogueOperand{.value = *value})
               : std::nullopt;
  }
  const bool is_mask = operand.scalar_type() == at::kBool;
  if ((operand.scalar_type() != target_.out.scalar_type() && !is_mask) ||
      operand.device() != target_.out.device()) {
    return std::nullopt;
  }
  if (lies_as(operand, like) && (is_mask || begins_at_four(operand))) {
    return EpilogueOperand{.kind = OperandKind::kSame,
                           .tensor = alias_of(operand)};
  }
  if (operand.numel() == 1) {
    return EpilogueOperand{.kind = OperandKind::kOne,
                           .tensor = alias_of(operand)};
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

std::optional<EpilogueOperand> EpilogueValues::channel_operand(
    const at::TensorBase& operand, const at::TensorBase& like) const {
  const Tensor& out = target_.out;
  // Where dimension 1 is as long and as far apart, an element's channel is what
  // it is in the kernel.
  const bool has_channels =
      target_.has_channels && like.dim() > 1 && like.size(1) == out.size(1) &&
      (like.size(1) == 1 || like.stride(1) == out.stride(1));
  if (!has_channels || !is_computed_as(operand) ||
      operand.device() != target_.out.device() || operand.dim() != 1 ||
      operand.size(0) != out.size(1) ||
      !fits_int32(operand.size(0) * operand.stride(0))) {
    return std::nullopt;
  }
  return EpilogueOperand{.kind = OperandKind::kChannel,
                         .tensor = alias_of(operand),
                         .channel_stride = operand.stride(0)};
}

bool join_epilogue(
    const at::TensorBase& out,
    const std::function<std::optional<EpilogueStep>(const EpilogueValues&)>&
        make) {
  return queue_of(out).join_pending([&make](runtime::PendingLaunch& pending) {
    auto* launch = dynamic_cast<EpilogueLaunch*>(&pending);
    if (launch == nullptr) {
      return false;
    }
    std::optional<EpilogueStep> step = make(launch->values());
    return step.has_value() && launch->add(std::move(*step));
  });
}

void launch_ahead(const at::TensorBase& on,
                  std::initializer_list<Tensor> reads,
                  std::initializer_list<Tensor> writes,
                  const std::function<void()>& launch) {
  runtime::Queue& queue = queue_of(on);
  const bool is_independent =
      !queue.device().is_cpu() &&  // where nothing has an epilogue
      queue.join_pending([&](runtime::PendingLaunch& pending) {
        const auto* other = dynamic_cast<EpilogueLaunch*>(&pending);
        return other != nullptr && other->is_independent(reads, writes);
      });
  if (is_independent) {
    try {
      const runtime::AheadOfPending ahead(queue);
      launch();
      return;
    } catch (const c10::OutOfMemoryError&) {
      queue.flush_pending();  // gives back what it holds
    }
  }
  launch();
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
