// Multi-tensor apply: the same statements for every element of every tensor of
// several lists, in one launch.
#pragma once

#include "../../cpp/aten/launch.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch_opencl::ops {

// A list whose i-th tensor belongs to the i-th of the other lists. In the
// statements its element is a variable of this name, in compute type.
struct TensorOperand {
  const char* name;
  at::TensorList tensors;
  bool is_read = true;
  bool is_written = false;
  // Tensors of one element, the same for all elements of the others. The
  // variable `<name>_at` points to it.
  bool is_single = false;
};

struct ScalarOperand {
  std::string name;
  std::vector<double> values;  // one for all tensors, or one a tensor
};

// Launches as often as kernel parameters have room for. The first operand gives
// sizes and the compute type; tensors of one position have to be dense, with
// equal strides. False, and nothing done, where a tensor has 2^31 elements or
// more.
[[nodiscard]] bool multi_tensor_apply(
    const char* name,
    const std::string& statements,
    const std::vector<TensorOperand>& operands,
    const std::vector<ScalarOperand>& scalars);

// The same by places in memory, in two steps: the kernel, which depends on the
// lists' names, dtypes and uses and on which scalars are shared, and its
// launch.
struct ListOperand {
  std::string name;
  std::vector<aten::BufferView> places;
  aten::DType dtype;
  bool is_read = true;
  bool is_written = false;
  bool is_single = false;
};

// What a kernel names in its table; one for each.
enum class Slots : uint8_t {
  kFew,
  kMany,  // more buffers, of which less is reached
  kFar,   // buffers of any size
};

struct MultiTensorLaunch {
  aten::DType compute;
  std::vector<int64_t> elements;  // of each tensor
  std::vector<ListOperand> lists;
  std::vector<ScalarOperand> scalars;
  Slots slots = Slots::kFew;
};

// GPUs' allocators have many segments.
Slots slots_for(const runtime::Device& device,
                const std::vector<ListOperand>& lists);

// A tensor's place; none of 2^31 elements or more.
std::optional<aten::BufferView> place_of(const at::Tensor& tensor);
runtime::Kernel& build_multi_tensor(runtime::Device& device,
                                    const std::string& name,
                                    const std::string& statements,
                                    const MultiTensorLaunch& launch);
// Whether no element that is written lies in two places of the lists: chunks of
// one launch run in any order.
bool are_separate(const MultiTensorLaunch& launch);
// Tensor by tensor where they are not separate. Not behind a pending launch:
// that is the caller's business.
void launch_multi_tensor(runtime::Queue& queue,
                         runtime::Kernel& kernel,
                         const MultiTensorLaunch& launch,
                         bool is_separate);

}  // namespace torch_opencl::ops
