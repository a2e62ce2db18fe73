#include "epilogue_text.h"

#include "../../cpp/runtime/growing_table.h"
#include "../common/kernel_text.h"

#include <string>
#include <vector>

namespace torch_opencl::ops {
namespace {

struct EpilogueKeyHash {
  size_t operator()(const EpilogueKey& key) const {
    size_t hash = reinterpret_cast<uintptr_t>(key.source) ^
                  static_cast<size_t>(key.dtype) ^ key.step_count << 8;
    for (size_t i = 0; i < key.step_count; ++i) {
      uint64_t kinds = key.keeps[i];
      for (size_t k = 0; k < kMaxEpilogueOperands; ++k) {
        kinds = kinds << 6 | static_cast<uint64_t>(key.steps[i].kinds[k]) << 3 |
                key.steps[i].values[k];
      }
      const auto text =
          reinterpret_cast<uintptr_t>(key.steps[i].text.expression);
      hash = (hash ^ text ^ kinds << 24) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

std::string vector_of(DType dtype) {
  return dtype == DType::kFloat64 ? "double4" : "float4";
}

// What the kernel computed, or what is behind so many steps.
std::string value_name(size_t steps) {
  return "epilogue_value" + std::to_string(steps);
}

// To what a tensor in between would hold.
std::string rounded(DType dtype, const std::string& value) {
  return is_half(dtype) ? std::string("round_") + runtime::dtype_name(dtype) +
                              "(" + value + ")"
                        : value;
}

// The pieces of the text, over all operands and numbers in order.
struct Pieces {
  std::string parameters;   // of the kernel
  std::string values;       // parameters of the function: one element each
  std::string names;        // its arguments, where they are parameters
  std::string one;          // and of element `at`
  std::string four_values;  // parameters of the function of four
  std::string four;         // its arguments
  std::array<std::string, 4> lanes;  // the first function's, of one of the four
  std::string statements;
};

void add_number(Pieces& pieces, const std::string& name) {
  pieces.parameters += ", const compute_t " + name;
  pieces.values += ", const compute_t " + name;
  pieces.names += ", " + name;
  pieces.one += ", " + name;
  pieces.four_values += ", const compute_t " + name;
  pieces.four += ", " + name;
  for (std::string& lane : pieces.lanes) {
    lane += ", " + name;
  }
}

void add_operand(Pieces& pieces,
                 const std::string& name,
                 OperandKind kind,
                 DType dtype,
                 const std::string& vector) {
  const std::string type = runtime::dtype_name(dtype);
  const std::string pointer = "POINTER(" + name + ")";
  const auto load = [&](const std::string& index) {
    return "load_" + type + "(" + pointer + ", " + index + ")";
  };
  const bool is_same = kind == OperandKind::kSame;
  const bool is_channel = kind == OperandKind::kChannel;
  const bool is_vector = is_same || is_channel;
  const std::string stride = name + "_stride";
  pieces.parameters += ", CONST_TENSOR(storage_" + type + ", " + name + ")";
  if (is_channel) {
    pieces.parameters += ", const int " + stride;
  }
  pieces.values += ", const compute_t " + name;
  pieces.names += ", " + name;
  pieces.one += ", " + load(is_same      ? "at"
                            : is_channel ? "(channel) * " + stride
                                         : "0");
  pieces.four_values += std::string(", const ") +
                        (is_vector ? vector + " " : "compute_t ") + name;
  if (is_same && dtype == DType::kBool) {
    pieces.four += ", (" + vector + ")(";
    for (int i = 0; i < 4; ++i) {
      pieces.four += (i > 0 ? ", " : "") + load("(at) + " + std::to_string(i));
    }
    pieces.four += ")";
  } else if (is_same) {
    pieces.four += ", load4_" + type + "(" + pointer + " + (at))";
  } else if (is_channel) {
    pieces.four += ", (" + vector + ")(";
    for (int i = 0; i < 4; ++i) {
      pieces.four +=
          (i > 0 ? ", " : "") +
          load("((channel) + " + std::to_string(i) + " * (step)) * " + stride);
    }
    pieces.four += ")";
  } else {
    pieces.four += ", " + load("0");
  }
  for (size_t i = 0; i < 4; ++i) {
    pieces.lanes[i] +=
        ", " + name + (is_vector ? std::string(".") + "xyzw"[i] : "");
  }
}

Pieces pieces_of(const EpilogueKey& key) {
  Pieces pieces;
  int count = 0;
  const auto next = [&count] { return "epilogue_" + std::to_string(count++); };
  for (size_t i = 0; i < key.step_count; ++i) {
    const EpilogueKey::Step& step = key.steps[i];
    std::string constants;
    const auto constant = [&constants](const std::string& name,
                                       const std::string& value) {
      constants += "const compute_t " + name + " = " + value + ";\n";
    };
    size_t k = 0;
    for (const std::string& input : split_names(step.text.inputs)) {
      const OperandKind kind = step.kinds[k++];
      if (kind == OperandKind::kValue) {
        constant(input, value_name(step.values[k - 1]));
        continue;
      }
      const std::string name = next();
      constant(input, name);
      if (kind == OperandKind::kNumber) {
        add_number(pieces, name);
      } else {
        add_operand(
            pieces, name, kind, step.dtypes[k - 1], vector_of(key.dtype));
      }
    }
    for (const std::string& scalar : split_names(step.text.scalars)) {
      const std::string name = next();
      constant(scalar, name);
      add_number(pieces, name);
    }
    const std::string value = value_name(i + 1);
    pieces.statements += "compute_t " + value + ";\n{\n" + constants + value +
                         " = (" + step.text.expression + ");\n}\n" + value +
                         " = " + rounded(key.dtype, value) + ";\n";
  }
  return pieces;
}

std::string function_text(const std::string& declaration,
                          const std::string& body) {
  return "inline " + declaration + " {\n" + body + "}\n";
}

// The values that somebody holds, which are written beside the result.
std::vector<std::string> kept_values(const EpilogueKey& key) {
  std::vector<std::string> result;
  for (size_t value = 0; value < key.step_count; ++value) {
    if (key.keeps[value]) {
      result.push_back(std::to_string(value));
    }
  }
  return result;
}

// One element: its values, which the functions that store call.
std::string values_text(const EpilogueKey& key, const Pieces& pieces) {
  std::string outputs, kept;
  for (const std::string& value : kept_values(key)) {
    outputs += ", compute_t *kept_" + value;
    kept += "*kept_" + value + " = epilogue_value" + value + ";\n";
  }
  return function_text(
      "compute_t epilogue_values(const compute_t value" + pieces.values +
          outputs + ")",
      "const compute_t epilogue_value0 = " + rounded(key.dtype, "value") +
          ";\n" + pieces.statements + kept + "return " +
          value_name(key.step_count) + ";\n");
}

std::string one_text(const EpilogueKey& key, const Pieces& pieces) {
  const std::string type = runtime::dtype_name(key.dtype);
  const std::string store = "store_" + type;
  std::string outputs, declared, addresses, stores;
  for (const std::string& value : kept_values(key)) {
    const std::string kept = "kept_" + value;
    outputs += ", global storage_" + type + " *" + kept + "_at";
    declared += "compute_t " + kept + ";\n";
    addresses += ", &" + kept;
    stores += store + "(" + kept + "_at, at, " + kept + ");\n";
  }
  return function_text(
      "compute_t epilogue(const compute_t value, const size_t at" +
          pieces.values + outputs + ")",
      declared + "const compute_t result = epilogue_values(value" +
          pieces.names + addresses + ");\n" + stores + "return result;\n");
}

std::string four_text(const EpilogueKey& key, const Pieces& pieces) {
  const std::string vector = vector_of(key.dtype);
  const std::string type = runtime::dtype_name(key.dtype);
  const std::string store = "store_" + type;
  std::string outputs, declared, stores;
  for (const std::string& value : kept_values(key)) {
    const std::string kept = "kept_" + value;
    outputs += ", global storage_" + type + " *" + kept + "_at";
    declared += "compute_t " + kept + "_x, " + kept + "_y, " + kept + "_z, " +
                kept + "_w;\n";
    if (is_half(key.dtype)) {
      for (size_t i = 0; i < 4; ++i) {
        stores += store + "(" + kept + "_at, at + " + std::to_string(i) + ", " +
                  kept + "_" + "xyzw"[i] + ");\n";
      }
    } else {
      stores += "*(global " + vector + " *)(" + kept + "_at + at) = (" +
                vector + ")(" + kept + "_x, " + kept + "_y, " + kept + "_z, " +
                kept + "_w);\n";
    }
  }
  std::string lanes;
  for (size_t i = 0; i < 4; ++i) {
    lanes += std::string(i > 0 ? ", " : "") + "epilogue_values(value." +
             "xyzw"[i] + pieces.lanes[i];
    for (const std::string& value : kept_values(key)) {
      lanes += ", &kept_" + value + "_" + "xyzw"[i];
    }
    lanes += ")";
  }
  return function_text(vector + " epilogue_four(const " + vector +
                           " value, const size_t at" + pieces.four_values +
                           outputs + ")",
                       declared + "const " + vector + " result = (" + vector +
                           ")(" + lanes + ");\n" + stores + "return result;\n");
}

// What stands ahead of the kernel's text.
std::string text_of(const EpilogueKey& key) {
  const Pieces pieces = pieces_of(key);
  bool uses_math = false;
  for (size_t i = 0; i < key.step_count; ++i) {
    uses_math |= key.steps[i].text.uses_math;
  }
  const std::string type = runtime::dtype_name(key.dtype);
  std::string parameters, kept;
  for (const std::string& value : kept_values(key)) {
    parameters += ", TENSOR(storage_" + type + ", kept_" + value + ")";
    kept += ", POINTER(kept_" + value + ")";
  }
  const std::string half = is_half(key.dtype)
                               ? std::string("#define COMMON_HALF ") +
                                     runtime::dtype_name(key.dtype) + "\n"
                               : "";
  // The kernel's build has a define of the dtype, too.
  return half + "#undef DTYPE\n" + preamble(key.dtype, uses_math) +
         "#define HAS_EPILOGUE 1\n#define EPILOGUE_PARAMETERS " +
         pieces.parameters + parameters +
         "\n#define EPILOGUE(value, at, channel) epilogue(value, at" +
         pieces.one + kept +
         ")\n#define EPILOGUE_FOUR(value, at, channel, step) "
         "epilogue_four(value, at" +
         pieces.four + kept + ")\n" + values_text(key, pieces) +
         one_text(key, pieces) + four_text(key, pieces);
}

}  // namespace

const aten::KernelSource& source_with_epilogue(const EpilogueKey& key) {
  struct Source {
    std::string text;
    aten::KernelSource source;
  };
  static auto* sources =
      new runtime::GrowingTable<EpilogueKey, const Source*, EpilogueKeyHash>();
  const auto make = [&key] {
    auto* made = new Source{text_of(key) + key.source->text, {}};
    made->source = {key.source->name, made->text.c_str()};
    return made;
  };
  return sources->find(key, make)->source;
}

}  // namespace torch_opencl::ops
