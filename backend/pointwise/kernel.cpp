#include "kernel.h"

#include "kernel_sources.h"

#include <vector>

namespace torch_opencl::ops {

bool uses_lanes(const PointwiseKey& key) {
  if (key.layout == PointwiseLayout::kJoinedChunks) {
    return true;
  }
  bool uses =
      key.op->is_vectorizable && key.compute == DType::kFloat32 &&
      (key.layout == PointwiseLayout::kChunks ||
       (key.layout == PointwiseLayout::kStridedChunks && key.inner[0] == 1));
  for (int i = 0; i < key.operands; ++i) {
    const bool is_condition = i >= key.outputs && key.dtypes[i] == DType::kBool;
    const bool is_every_second = i >= key.outputs && key.inner[i] == 2 &&
                                 key.dtypes[i] == DType::kFloat32;
    uses &= !(key.rounded >> i & 1);
    uses &= (key.host_operands >> i & 1) != 0 || is_every_second ||
            ((has_lanes(key.dtypes[i]) || is_condition) && key.inner[i] <= 1);
  }
  return uses;
}

namespace {

const char* expression_of(const PointwiseKey& key) {
  const PointwiseOp& op = *key.op;
  if (is_complex(key.compute) && *op.complex_expression) {
    return op.complex_expression;
  }
  if (key.compute == DType::kBool && *op.bool_expression) {
    return op.bool_expression;
  }
  if (!is_floating(key.compute) && *op.integral_expression) {
    return op.integral_expression;
  }
  return op.expression;
}

std::string offset_name(int operand) {
  return "offset" + std::to_string(operand);
}

// Names of all operands: outputs first.
std::vector<std::string> operand_names(const PointwiseOp& op) {
  std::vector<std::string> names{"result"};
  if (keeps_dtypes(op)) {
    names = split_names(op.outputs);
  }
  for (std::string& name : split_names(op.inputs)) {
    names.push_back(std::move(name));
  }
  return names;
}

// The type of operand i in expressions.
std::string value_type(const PointwiseKey& key, int i) {
  return keeps_dtypes(*key.op)
             ? std::string("compute_") + runtime::dtype_name(key.dtypes[i])
             : "compute_t";
}

// `value`, rounded to the common dtype where operand i has another.
std::string rounded_text(const PointwiseKey& key,
                         int i,
                         const std::string& value) {
  return key.rounded >> i & 1
             ? std::string("round_") + runtime::dtype_name(key.common) + "(" +
                   value + ")"
             : value;
}

// Statements that report what operands must not be. Lanes behind the last
// element repeat it.
std::string reports_text(const PointwiseKey& key, bool lanes) {
  std::string text;
  if (reports_zeros(key)) {
    const std::string divisor = operand_names(*key.op)[key.operands - 1];
    text = "if (" + divisor +
           " == 0) write_report(record, op, REPORT_ZERO_DIVISION, 0, 0, 0);\n";
  }
  int number = 0;
  for (const std::string& name : split_names(key.op->probabilities)) {
    text += std::string("if (") + (lanes ? "any" : "") + "(!(" + name +
            " >= 0 && " + name +
            " <= 1))) write_report(record, op, REPORT_PROBABILITY, " +
            std::to_string(number++) + ", 0, 0);\n";
  }
  return text;
}

// The statements for one element, its operands at `index(i)`.
template <class Index>
std::string element_text(const PointwiseKey& key, const Index& index) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text;
  for (int i = key.outputs; i < key.operands; ++i) {
    if (!(key.host_operands >> i & 1)) {
      if (is_complex(key.compute) && !keeps_dtypes(*key.op)) {
        text +=
            "const compute_t " + names[i] + " = " +
            load_complex_text(
                key.dtypes[i], key.compute, "p" + std::to_string(i), index(i)) +
            ";\n";
        continue;
      }
      text += "const " + value_type(key, i) + " " + names[i] + " = " +
              rounded_text(key,
                           i,
                           load_text(key.dtypes[i],
                                     "p" + std::to_string(i),
                                     index(i),
                                     value_type(key, i))) +
              ";\n";
    }
  }
  text += reports_text(key, /*lanes=*/false);
  if (!keeps_dtypes(*key.op)) {
    std::string value = rounded_text(key, 0, expression_of(key));
    if (key.dtypes[0] != key.compute && key.dtypes[0] != DType::kBool &&
        !is_floating(key.compute) && !is_complex(key.compute)) {
      if (key.compute == DType::kBool) {
        value = "(" + value + ") != 0";  // a sum may be 2
      } else {
        // Integers wrap around in the common dtype: compilers, to whom that is
        // undefined, would compute in a wider output's.
        text += "const volatile compute_t wrapped = " + value + ";\n";
        value = "wrapped";
      }
    }
    return text +
           (key.dtypes[0] == DType::kBool && !is_complex(key.compute)
                ? "store_condition(p0, " + index(0) + ", (" + value + ") != 0)"
                : store_text(
                      key.dtypes[0], key.compute, "p0", index(0), value)) +
           ";\n";
  }
  for (int i = 0; i < key.outputs; ++i) {
    text += value_type(key, i) + " " + names[i] + " = 0;\n";
  }
  text += std::string("{\n") + expression_of(key) + ";\n}\n";
  for (int i = 0; i < key.outputs; ++i) {
    text += store_text(key.dtypes[i],
                       key.dtypes[i],
                       "p" + std::to_string(i),
                       index(i),
                       names[i]) +
            ";\n";
  }
  return text;
}

// The statements for the vector of elements `i` to `end` - 1 or fewer.
template <class Index>
std::string lanes_text(const PointwiseKey& key, const Index& index) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text = "const int width = (int)(end - i);\n";
  for (int i = 1; i < key.operands; ++i) {
    text += "const value_t " + names[i] + " = ";
    if (key.host_operands >> i & 1) {
      text += names[i] + "_number;\n";
      continue;
    }
    const std::string pointer = "p" + std::to_string(i);
    const bool is_strided_run = key.layout == PointwiseLayout::kStridedChunks;
    const bool is_joined = key.layout == PointwiseLayout::kJoinedChunks;
    if (is_joined && key.inner[i] == kRepeatedRun) {
      text += "vload16(0, " + names[i] + "_run + sizes.s0 - left)";
    } else if (is_joined && key.inner[i] == 0) {
      text += "select((value_t)" + names[i] + "_now, (value_t)" + names[i] +
              "_next, is_next)";
    } else if (is_strided_run && key.inner[i] == 0) {
      text += load_text(key.dtypes[i], pointer, index(i));
    } else if (is_strided_run && key.inner[i] == 2) {
      text += "load_every_second(" + pointer + " + (" + index(i) + "), width)";
    } else {
      text += load_lanes_text(key.dtypes[i], pointer, index(i), "width");
    }
    text += ";\n";
  }
  text += reports_text(key, /*lanes=*/true);
  if (key.non_temporal) {
    return text + "STORE_SOME_NT(p0 + (" + index(0) + "), " +
           expression_of(key) + ", width);\n";
  }
  return text +
         store_lanes_text(
             key.dtypes[0], "p0", index(0), "width", expression_of(key)) +
         ";\n";
}

