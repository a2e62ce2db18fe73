#include "epilogue_text.h"

#include "../common/kernel_text.h"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

namespace torch_opencl::ops {
namespace {

struct EpilogueKeyHash {
  size_t operator()(const EpilogueKey& key) const {
    size_t hash = reinterpret_cast<uintptr_t>(key.source) ^
                  static_cast<size_t>(key.dtype) ^ key.step_count << 8;
    for (size_t i = 0; i < key.step_count; ++i) {
      uint64_t kinds = 0;
      for (const OperandKind kind : key.steps[i].kinds) {
        kinds = kinds << 4 | static_cast<uint64_t>(kind);
      }
      const auto text =
          reinterpret_cast<uintptr_t>(key.steps[i].text.expression);
      hash = (hash ^ text ^ kinds << 40) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

std::string vector_of(DType dtype) {
  return dtype == DType::kFloat64 ? "double4" : "float4";
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
  std::string one;          // its arguments: element `at`
  std::string four_values;  // parameters of the function of four
  std::string four;         // its arguments
  std::array<std::string, 4> lanes;  // the first function's, of one of the four
  std::string statements;
};

void add_number(Pieces& pieces, const std::string& name) {
  pieces.parameters += ", const compute_t " + name;
  pieces.values += ", const compute_t " + name;
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
  pieces.one += ", " + load(is_same      ? "at"
                            : is_channel ? "(channel) * " + stride
                                         : "0");
  pieces.four_values += std::string(", const ") +
                        (is_vector ? vector + " " : "compute_t ") + name;
  if (is_same) {
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
        constant(input, "epilogue_value");
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
    pieces.statements +=
        "{\ncompute_t epilogue_result;\n{\n" + constants +
        "epilogue_result = (" + step.text.expression +
        ");\n}\nepilogue_value = " + rounded(key.dtype, "epilogue_result") +
        ";\n}\n";
  }
  return pieces;
}

std::string function_text(const std::string& declaration,
                          const std::string& body) {
  return "inline " + declaration + " {\n" + body + "}\n";
}

// What stands ahead of the kernel's text.
std::string text_of(const EpilogueKey& key) {
  const Pieces pieces = pieces_of(key);
  bool uses_math = false;
  for (size_t i = 0; i < key.step_count; ++i) {
    uses_math |= key.steps[i].text.uses_math;
  }
  const std::string vector = vector_of(key.dtype);
  std::string lanes;
  for (size_t i = 0; i < 4; ++i) {
    lanes += std::string(i > 0 ? ", " : "") + "epilogue(value." + "xyzw"[i] +
             pieces.lanes[i] + ")";
  }
  const std::string half = is_half(key.dtype)
                               ? std::string("#define COMMON_HALF ") +
                                     runtime::dtype_name(key.dtype) + "\n"
                               : "";
  // The kernel's build has a define of the dtype, too.
  return half + "#undef DTYPE\n" + preamble(key.dtype, uses_math) +
         "#define HAS_EPILOGUE 1\n#define EPILOGUE_PARAMETERS " +
         pieces.parameters +
         "\n#define EPILOGUE(value, at, channel) epilogue(value" + pieces.one +
         ")\n#define EPILOGUE_FOUR(value, at, channel, step) "
         "epilogue_four(value" +
         pieces.four + ")\n" +
         function_text(
             "compute_t epilogue(compute_t epilogue_value" + pieces.values +
                 ")",
             "epilogue_value = " + rounded(key.dtype, "epilogue_value") +
                 ";\n" + pieces.statements + "return epilogue_value;\n") +
         function_text(vector + " epilogue_four(const " + vector + " value" +
                           pieces.four_values + ")",
                       "return (" + vector + ")(" + lanes + ");\n");
}

}  // namespace

bool EpilogueKey::Step::operator==(const Step& other) const {
  return text.expression == other.text.expression &&
         text.inputs == other.text.inputs && kinds == other.kinds &&
         dtypes == other.dtypes;
}

const aten::KernelSource& source_with_epilogue(const EpilogueKey& key) {
  struct Source {
    std::string text;
    aten::KernelSource source;
  };
  static std::shared_mutex mutex;
  static auto* sources = new std::
      unordered_map<EpilogueKey, std::unique_ptr<Source>, EpilogueKeyHash>();
  {
    const std::shared_lock lock(mutex);
    const auto found = sources->find(key);
    if (found != sources->end()) {
      return found->second->source;
    }
  }
  auto made = std::make_unique<Source>();
  made->text = text_of(key) + key.source->text;
  made->source = {key.source->name, made->text.c_str()};
  const std::unique_lock lock(mutex);
  return sources->emplace(key, std::move(made)).first->second->source;
}

}  // namespace torch_opencl::ops
