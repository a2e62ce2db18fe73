#include "multi_tensor_text.h"

#include "../../cpp/runtime/growing_table.h"
#include "../common/integers.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

struct Slot {
  cl_mem memory;
  uint32_t window;

  bool operator==(const Slot&) const = default;
};

// The kernel's table, as words: chunks before each tensor, elements of each,
// a place (slot and element offset) for each operand of each.
struct Batch {
  std::vector<uint32_t> first_chunk{0};
  std::vector<uint32_t> elements;
  std::vector<uint32_t> places;
  std::vector<double> scalars;
  std::vector<Slot> slots;
  std::vector<const void*> written;
};

// What a list has of a buffer, in bytes.
struct Range {
  cl_mem memory;
  uint64_t begin;
  uint64_t end;
  bool is_written;
};

// On CPUs one work-item a chunk: each gets its own copy of the table, which
// would make the addresses of a vector of work-items look unrelated.
int group_size(const runtime::Device& device) {
  return device.is_cpu() ? 1 : 64;
}

using Key = std::tuple<int, std::string, std::vector<DType>, DType>;

runtime::Kernel& find_kernel(runtime::Device& device,
                             const char* name,
                             const std::string& statements,
                             const MultiTensorLaunch& launch) {
  static auto* kernels =
      new runtime::GrowingTable<Key, runtime::Kernel*, c10::hash<Key>>();
  // In-place forms read what they write: the operands' use is part of the key.
  std::string use = statements;
  std::vector<DType> dtypes;
  for (const ListOperand& operand : launch.lists) {
    use += operand.name;
    use += static_cast<char>('0' + operand.is_read + 2 * operand.is_written +
                             4 * operand.is_single);
    dtypes.push_back(operand.dtype);
  }
  for (const ScalarOperand& scalar : launch.scalars) {
    use += scalar.name;
    use += scalar.values.size() == 1 ? '1' : 'n';
  }
  use += static_cast<char>('0' + static_cast<int>(launch.slots));
  const Key key{device.index(), use, dtypes, launch.compute};
  return *kernels->find(key, [&] {
    return &build_multi_tensor(device, name, statements, launch);
  });
}

// The table as the kernel's struct lays it out: scalars first, for they may be
// doubles.
std::vector<unsigned char> bytes_of(const Batch& batch,
                                    const TableShape& shape) {
  const size_t scalars = shape.all_scalars() * shape.scalar_bytes();
  size_t size = scalars + shape.words() * sizeof(uint32_t);
  if (shape.is_double && scalars > 0) {
    size = (size + 7) / 8 * 8;
  }
  std::vector<unsigned char> bytes(size);
  unsigned char* at = bytes.data();
  for (size_t i = 0; i < batch.scalars.size(); ++i) {
    if (shape.is_double) {
      std::memcpy(at + i * 8, &batch.scalars[i], 8);
    } else {
      const float value = static_cast<float>(batch.scalars[i]);
      std::memcpy(at + i * 4, &value, 4);
    }
  }
  at += scalars;
  const auto put = [&at](const std::vector<uint32_t>& words, size_t room) {
    std::memcpy(at, words.data(), words.size() * sizeof(uint32_t));
    at += room * sizeof(uint32_t);
  };
  put(batch.first_chunk, shape.tensors + 1);
  put(batch.elements, shape.tensors);
  put(batch.places, shape.tensors * shape.operands);
  if (shape.windows > 0) {
    std::vector<uint32_t> windows;
    for (const Slot& slot : batch.slots) {
      windows.push_back(slot.window);
    }
    put(windows, shape.windows);
  }
  return bytes;
}

// The lists' places for tensor `t` as the table has them.
std::vector<uint32_t> places_of(const std::vector<ListOperand>& lists,
                                size_t t,
                                int slot_shift,
                                std::vector<Slot>& slots) {
  std::vector<uint32_t> places;
  for (const ListOperand& list : lists) {
    const BufferView& view = list.places[t];
    const Slot wanted{view.memory,
                      static_cast<uint32_t>(view.offset >> slot_shift)};
    const auto slot = std::find(slots.begin(), slots.end(), wanted);
    const auto index = static_cast<uint32_t>(slot - slots.begin());
    if (slot == slots.end()) {
      slots.push_back(wanted);
    }
    const uint32_t mask = (uint32_t{1} << slot_shift) - 1;
    places.push_back(index << slot_shift |
                     (static_cast<uint32_t>(view.offset) & mask));
  }
  return places;
}