// The loop over elements `begin` to `end` - 1.
template <class Index>
std::string loop_text(const PointwiseKey& key,
                      const char* type,
                      const Index& index) {
  const bool lanes = uses_lanes(key);
  return (lanes ? "" : kIndependent) + std::string("for (") + type +
         " i = begin; i < end; i += " +
         std::to_string(lanes ? kValueLanes : 1) + ") {\n" +
         (lanes ? lanes_text(key, index) : element_text(key, index)) + "}\n";
}

// Every operand's offset of the element (or run) numbered `linear`.
std::string operand_offsets_text(const PointwiseKey& key, int first) {
  std::vector<Walk> walks;
  for (int i = 0; i < key.operands; ++i) {
    if (!(key.host_operands >> i & 1)) {
      walks.push_back({offset_name(i), "strides" + std::to_string(i)});
    }
  }
  return offsets_text(walks, "sizes", first, key.dimensions);
}

// Vectors of contiguous operands run on into the next run, for which the others
// have a number or a run that many share, kept with what follows it. Vectors
// hold elements of two runs at most.
std::string joined_text(const PointwiseKey& key) {
  const std::vector<std::string> names = operand_names(*key.op);
  const std::string lanes = std::to_string(kValueLanes);
  std::string declarations;
  std::string loads;
  std::vector<Walk> walks;
  for (int i = 1; i < key.operands; ++i) {
    const bool is_repeated = key.inner[i] == kRepeatedRun;
    if ((key.host_operands >> i & 1) || (key.inner[i] != 0 && !is_repeated)) {
      continue;
    }
    const std::string now = names[i] + "_now", next = names[i] + "_next",
                      run = names[i] + "_run", offset = offset_name(i);
    const auto load = [&](const std::string& index) {
      return load_text(key.dtypes[i], "p" + std::to_string(i), index);
    };
    const auto fill = [&](const std::string& count,
                          const std::string& place,
                          const std::string& from) {
      return "for (int l = 0; l < " + count + "; ++l) " + run + "[" + place +
             "l] = " + load(from + " + l") + ";\n}\n";
    };
    walks.push_back({offset, "strides" + std::to_string(i)});
    if (is_repeated) {
      // `now` and `next` are where the two came from.
      declarations += "float " + run + "[" +
                      std::to_string(kLongestRun + kValueLanes) +
                      "];\nindex_t " + now + " = -1, " + next + " = -1;\n";
      loads += "if (" + next + " != " + now + ") {\n" + now + " = " + next +
               ";\n" + fill("sizes.s0", "", now) + "if (" + offset +
               " != " + next + ") {\n" + next + " = " + offset + ";\n" +
               fill(lanes, "sizes.s0 + ", next);
    } else {
      declarations += "float " + now + " = 0, " + next + " = 0;\n";
      loads += now + " = " + next + ";\n" + next + " = " + load(offset) + ";\n";
    }
  }
  const std::string step = "{\ncount_t linear = min(run, runs - 1);\n" +
                           offsets_text(walks, "sizes", 1, key.dimensions) +
                           loads + "}\n";
  return "const uint begin = get_global_id(0) * chunk;\n"
         "const uint end = min(count, begin + chunk);\n"
         "uint run = begin / (uint)sizes.s0;\n"
         "int left = sizes.s0 - (int)(begin - run * (uint)sizes.s0);\n" +
         declarations + step + "++run;\n" + step +
         "for (uint i = begin; i < end; i += " + lanes +
         ") {\n"
         "const int16 is_next = lane_numbers >= left;\n" +
         lanes_text(key, [](int) { return std::string("i"); }) +
         "left -= " + lanes +
         ";\nif (left <= 0) {\nleft += sizes.s0;\n++run;\n" + step + "}\n}\n";
}

