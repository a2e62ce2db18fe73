#include "multi_tensor.h"

#include "../../cpp/runtime/growing_table.h"
#include "../common/integers.h"
#include "../common/kernel_text.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <numeric>
#include <tuple>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// OpenCL 1.2 guarantees 1024 bytes of kernel parameters.
constexpr size_t kParameterBytes = 1000;
// A place is a slot and an offset in elements, in 32 bits: of many slots the
// offsets have fewer.
constexpr int kFewSlots = 8;
constexpr int kFewSlotsShift = 29;
constexpr int kManySlots = 24;
constexpr int kManySlotsShift = 27;

bool calls_function(const std::string& statements) {
  for (size_t i = 1; i < statements.size(); ++i) {
    if (statements[i] == '(' && std::isalnum(statements[i - 1])) {
      return true;
    }
  }
  return false;
}

// The kernel's table, as words: chunks before each tensor, elements of each,
// a place (slot and element offset) for each operand of each.
struct Batch {
  std::vector<uint32_t> first_chunk{0};
  std::vector<uint32_t> elements;
  std::vector<uint32_t> places;
  std::vector<double> scalars;
  std::vector<cl_mem> slots;
  std::vector<const void*> written;
};

struct Shape {
  int tensors;  // at most, in a batch
  int operands;
  int scalars;         // of each tensor
  int shared_scalars;  // of all
  bool is_double;
  int slots;       // buffers
  int slot_shift;  // bits of an offset

  size_t scalar_bytes() const { return is_double ? 8 : 4; }
  int all_scalars() const { return shared_scalars + tensors * scalars; }
  size_t words() const { return (tensors + 1) + tensors + tensors * operands; }
};

Shape shape_of(const MultiTensorLaunch& launch) {
  Shape shape{};
  shape.operands = static_cast<int>(launch.lists.size());
  shape.is_double = launch.compute == DType::kFloat64;
  for (const ScalarOperand& scalar : launch.scalars) {
    ++(scalar.values.size() == 1 ? shape.shared_scalars : shape.scalars);
  }
  shape.slots = launch.has_many_slots ? kManySlots : kFewSlots;
  shape.slot_shift = launch.has_many_slots ? kManySlotsShift : kFewSlotsShift;
  const size_t fixed = shape.slots * sizeof(cl_mem) + 4 * sizeof(uint32_t) + 8 +
                       shape.shared_scalars * shape.scalar_bytes();
  const size_t each = sizeof(uint32_t) * (2 + shape.operands) +
                      shape.scalar_bytes() * shape.scalars;
  shape.tensors = static_cast<int>((kParameterBytes - fixed) / each);
  return shape;
}

std::string number(int value) {
  return std::to_string(value);
}

// Whoever writes a number that all share does so element by element.
bool writes_shared_number(const std::vector<ListOperand>& operands) {
  return std::any_of(
      operands.begin(), operands.end(), [](const ListOperand& operand) {
        return operand.is_single && operand.is_written;
      });
}

bool have_lanes(const std::vector<ListOperand>& operands) {
  return std::all_of(
      operands.begin(), operands.end(), [](const ListOperand& operand) {
        return operand.is_single || has_lanes(operand.dtype);
      });
}

// The type of the table and the head of the kernel.
std::string signature_text(const Shape& shape, int group) {
  std::string text = "typedef struct {\n";
  if (shape.all_scalars() > 0) {
    text += "  compute_t scalar[" + number(shape.all_scalars()) + "];\n";
  }
  text += "  uint first_chunk[" + number(shape.tensors + 1) +
          "];\n  uint elements[" + number(shape.tensors) + "];\n  uint place[" +
          number(shape.tensors * shape.operands) + "];\n} table_t;\n";
  text +=
      "kernel __attribute__((reqd_work_group_size(" + number(group) +
      ", 1, 1))) void multi_tensor(const table_t argument, const uint length";
  for (int slot = 0; slot < shape.slots; ++slot) {
    text += ", global uchar *m" + number(slot);
  }
  return text + ") {\n";
}

// Finds the work-group's tensor and its elements.
constexpr const char* kFindChunk =
    "#ifdef COPY_INDEXED_STRUCTS\n  const table_t table = argument;\n"
    "#else\n#define table argument\n#endif\n"
    "  const uint chunk = get_group_id(0);\n  int t = 0;\n"
    "  while (table.first_chunk[t + 1] <= chunk) ++t;\n"
    "  const size_t begin = (size_t)(chunk - table.first_chunk[t]) * "
    "length;\n"
    "  const size_t end = min(begin + length, (size_t)table.elements[t]);\n"
    "  uint place;\n";

// The operands' addresses and, of tensors of one element, the values.
std::string places_text(const std::vector<ListOperand>& operands,
                        const Shape& shape) {
  std::string text;
  for (size_t k = 0; k < operands.size(); ++k) {
    const std::string name = operands[k].name;
    const std::string type =
        "storage_" + std::string(runtime::dtype_name(operands[k].dtype));
    text += "  place = table.place[t * " + number(shape.operands) + " + " +
            number(k) + "];\n  global " + type + " *" + name +
            "_at = (global " + type + " *)(";
    for (int slot = 0; slot < shape.slots - 1; ++slot) {
      text += "place >> " + number(shape.slot_shift) + " == " + number(slot) +
              " ? m" + number(slot) + " : ";
    }
    text += "m" + number(shape.slots - 1) + ") + (place & " +
            number((1 << shape.slot_shift) - 1) + ");\n";
    if (operands[k].is_single && operands[k].is_read) {
      text += "  const compute_t " + name + " = " +
              load_text(operands[k].dtype, name + "_at", "0") + ";\n";
    }
  }
  return text;
}

