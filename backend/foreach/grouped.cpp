#include "grouped.h"

#include "../../cpp/aten/launch.h"
#include "../common/kernel_text.h"

#include <cctype>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// OpenCL 1.2 guarantees 1024 bytes of kernel parameters.
constexpr size_t kParameterBytes = 1000;
constexpr int kSlots = 8;
constexpr int kSlotShift = 29;

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
};

struct Shape {
  int tensors;  // at most, in a batch
  int operands;
  int scalars;
  bool is_double;

  size_t words() const { return (tensors + 1) + tensors + tensors * operands; }
};

Shape shape_of(int operands, int scalars, bool is_double) {
  const int scalar_words = is_double ? 2 : 1;
  const size_t fixed = kSlots * sizeof(cl_mem) + 4 * sizeof(uint32_t) + 8;
  const size_t each =
      sizeof(uint32_t) * (2 + operands + scalar_words * scalars);
  return {static_cast<int>((kParameterBytes - fixed) / each),
          operands,
          scalars,
          is_double};
}

std::string number(int value) {
  return std::to_string(value);
}

std::string text_of(const std::string& statements,
                    const std::vector<GroupedOperand>& operands,
                    const std::vector<GroupedScalar>& scalars,
                    const std::vector<DType>& dtypes,
                    const Shape& shape,
                    DType compute,
                    int group,
                    int chunk) {
  // Whoever writes a number that all share does so element by element.
  const bool shares = std::any_of(
      operands.begin(), operands.end(), [](const GroupedOperand& operand) {
        return operand.is_single && operand.is_written;
      });
  // Intel's compiler makes no vectors of a square root in a loop; plain
  // arithmetic it unrolls better by itself.
  bool lanes = group == 1 && !shares && calls_function(statements);
  for (size_t k = 0; k < operands.size(); ++k) {
    lanes &= operands[k].is_single || has_lanes(dtypes[k]);
  }
  std::string text = preamble(compute, true, lanes);
  text += "typedef struct {\n";
  if (shape.scalars > 0) {
    text +=
        "  compute_t scalar[" + number(shape.tensors * shape.scalars) + "];\n";
  }
  text += "  uint first_chunk[" + number(shape.tensors + 1) +
          "];\n  uint elements[" + number(shape.tensors) + "];\n  uint place[" +
          number(shape.tensors * shape.operands) + "];\n} table_t;\n";
  text += "kernel __attribute__((reqd_work_group_size(" + number(group) +
          ", 1, 1))) void grouped(const table_t table";
  for (int slot = 0; slot < kSlots; ++slot) {
    text += ", global uchar *m" + number(slot);
  }
  text +=
      ") {\n  const uint chunk = get_group_id(0);\n  int t = 0;\n"
      "  while (table.first_chunk[t + 1] <= chunk) ++t;\n"
      "  const size_t begin = (size_t)(chunk - table.first_chunk[t]) * " +
      number(chunk) + ";\n  const size_t end = min(begin + " + number(chunk) +
      ", (size_t)table.elements[t]);\n  uint place;\n";
  for (size_t k = 0; k < operands.size(); ++k) {
    const std::string name = operands[k].name;
    const std::string type =
        "storage_" + std::string(runtime::dtype_name(dtypes[k]));
    text += "  place = table.place[t * " + number(shape.operands) + " + " +
            number(k) + "];\n  global " + type + " *" + name +
            "_at = (global " + type + " *)(";
    for (int slot = 0; slot < kSlots - 1; ++slot) {
      text += "place >> " + number(kSlotShift) + " == " + number(slot) +
              " ? m" + number(slot) + " : ";
    }
    text += "m" + number(kSlots - 1) + ") + (place & " +
            number((1 << kSlotShift) - 1) + ");\n";
    if (operands[k].is_single && operands[k].is_read) {
      text += "  const compute_t " + name + " = " +
              load_text(dtypes[k], name + "_at", "0") + ";\n";
    }
  }
  for (size_t s = 0; s < scalars.size(); ++s) {
    text += "  const compute_t " + std::string(scalars[s].name) +
            " = table.scalar[t * " + number(shape.scalars) + " + " + number(s) +
            "];\n";
  }
  if (!shares && !lanes) {
    text += kIndependent;
  }
  text += "  for (size_t i = begin + get_local_id(0); i < end; i += " +
          number(lanes ? kValueLanes : group) + ") {\n" +
          (lanes ? "    const int width = (int)(end - i);\n" : "");
  for (size_t k = 0; k < operands.size(); ++k) {
    if (operands[k].is_single) {
      continue;
    }
    const std::string name = operands[k].name;
    text += "    value_t " + name;
    if (operands[k].is_read) {
      text += " = " +
              (lanes ? load_lanes_text(dtypes[k], name + "_at", "i", "width")
                     : load_text(dtypes[k], name + "_at", "i"));
    }
    text += ";\n";
  }
  text += statements;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (operands[k].is_written && !operands[k].is_single) {
      const std::string name = operands[k].name;
      const std::string at = name + "_at";
      text += "    " +
              (lanes ? store_lanes_text(dtypes[k], at, "i", "width", name)
                     : store_text(dtypes[k], compute, at, "i", name)) +
              ";\n";
    }
  }
  return text + "  }\n}\n";
}

using Key = std::tuple<int, std::string, std::vector<DType>, DType>;