std::string parameters_text(const PointwiseKey& key) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text =
      may_report(key) ? "global report_t *record, const int op, " : "";
  for (int i = 0; i < key.operands; ++i) {
    const std::string number = std::to_string(i);
    if (key.host_operands >> i & 1) {
      text += "const " + value_type(key, i) + " " + names[i] +
              (uses_lanes(key) ? "_number, " : ", ");
      continue;
    }
    text += std::string(i < key.outputs ? "TENSOR" : "CONST_TENSOR") +
            "(storage_" + runtime::dtype_name(key.dtypes[i]) + ", t" + number +
            "), ";
    if (is_strided(key.layout)) {
      text += "const int16 strides" + number + ", ";
    }
  }
  for (const std::string& scalar : split_names(key.op->scalars)) {
    text += "const compute_t " + scalar + ", ";
  }
  if (is_strided(key.layout)) {
    text += "const int16 sizes, ";
  }
  return text + "const uint count, const uint chunk";
}

std::string body_text(const PointwiseKey& key) {
  const auto same = [](int) { return std::string("i"); };
  switch (key.layout) {
    case PointwiseLayout::kItems:
      // size_t, not uint: an index that may wrap keeps compilers from seeing
      // that neighbouring work-items touch neighbouring elements.
      return "const size_t i = get_global_id(0);\nif (i < count) {\n" +
             element_text(key, same) + "}\n";
    case PointwiseLayout::kChunks:
      return "const uint begin = get_global_id(0) * chunk;\n"
             "const uint end = min(count, begin + chunk);\n" +
             loop_text(key, "uint", same);
    case PointwiseLayout::kStridedItems:
      return "if (get_global_id(0) >= count) return;\n"
             "count_t linear = get_global_id(0);\n" +
             operand_offsets_text(key, 0) + element_text(key, offset_name);
    case PointwiseLayout::kJoinedChunks:
      return joined_text(key);
    case PointwiseLayout::kStridedChunks: {
      const auto index = [&key](int i) {
        const std::string step = "strides" + std::to_string(i) + ".s0";
        return offset_name(i) + (key.inner[i] == 0   ? ""
                                 : key.inner[i] == 1 ? " + i"
                                                     : " + i * " + step);
      };
      return "const uint parts = ((uint)sizes.s0 + chunk - 1) / chunk;\n"
             "for (uint run = get_global_id(0) * count;\n"
             "     run < (get_global_id(0) + 1) * count && run < runs;\n"
             "     ++run) {\n"
             "count_t linear = run / parts;\n"
             "const int begin = (run - linear * parts) * chunk;\n"
             "const int end = begin + min(sizes.s0 - begin, (int)chunk);\n" +
             operand_offsets_text(key, 1) +
             // Steps of vectors may end beyond the largest int.
             loop_text(key, uses_lanes(key) ? "uint" : "int", index) + "}\n";
    }
  }
  return "";
}

}  // namespace