std::string scalars_text(const std::vector<ScalarOperand>& scalars,
                         const Shape& shape) {
  std::string text;
  int shared = 0, own = shape.shared_scalars;
  for (const ScalarOperand& scalar : scalars) {
    text += "  const compute_t " + scalar.name + " = table.scalar[" +
            (scalar.values.size() == 1
                 ? number(shared++)
                 : "t * " + number(shape.scalars) + " + " + number(own++)) +
            "];\n";
  }
  return text;
}

std::string loads_text(const std::vector<ListOperand>& operands, bool lanes) {
  std::string text;
  for (const ListOperand& operand : operands) {
    if (operand.is_single) {
      continue;
    }
    const std::string at = operand.name + "_at";
    text += "    value_t " + operand.name;
    if (operand.is_read) {
      text += " = " + (lanes ? load_lanes_text(operand.dtype, at, "i", "width")
                             : load_text(operand.dtype, at, "i"));
    }
    text += ";\n";
  }
  return text;
}

std::string stores_text(const std::vector<ListOperand>& operands,
                        DType compute,
                        bool lanes) {
  std::string text;
  for (const ListOperand& operand : operands) {
    if (operand.is_written && !operand.is_single) {
      const std::string at = operand.name + "_at";
      text +=
          "    " +
          (lanes
               ? store_lanes_text(operand.dtype, at, "i", "width", operand.name)
               : store_text(operand.dtype, compute, at, "i", operand.name)) +
          ";\n";
    }
  }
  return text;
}

std::string text_of(const MultiTensorLaunch& launch,
                    const std::string& statements,
                    const Shape& shape,
                    int group) {
  const bool shares = writes_shared_number(launch.lists);
  // Intel's compiler makes no vectors of a square root in a loop; plain
  // arithmetic it unrolls better by itself.
  const bool lanes = group == 1 && !shares && calls_function(statements) &&
                     have_lanes(launch.lists);
  std::string text = preamble(launch.compute, true, lanes) +
                     signature_text(shape, group) + kFindChunk +
                     places_text(launch.lists, shape) +
                     scalars_text(launch.scalars, shape);
  if (!shares && !lanes) {
    text += kIndependent;
  }
  text += "  for (size_t i = begin + get_local_id(0); i < end; i += " +
          number(lanes ? kValueLanes : group) + ") {\n" +
          (lanes ? "    const int width = (int)(end - i);\n" : "");
  text += loads_text(launch.lists, lanes) + statements +
          stores_text(launch.lists, launch.compute, lanes);
  return text + "  }\n}\n";
}

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
  use += launch.has_many_slots ? 'm' : 'f';
  const Key key{device.index(), use, dtypes, launch.compute};
  return *kernels->find(key, [&] {
    return &build_multi_tensor(device, name, statements, launch);
  });
}

// The table as the kernel's struct lays it out: scalars first, for they may be
// doubles.
std::vector<unsigned char> bytes_of(const Batch& batch, const Shape& shape) {
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
  return bytes;
}

// The lists' places for tensor `t` as the table has them.
std::vector<uint32_t> places_of(const std::vector<ListOperand>& lists,
                                size_t t,
                                int slot_shift,
                                std::vector<cl_mem>& slots) {
  std::vector<uint32_t> places;
  for (const ListOperand& list : lists) {
    const BufferView& view = list.places[t];
    const auto slot = std::find(slots.begin(), slots.end(), view.memory);
    const auto index = static_cast<uint32_t>(slot - slots.begin());
    if (slot == slots.end()) {
      slots.push_back(view.memory);
    }
    places.push_back(index << slot_shift | static_cast<uint32_t>(view.offset));
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
                  const Shape& shape,
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
                              ? batch.slots[slot]
                              : batch.slots[0];
    runtime::bind_bytes(kernel.handle, index, &memory, sizeof(memory));
  }
  queue.launch(kernel, range(chunks * group, group));
  for (const void* address : batch.written) {
    queue.wrote(address);
  }
}

}  // namespace

std::optional<BufferView> place_of(const Tensor& tensor) {
  const BufferView view = arg(tensor);
  if (tensor.numel() > 0 &&
      (view.offset >= (1u << kFewSlotsShift) || !fits_int32(tensor.numel()))) {
    return std::nullopt;
  }
  return view;
}

bool may_have_many_slots(const runtime::Device& device,
                         const std::vector<ListOperand>& lists) {
  const auto is_near = [](const BufferView& place) {
    return place.offset < (1u << kManySlotsShift);
  };
  return !device.is_cpu() &&
         std::all_of(lists.begin(), lists.end(), [&](const ListOperand& list) {
           return std::all_of(list.places.begin(), list.places.end(), is_near);
         });
}

runtime::Kernel& build_multi_tensor(runtime::Device& device,
                                    const std::string& name,
                                    const std::string& statements,
                                    const MultiTensorLaunch& launch) {
  const std::string text =
      text_of(launch, statements, shape_of(launch), group_size(device));
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
      list.places.push_back(*place);
    }
    launch.lists.push_back(std::move(list));
  }
  runtime::Queue& queue = queue_of(first[0]);
  launch.has_many_slots = may_have_many_slots(queue.device(), launch.lists);
  runtime::Kernel& kernel =
      find_kernel(queue.device(), name, statements, launch);
  queue.flush_pending();
  launch_multi_tensor(queue, kernel, launch);
  return true;
}

void launch_multi_tensor(runtime::Queue& queue,
                         runtime::Kernel& kernel,
                         const MultiTensorLaunch& launch) {
  const Shape shape = shape_of(launch);
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
    std::vector<cl_mem> slots = batch.slots;
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
  }
  flush();
}

}  // namespace torch_opencl::ops
