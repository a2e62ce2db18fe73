// Pointwise ops as epilogues on GPUs: what follows a launch that is pending is
// computed where its kernel stores (epilogue.clh), and what lies between is
// written by the same kernel where somebody holds it, and else not at all.
#pragma once

#include "../../cpp/aten/launch.h"
#include "../common/kernel_text.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

namespace torch_opencl::ops {

// How a step's operand meets an output: a value of the launch, the element at
// the output's offset, a number a channel, one element, a number of the host.
enum class OperandKind : uint8_t { kValue, kSame, kChannel, kOne, kNumber };

struct EpilogueOperand {
  OperandKind kind = OperandKind::kValue;
  at::Tensor tensor;           // a private alias, of those in memory
  size_t value = 0;            // of kValue: the steps behind which it is
  int64_t channel_stride = 0;  // of kChannel
  ScalarArgument number{};     // of kNumber
};

constexpr size_t kMaxEpilogueOperands = 5;  // of a step
constexpr size_t kMaxEpilogueSteps = 4;

// An expression over operands and numbers. The texts are literals: steps are
// told apart by their addresses.
struct EpilogueText {
  const char* expression;
  const char* inputs;   // "self, other": names of the operands
  const char* scalars;  // "alpha"
  bool uses_math;       // calls functions of math.clh

  // Texts are literals: their addresses tell them apart.
  bool operator==(const EpilogueText&) const = default;
};

// A pointwise op that joined: complete, with aliases of its own.
struct EpilogueStep {
  EpilogueText text;
  std::vector<EpilogueOperand> operands;  // in the order of `inputs`
  std::vector<ScalarArgument> scalars;
  at::Tensor out;
};

// A tensor of the same elements that no caller holds: what callers do to
// theirs changes nothing of it.
at::Tensor alias_of(const at::TensorBase& tensor);

// What a launch with an epilogue writes and uses.
struct EpilogueTarget {
  const char* op;  // names the launch in errors
  at::Tensor out;  // all of which it writes, and does not read
  std::vector<at::Tensor> uses;
  bool has_channels = false;  // the kernel's channel is `out`'s dimension 1
  std::vector<at::Tensor> writes;  // besides `out`
};

// What a pending launch computes, for those who would join it: its result, and
// the results of the steps that joined.
class EpilogueValues {
 public:
  EpilogueValues(const EpilogueTarget& target,
                 const std::vector<EpilogueStep>& steps)
      : target_(target), steps_(steps) {}

  size_t count() const { return steps_.size() + 1; }
  const at::Tensor& operator[](size_t value) const {
    return value == 0 ? target_.out : steps_[value - 1].out;
  }
  // The value whose elements are exactly those of `tensor`, now that all steps
  // so far have been taken.
  std::optional<size_t> find(const at::TensorBase& tensor) const;
  // How an operand meets outputs that lie as those of `like`, if it may.
  std::optional<EpilogueOperand> operand(const at::TensorBase& operand,
                                         const at::TensorBase& like) const;
  // The same of a number for each element of dimension 1, of any dtype that is
  // computed in the result's.
  std::optional<EpilogueOperand> channel_operand(
      const at::TensorBase& operand, const at::TensorBase& like) const;

 private:
  bool is_computed_as(const at::TensorBase& operand) const;

  const EpilogueTarget& target_;
  const std::vector<EpilogueStep>& steps_;
};

// Adds a step to the launch that is pending on `out`'s queue; `make` returns
// none where it cannot join. True where the step joined: `out` will be written.
bool join_epilogue(
    const at::TensorBase& out,
    const std::function<std::optional<EpilogueStep>(const EpilogueValues&)>&
        make);

// Calls `launch`, whose commands on the queue of `on` read and write these
// tensors: ahead of the pending launch where they have nothing to do with it,
// so that more can join that; else behind it. Without memory it is called
// again.
void launch_ahead(const at::TensorBase& on,
                  std::initializer_list<at::Tensor> reads,
                  std::initializer_list<at::Tensor> writes,
                  const std::function<void()>& launch);

// Whether the launch may be pending: its result is dense, of floating dtype,
// and its queue can wait.
bool can_have_epilogue(const EpilogueTarget& target);

void pend_with_epilogue(const EpilogueTarget& target,
                        const aten::KernelSource& source,
                        const char* kernel_name,
                        std::span<const aten::Define> defines,
                        const aten::NDRange& range,
                        const runtime::KernelArguments& arguments);

// Launches a kernel whose first parameter is the output, and whose last ones
// are EPILOGUE_PARAMETERS. With a target it is pending, so that pointwise ops
// of the result can join.
template <class... Arguments>
void launch_with_epilogue(const EpilogueTarget* target,
                          const at::TensorBase& on,
                          const aten::KernelSource& source,
                          const char* kernel_name,
                          std::initializer_list<aten::Define> defines,
                          const aten::NDRange& range,
                          const aten::BufferView& out,
                          const Arguments&... arguments) {
  if (target == nullptr || !can_have_epilogue(*target)) {
    aten::launch(on, source, kernel_name, defines, range, out, arguments...);
    return;
  }
  const runtime::Queue& queue = aten::queue_of(on);
  (aten::check_same_device(queue, arguments), ...);
  pend_with_epilogue(*target,
                     source,
                     kernel_name,
                     std::span(defines.begin(), defines.size()),
                     range,
                     runtime::KernelArguments(arguments...));
}

}  // namespace torch_opencl::ops