runtime::Kernel& kernel_of(const char* name,
                           const std::string& statements,
                           const std::vector<GroupedOperand>& operands,
                           const std::vector<GroupedScalar>& scalars,
                           const std::vector<DType>& dtypes,
                           const Shape& shape,
                           DType compute,
                           int group,
                           int chunk,
                           runtime::Device& device) {
  static std::shared_mutex mutex;
  static auto* kernels = new std::map<Key, runtime::Kernel*>();
  // In-place forms read what they write: the operands' use is part of the key.
  std::string use = statements;
  for (const GroupedOperand& operand : operands) {
    use += operand.name;
    use += static_cast<char>('0' + operand.is_read + 2 * operand.is_written +
                             4 * operand.is_single);
  }
  const Key key{device.index(), use, dtypes, compute};
  {
    const std::shared_lock lock(mutex);
    const auto found = kernels->find(key);
    if (found != kernels->end()) {
      return *found->second;
    }
  }
  runtime::Kernel& kernel = device.programs().get_generated(
      std::string("foreach_") + name,
      text_of(
          statements, operands, scalars, dtypes, shape, compute, group, chunk),
      "grouped");
  const std::unique_lock lock(mutex);
  kernels->emplace(key, &kernel);
  return kernel;
}

// The table as the kernel's struct lays it out: scalars first, for they may be
// doubles.
std::vector<unsigned char> bytes_of(const Batch& batch, const Shape& shape) {
  const size_t scalar_size = shape.is_double ? 8 : 4;
  const size_t scalars = shape.tensors * shape.scalars * scalar_size;
  size_t size = scalars + shape.words() * sizeof(uint32_t);
  if (shape.is_double && shape.scalars > 0) {
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

// The operands' places for tensor `t`; empty where one cannot be named.
std::vector<uint32_t> places_of(const std::vector<GroupedOperand>& operands,
                                size_t t,
                                std::vector<cl_mem>& slots) {
  std::vector<uint32_t> places;
  for (const GroupedOperand& operand : operands) {
    const BufferView view = arg(operand.tensors[t]);
    const auto slot = std::find(slots.begin(), slots.end(), view.memory);
    if (slot == slots.end()) {
      slots.push_back(view.memory);
    }
    const auto index = static_cast<uint32_t>(
        std::find(slots.begin(), slots.end(), view.memory) - slots.begin());
    places.push_back(index << kSlotShift | static_cast<uint32_t>(view.offset));
  }
  return places;
}

bool can_be_named(const std::vector<GroupedOperand>& operands, size_t count) {
  for (const GroupedOperand& operand : operands) {
    for (size_t t = 0; t < count; ++t) {
      const Tensor& tensor = operand.tensors[t];
      if (tensor.numel() > 0 && (arg(tensor).offset >= (1u << kSlotShift) ||
                                 !fits_int32(tensor.numel()))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool grouped(const char* name,
             const std::string& statements,
             const std::vector<GroupedOperand>& operands,
             const std::vector<GroupedScalar>& scalars) {
  const at::TensorList first = operands.front().tensors;
  const size_t count = first.size();
  if (!can_be_named(operands, count)) {
    return false;
  }
  const DType compute = dtype_of(compute_type(first[0].scalar_type()));
  std::vector<DType> dtypes;
  for (const GroupedOperand& operand : operands) {
    dtypes.push_back(dtype_of(operand.tensors[0]));
  }
  const Shape shape = shape_of(static_cast<int>(operands.size()),
                               static_cast<int>(scalars.size()),
                               compute == DType::kFloat64);
  runtime::Queue& queue = queue_of(first[0]);
  const bool is_cpu = aten::device_of(first[0]).is_cpu();
  // On CPUs one work-item a chunk: each gets its own copy of the table, which
  // would make the addresses of a vector of work-items look unrelated.
  const int group = is_cpu ? 1 : 64;
  const int chunk = is_cpu ? 8192 : 2048;
  runtime::Kernel& kernel = kernel_of(name,
                                      statements,
                                      operands,
                                      scalars,
                                      dtypes,
                                      shape,
                                      compute,
                                      group,
                                      chunk,
                                      queue.device());
  Batch batch;
  const auto flush = [&] {
    if (batch.elements.empty()) {
      return;
    }
    const size_t chunks = batch.first_chunk.back();
    const std::vector<unsigned char> bytes = bytes_of(batch, shape);
    const std::lock_guard lock(kernel.mutex);
    cl_uint index = 0;
    runtime::bind_bytes(kernel.handle, index, bytes.data(), bytes.size());
    for (int slot = 0; slot < kSlots; ++slot) {
      const cl_mem memory = slot < static_cast<int>(batch.slots.size())
                                ? batch.slots[slot]
                                : batch.slots[0];
      runtime::bind_bytes(kernel.handle, index, &memory, sizeof(memory));
    }
    queue.launch(kernel, range(chunks * group, group));
    batch = Batch();
  };
  for (size_t t = 0; t < count; ++t) {
    const int64_t elements = first[t].numel();
    if (elements == 0) {
      continue;
    }
    std::vector<cl_mem> slots = batch.slots;
    std::vector<uint32_t> places = places_of(operands, t, slots);
    if (slots.size() > kSlots ||
        batch.elements.size() == static_cast<size_t>(shape.tensors)) {
      flush();
      slots.clear();
      places = places_of(operands, t, slots);
    }
    batch.slots = std::move(slots);
    batch.places.insert(batch.places.end(), places.begin(), places.end());
    batch.elements.push_back(static_cast<uint32_t>(elements));
    batch.first_chunk.push_back(
        batch.first_chunk.back() +
        static_cast<uint32_t>((elements + chunk - 1) / chunk));
    for (const GroupedScalar& scalar : scalars) {
      batch.scalars.push_back(scalar.values.size() == 1 ? scalar.values[0]
                                                        : scalar.values[t]);
    }
  }
  flush();
  return true;
}

}  // namespace torch_opencl::ops
