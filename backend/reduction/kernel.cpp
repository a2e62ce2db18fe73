#include "kernel_pieces.h"

#include "kernel_sources.h"

namespace torch_opencl::ops {

using runtime::dtype_name;

namespace {

// Of arrays of accumulators.
std::string fold_lanes_text(const ReductionKey& key) {
  return "for (int l = 0; l < LANES; ++l) {\n" +
         fold_text(key, "folded[l]", "lost[l]", "lanes[l]") +
         "lanes[l] = IDENTITY;\n}\nsince = 0;\n";
}

std::string last_fold_text(const ReductionKey& key) {
  return "for (int l = 0; l < LANES; ++l) {\n" +
         fold_text(key, "folded[l]", "lost[l]", "lanes[l]") +
         regain_text(key, "folded[l]", "lost[l]") + "}\n";
}

constexpr const char* kLanesText =
    "state_t lanes[LANES], folded[LANES], lost[LANES];\n"
    "for (int l = 0; l < LANES; ++l) lanes[l] = folded[l] = lost[l] = "
    "IDENTITY;\n"
    "int since = 0;\n";

// Walks of all inputs along reduced dimensions.
std::vector<Walk> reduced_walks(const ReductionKey& key, const char* offset) {
  std::vector<Walk> walks;
  for (int i = 0; i < key.input_count; ++i) {
    walks.push_back({numbered(offset, i), numbered("reduced_strides", i)});
  }
  return walks;
}

std::string inner_text(const ReductionKey& key) {
  const auto at = [&key](const std::string& element) {
    return [&key, element](int i) {
      return numbered("row_base", i) + " + " + element + " * " +
             lane_stride(key, "reduced_strides", i);
    };
  };
  std::string rows;
  for (int i = 0; i < key.input_count; ++i) {
    rows += numbered("row_base", i) + " += " + numbered("base", i) +
            " + (index_t)column * " + lane_stride(key, "reduced_strides", i) +
            ";\n";
  }
  return "for (count_t output = get_global_id(0) * (count_t)tile;\n"
         "     output < min(outputs, (count_t)(get_global_id(0) + 1) * tile);\n"
         "     ++output) {\n"
         "count_t linear = output;\n" +
         kept_text(key, true, 0) + kLanesText +
         "for (count_t r = begin; r < end;) {\n"
         "const count_t row = r / (count_t)reduced_sizes.s0;\n"
         "const count_t column = r - row * (count_t)reduced_sizes.s0;\n"
         "count_t linear = row;\n" +
         offsets_text(
             reduced_walks(key, "row_base"), "reduced_sizes", 1, key.reduced) +
         rows +
         "const int run = (int)min((count_t)BLOCK,\n"
         "    min((count_t)reduced_sizes.s0 - column, end - r));\n"
         "int i = 0;\n"
         "for (; i + LANES <= run; i += LANES)\n"
         "for (int l = 0; l < LANES; ++l) " +
         step_text(key, "lanes[l]", at("(i + l)"), "r + i + l") +
         "for (int l = 0; i < run; ++i, ++l) " +
         step_text(key, "lanes[l]", at("i"), "r + i") +
         "since += run;\nif (since >= BLOCK) {\n" + fold_lanes_text(key) +
         "}\nr += run;\n}\n" + last_fold_text(key) +
         tree_text(key, "folded", "LANES") +
         "const state_t state = folded[0];\n" + finish_text(key, key.is_split) +
         "}\n";
}

std::string outer_text(const ReductionKey& key) {
  const auto at = [&key](int i) {
    return numbered("at", i) + " + l * " + lane_stride(key, "kept_strides", i);
  };
  const auto lane_steps = [&](const std::string& width) {
    return "for (int l = 0; l < " + width + "; ++l) " +
           step_text(key, "lanes[l]", at, "r");
  };
  std::string write =
      "const state_t state = folded[l];\n"
      "const count_t output = first + l;\n" +
      finish_text(key, key.is_split);
  std::string columns, starts;
  for (int i = 0; i < key.input_count; ++i) {
    columns += numbered("base", i) + " += (index_t)column * " +
               lane_stride(key, "kept_strides", i) + ";\n";
    starts += numbered("at", i) + " += " + numbered("base", i) + ";\n";
  }
  for (int i = 0; i < key.output_count; ++i) {
    write += output_name(i) + "_at += " + output_name(i) + "_strides.s0;\n";
    columns += output_name(i) + "_at += (index_t)column * " + output_name(i) +
               "_strides.s0;\n";
  }
  return runs_text(key, "LANES") + columns + kLanesText +
         "for (count_t r = begin; r < end; ++r) {\ncount_t linear = r;\n" +
         offsets_text(
             reduced_walks(key, "at"), "reduced_sizes", 0, key.reduced) +
         starts + "if (width == LANES) {\n" + lane_steps("LANES") +
         "} else {\n" + lane_steps("width") +
         "}\nsince += LANES;\nif (since >= BLOCK) {\n" + fold_lanes_text(key) +
         "}\n}\n" + last_fold_text(key) +
         "for (int l = 0; l < width; ++l) {\n" + write + "}\n}\n";
}

// kGroup.
std::string group_text(const ReductionKey& key) {
  const auto at = [](int i) {
    return numbered("base", i) + " + " + numbered("at", i);
  };
  const bool shares = key.columns < kReductionGroup;
  const std::string text =
      "const uint column = get_local_id(0) % COLUMNS;\n"
      "const count_t output = get_group_id(0) * (count_t)COLUMNS + column;\n"
      "const bool is_inside = output < outputs;\n" +
      std::string(shares ? "" : "if (!is_inside) return;\n") +
      "count_t linear = is_inside ? output : outputs - 1;\n" +
      kept_text(key, true, 0) +
      "state_t lane = IDENTITY, folded = IDENTITY, lost = IDENTITY;\n"
      "const count_t block = BLOCK / LANES * SLICES;\n"
      "for (count_t first = begin + get_local_id(0) / COLUMNS; first < end;\n"
      "     first += block) {\n"
      "FOR_LOADS_AHEAD(count_t, r, first, min(end, first + block), SLICES,\n"
      "count_t linear = r;\n" +
      offsets_text(reduced_walks(key, "at"), "reduced_sizes", 0, key.reduced) +
      step_text(key, "lane", at, "r") + ")\n" +
      fold_text(key, "folded", "lost", "lane") + "lane = IDENTITY;\n}\n" +
      regain_text(key, "folded", "lost");
  if (!shares) {
    return text + "const state_t state = folded;\n" +
           finish_text(key, key.is_split);
  }
  return text +
         "shared[get_local_id(0)] = folded;\n"
         "barrier(CLK_LOCAL_MEM_FENCE);\n"
         "for (int width = GROUP / 2; width >= COLUMNS; width /= 2) {\n"
         "if (get_local_id(0) < width) " +
         combine_text(key,
                      "shared[get_local_id(0)]",
                      "shared[get_local_id(0) + width]") +
         "barrier(CLK_LOCAL_MEM_FENCE);\n}\n"
         "if (get_local_id(0) < COLUMNS && is_inside) {\n"
         "const state_t state = shared[column];\n" +
         finish_text(key, key.is_split) + "}\n";
}

std::string output_parameters(const ReductionKey& key) {
  std::string text;
  for (int i = 0; i < key.output_count; ++i) {
    text += std::string("TENSOR(storage_") + dtype_name(key.outputs[i]) + ", " +
            output_name(i) + "), const dims_t " + output_name(i) + "_strides, ";
  }
  for (const std::string& scalar : split_names(key.op->scalars)) {
    text += "const compute_t " + scalar + ", ";
  }
  return text + "const dims_t kept_sizes, const count_t outputs, const " +
         (key.op->keeps_dtypes ? "long" : "compute_t") +
         " count, TENSOR(uchar, partial_bytes), const uint splits";
}

std::string pointers_text(const ReductionKey& key) {
  // Blocks of the allocator are aligned for any accumulator.
  std::string text =
      "global state_t *partials =\n"
      "    (global state_t *)POINTER(partial_bytes);\n";
  for (int i = 0; i < key.output_count; ++i) {
    text += std::string("global storage_") + dtype_name(key.outputs[i]) + " *" +
            output_name(i) + " = POINTER(" + output_name(i) + ");\n";
  }
  return text;
}

constexpr const char* kIntegerExtremes =
    "ELEMENTWISE lanes_t greater_of(lanes_t a, lanes_t b) "
    "{ return max(a, b); }\n"
    "ELEMENTWISE lanes_t smaller_of(lanes_t a, lanes_t b) "
    "{ return min(a, b); }\n";

// The four vectors of kInner are lanes of their own.
int block_of(const ReductionKey& key) {
  const bool has_four = key.is_vector && key.layout == ReductionLayout::kInner;
  return is_compensated(key) && !has_four ? kReductionShortBlock
                                          : kReductionBlock;
}

std::string common_text(const ReductionKey& key) {
  std::string text = preamble(key.compute, false) + sources::loads_ahead.text;
  if (key.is_vector) {
    text += "#define LANES " + std::to_string(kReductionLanes) + "\n";
    text += is_floating(key.compute) ? sources::lanes.text
                                     : integer_lanes_text(key);
  }
  if (!is_complex(key.compute)) {
    text += sources::reduce.text;
  }
  if (key.is_vector && !is_floating(key.compute)) {
    text += kIntegerExtremes;
  }
  text += key.op->preamble;
  text += "#define GROUP " + std::to_string(kReductionGroup) +
          "\n#undef LANES\n#define LANES " + std::to_string(kReductionLanes) +
          "\n#define BLOCK " + std::to_string(block_of(key)) +
          "\n#define SLICES (GROUP / COLUMNS)\n#define "
          "COLUMNS " +
          std::to_string(key.layout == ReductionLayout::kGroup
                             ? key.columns
                             : kReductionColumns) +
          "\n#define IDENTITY " + identity_of(key) + "\ntypedef " +
          key.op->state + " state_t;\n";
  return text + (key.is_large
                     ? "typedef long index_t;\ntypedef ulong count_t;\n"
                       "typedef long16 dims_t;\n"
                     : "typedef int index_t;\ntypedef uint count_t;\n"
                       "typedef int16 dims_t;\n");
}

}  // namespace

std::string reduce_text(const ReductionKey& key) {
  const bool is_group = key.layout == ReductionLayout::kGroup;
  std::string text = common_text(key);
  text += "kernel __attribute__((reqd_work_group_size(" +
          std::to_string(is_group ? kReductionGroup : 1) +
          ", 1, 1)))\nvoid reduce(" + output_parameters(key);
  for (int i = 0; i < key.input_count; ++i) {
    text += std::string(", CONST_TENSOR(storage_") + dtype_name(key.inputs[i]) +
            ", " + numbered("input", i) + "), const dims_t " +
            numbered("kept_strides", i) + ", const dims_t " +
            numbered("reduced_strides", i);
  }
  text +=
      ", const dims_t reduced_sizes, const count_t length, "
      "const count_t per_split, const uint tile" +
      std::string(key.joins_rows
                      ? ", const uint joined_rows, const uint odd_rows"
                      : "") +
      ") {\n" + pointers_text(key);
  for (int i = 0; i < key.input_count; ++i) {
    const std::string name = numbered("input", i);
    text += std::string("const global storage_") + dtype_name(key.inputs[i]) +
            " *" + name + " = POINTER(" + name + ");\n";
  }
  text +=
      "const uint split = get_global_id(1);\n"
      "const count_t begin = split * per_split;\n"
      "const count_t end = min(length, begin + per_split);\n";
  if (is_group && key.columns < kReductionGroup) {
    text += "local state_t shared[GROUP];\n";
  }
  switch (key.layout) {
    case ReductionLayout::kInner:
      text += !key.is_vector         ? inner_text(key)
              : key.op->vectorizable ? inner_vectors_text(key)
              : key.op->moments      ? inner_moments_text(key)
                                     : inner_extremes_text(key);
      break;
    case ReductionLayout::kOuter:
      text += !key.is_vector     ? outer_text(key)
              : *key.op->extreme ? outer_extremes_text(key)
              : key.op->moments  ? outer_moments_text(key)
                                 : outer_vectors_text(key);
      break;
    case ReductionLayout::kGroup:
      text += group_text(key);
      break;
  }
  return text + "}\n";
}

std::string merge_text(const ReductionKey& key) {
  return common_text(key) +
         "kernel __attribute__((reqd_work_group_size(64, 1, 1)))\n"
         "void merge(" +
         output_parameters(key) + ") {\n" + pointers_text(key) +
         "const count_t output = get_global_id(0);\n"
         "if (output >= outputs) return;\n"
         "state_t state = partials[output], lost = IDENTITY;\n"
         "FOR_LOADS_AHEAD(uint, split, 1, splits, 1,\n" +
         fold_text(key,
                   "state",
                   "lost",
                   "partials[split * (size_t)outputs + output]") +
         ")\n" + regain_text(key, "state", "lost") +
         "count_t linear = output;\n" + kept_text(key, false, 0) +
         finish_text(key, false) + "}\n";
}

}  // namespace torch_opencl::ops