std::string pointwise_text(const PointwiseKey& key) {
  std::string text = key.non_temporal ? "#define NON_TEMPORAL 1\n" : "";
  if (is_half(key.common)) {
    text += std::string("#define COMMON_HALF ") +
            runtime::dtype_name(key.common) + "\n";
  }
  const bool is_complex_kernel = is_complex(key.compute);
  text += preamble(
      key.compute,
      is_complex_kernel ? key.op->uses_complex_math : key.op->uses_math,
      uses_lanes(key));
  if (!is_complex_kernel && is_complex(key.dtypes[0])) {
    text += sources::complex.text;
  }
  text += "typedef int index_t;\ntypedef uint count_t;\n";
  if (key.layout == PointwiseLayout::kJoinedChunks) {
    text +=
        "constant int16 lane_numbers = "
        "(int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);\n";
  }
  text += key.op->preamble;
  text += "kernel __attribute__((reqd_work_group_size(" +
          std::to_string(is_element_wise(key.layout) ? kPointwiseGroup : 1) +
          ", 1, 1)))\nvoid pointwise(" + parameters_text(key);
  if (key.layout == PointwiseLayout::kStridedChunks ||
      key.layout == PointwiseLayout::kJoinedChunks) {
    text += ", const uint runs";
  }
  text += ") {\n";
  for (int i = 0; i < key.operands; ++i) {
    if (!(key.host_operands >> i & 1)) {
      const std::string number = std::to_string(i);
      text += std::string(i < key.outputs ? "" : "const ") + "global storage_" +
              runtime::dtype_name(key.dtypes[i]) + " *p" + number +
              " = POINTER(t" + number + ");\n";
    }
  }
  return text + body_text(key) + "}\n";
}

}  // namespace torch_opencl::ops
