#include "multi_tensor_text.h"

#include "../common/kernel_text.h"

#include <algorithm>
#include <cctype>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

// OpenCL 1.2 guarantees 1024 bytes of kernel parameters.
constexpr size_t kParameterBytes = 1000;

bool calls_function(const std::string& statements) {
  for (size_t i = 1; i < statements.size(); ++i) {
    if (statements[i] == '(' && std::isalnum(statements[i - 1])) {
      return true;
    }
  }
  return false;
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
std::string signature_text(const TableShape& shape, int group) {
  std::string text = "typedef struct {\n";
  if (shape.all_scalars() > 0) {
    text += "  compute_t scalar[" + number(shape.all_scalars()) + "];\n";
  }
  text += "  uint first_chunk[" + number(shape.tensors + 1) +
          "];\n  uint elements[" + number(shape.tensors) + "];\n  uint place[" +
          number(shape.tensors * shape.operands) + "];\n";
  if (shape.windows > 0) {
    text += "  uint window[" + number(shape.windows) + "];\n";
  }
  text += "} table_t;\n";
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
                        const TableShape& shape) {
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
    const std::string shift = number(shape.slot_shift);
    text += "m" + number(shape.slots - 1) + ") + (place & " +
            number((1 << shape.slot_shift) - 1) + ")" +
            (shape.windows > 0 ? " + ((size_t)table.window[place >> " + shift +
                                     "] << " + shift + ")"
                               : "") +
            ";\n";
    if (operands[k].is_single && operands[k].is_read) {
      text += "  const compute_t " + name + " = " +
              load_text(operands[k].dtype, name + "_at", "0") + ";\n";
    }
  }
  return text;
}

std::string scalars_text(const std::vector<ScalarOperand>& scalars,
                         const TableShape& shape) {
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

}  // namespace

TableShape table_shape(const MultiTensorLaunch& launch) {
  TableShape shape{};
  shape.operands = static_cast<int>(launch.lists.size());
  shape.is_double = launch.compute == DType::kFloat64;
  for (const ScalarOperand& scalar : launch.scalars) {
    ++(scalar.values.size() == 1 ? shape.shared_scalars : shape.scalars);
  }
  switch (launch.slots) {
    case Slots::kFew:
      shape.slots = kFewSlots;
      shape.slot_shift = kFewSlotsShift;
      break;
    case Slots::kMany:
      shape.slots = kManySlots;
      shape.slot_shift = kManySlotsShift;
      break;
    case Slots::kFar:
      shape.slots = shape.windows = kFarSlots;
      shape.slot_shift = kFarSlotsShift;
  }
  const size_t fixed = shape.slots * sizeof(cl_mem) +
                       (4 + shape.windows) * sizeof(uint32_t) + 8 +
                       shape.shared_scalars * shape.scalar_bytes();
  const size_t each = sizeof(uint32_t) * (2 + shape.operands) +
                      shape.scalar_bytes() * shape.scalars;
  shape.tensors = static_cast<int>((kParameterBytes - fixed) / each);
  return shape;
}

std::string multi_tensor_text(const MultiTensorLaunch& launch,
                              const std::string& statements,
                              const TableShape& shape,
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

}  // namespace torch_opencl::ops