// Elements of a chunk. On CPUs, where each takes a copy of the table, as many
// as leave every core enough chunks to share out.
uint32_t chunk_length(const runtime::Device& device,
                      const std::vector<int64_t>& elements) {
  if (!device.is_cpu()) {
    return 2048;
  }
  const int64_t all =
      std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const int64_t share = all / (64 * int64_t{device.info().compute_units});
  return static_cast<uint32_t>(
      std::clamp<int64_t>(share / 1024 * 1024, 8192, 65536));
}

// Those that all tensors share.
std::vector<double> shared_scalars(const MultiTensorLaunch& launch) {
  std::vector<double> shared;
  for (const ScalarOperand& scalar : launch.scalars) {
    if (scalar.values.size() == 1) {
      shared.push_back(scalar.values[0]);
    }
  }
  return shared;
}

// Adds tensor `t`, all but its buffers, to the table.
void append_tensor(Batch& batch,
                   const MultiTensorLaunch& launch,
                   size_t t,
                   const std::vector<uint32_t>& places,
                   uint32_t length) {
  const int64_t elements = launch.elements[t];
  for (const ListOperand& list : launch.lists) {
    if (list.is_written) {
      batch.written.push_back(list.places[t].written);
    }
  }
  batch.places.insert(batch.places.end(), places.begin(), places.end());
  batch.elements.push_back(static_cast<uint32_t>(elements));
  batch.first_chunk.push_back(
      batch.first_chunk.back() +
      static_cast<uint32_t>(ceil_div(elements, length)));
  for (const ScalarOperand& scalar : launch.scalars) {
    if (scalar.values.size() > 1) {
      batch.scalars.push_back(scalar.values[t]);
    }
  }
}

void launch_batch(runtime::Queue& queue,
                  runtime::Kernel& kernel,
                  const Batch& batch,
                  const TableShape& shape,
                  uint32_t length) {
  const int group = group_size(queue.device());
  const size_t chunks = batch.first_chunk.back();
  const std::vector<unsigned char> bytes = bytes_of(batch, shape);
  const std::lock_guard lock(kernel.mutex);
  cl_uint index = 0;
  runtime::bind_bytes(kernel.handle, index, bytes.data(), bytes.size());
  runtime::bind_argument(kernel.handle, index, length);
  for (int slot = 0; slot < shape.slots; ++slot) {
    const cl_mem memory = slot < static_cast<int>(batch.slots.size())
                              ? batch.slots[slot].memory
                              : batch.slots[0].memory;
    runtime::bind_bytes(kernel.handle, index, &memory, sizeof(memory));
  }
  queue.launch(kernel, range(chunks * group, group));
  for (const void* address : batch.written) {
    queue.wrote(address);
  }
}

}  // namespace

std::optional<BufferView> place_of(const Tensor& tensor) {
  if (!fits_int32(tensor.numel())) {
    return std::nullopt;
  }
  return arg(tensor);
}

Slots slots_for(const runtime::Device& device,
                const std::vector<ListOperand>& lists) {
  uint64_t last = 0;
  for (const ListOperand& list : lists) {
    for (const BufferView& place : list.places) {
      last = std::max<uint64_t>(last, place.offset);
    }
  }
  if (!device.is_cpu() && last >> kManySlotsShift == 0) {
    return Slots::kMany;
  }
  // Each place of a tensor may lie in a buffer of its own.
  return last >> kFewSlotsShift == 0 && lists.size() <= kFewSlots ? Slots::kFew
                                                                  : Slots::kFar;
}

runtime::Kernel& build_multi_tensor(runtime::Device& device,
                                    const std::string& name,
                                    const std::string& statements,
                                    const MultiTensorLaunch& launch) {
  const std::string text = multi_tensor_text(
      launch, statements, table_shape(launch), group_size(device));
  return device.programs().get_generated(
      "foreach_" + name, text, "multi_tensor");
}

bool multi_tensor_apply(const char* name,
                        const std::string& statements,
                        const std::vector<TensorOperand>& operands,
                        const std::vector<ScalarOperand>& scalars) {
  const at::TensorList first = operands.front().tensors;
  MultiTensorLaunch launch{
      dtype_of(compute_type(first[0].scalar_type())), {}, {}, scalars};
  for (const Tensor& tensor : first) {
    launch.elements.push_back(tensor.numel());
  }
  runtime::Queue& queue = queue_of(first[0]);
  for (const TensorOperand& operand : operands) {
    ListOperand list{operand.name,
                     {},
                     dtype_of(operand.tensors[0]),
                     operand.is_read,
                     operand.is_written,
                     operand.is_single};
    for (const Tensor& tensor : operand.tensors) {
      const std::optional<BufferView> place = place_of(tensor);
      if (!place.has_value()) {
        return false;
      }
      check_same_device(queue, *place);
      list.places.push_back(*place);
    }
    launch.lists.push_back(std::move(list));
  }
  launch.slots = slots_for(queue.device(), launch.lists);
  runtime::Kernel& kernel =
      find_kernel(queue.device(), name, statements, launch);
  queue.flush_pending();
  launch_multi_tensor(queue, kernel, launch, are_separate(launch));
  return true;
}

bool are_separate(const MultiTensorLaunch& launch) {
  std::vector<Range> ranges;
  ranges.reserve(launch.lists.size() * launch.elements.size());
  for (const ListOperand& list : launch.lists) {
    const uint64_t size = runtime::dtype_size(list.dtype);
    for (size_t t = 0; t < launch.elements.size() && !list.is_single; ++t) {
      const BufferView& place = list.places[t];
      if (launch.elements[t] > 0) {
        ranges.push_back({place.memory,
                          place.offset * size,
                          (place.offset + launch.elements[t]) * size,
                          list.is_written});
      }
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.memory != b.memory ? a.memory < b.memory : a.begin < b.begin;
  });
  // Of the ranges so far that reach into the next one.
  uint64_t end = 0;
  bool is_any_written = false;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& next = ranges[i];
    const bool is_apart =
        i == 0 || next.memory != ranges[i - 1].memory || next.begin >= end;
    if (!is_apart && (next.is_written || is_any_written)) {
      return false;
    }
    end = is_apart ? next.end : std::max(end, next.end);
    is_any_written = next.is_written || (!is_apart && is_any_written);
  }
  return true;
}

void launch_multi_tensor(runtime::Queue& queue,
                         runtime::Kernel& kernel,
                         const MultiTensorLaunch& launch,
                         bool is_separate) {
  const TableShape shape = table_shape(launch);
  const uint32_t length = chunk_length(queue.device(), launch.elements);
  const std::vector<double> shared = shared_scalars(launch);
  Batch batch{.scalars = shared};
  const auto flush = [&] {
    if (!batch.elements.empty()) {
      launch_batch(queue, kernel, batch, shape, length);
      batch = Batch{.scalars = shared};
    }
  };
  for (size_t t = 0; t < launch.elements.size(); ++t) {
    if (launch.elements[t] == 0) {
      continue;
    }
    std::vector<Slot> slots = batch.slots;
    std::vector<uint32_t> places =
        places_of(launch.lists, t, shape.slot_shift, slots);
    if (slots.size() > static_cast<size_t>(shape.slots) ||
        batch.elements.size() == static_cast<size_t>(shape.tensors)) {
      flush();
      slots.clear();
      places = places_of(launch.lists, t, shape.slot_shift, slots);
      TORCH_INTERNAL_ASSERT(slots.size() <= static_cast<size_t>(shape.slots));
    }
    batch.slots = std::move(slots);
    append_tensor(batch, launch, t, places, length);
    if (!is_separate) {
      flush();
    }
  }
  flush();
}

}  // namespace torch_opencl::ops
