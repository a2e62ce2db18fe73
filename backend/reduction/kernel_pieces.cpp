#include "kernel_pieces.h"

namespace torch_opencl::ops {

const char* identity_of(const ReductionKey& key) {
  return is_complex(key.compute) ? key.op->complex_numbers[0]
                                 : key.op->identity;
}

namespace {

const char* step_of(const ReductionKey& key) {
  return is_complex(key.compute) ? key.op->complex_numbers[1] : key.op->step;
}

const char* combine_of(const ReductionKey& key) {
  return is_complex(key.compute) ? key.op->complex_numbers[2] : key.op->combine;
}

}  // namespace

std::string output_name(int i) {
  return "out" + std::to_string(i);
}

std::string numbered(const char* name, int i) {
  return name + std::to_string(i);
}

std::string lane_stride(const ReductionKey& key, const char* strides, int i) {
  return key.units >> i & 1 ? "1" : numbered(strides, i) + ".s0";
}

std::string step_text(const ReductionKey& key,
                      const std::string& accumulator,
                      const std::function<std::string(int)>& offset,
                      const std::string& index) {
  const std::vector<std::string> names = split_names(key.op->inputs);
  std::string text = "{\n";
  for (int i = 0; i < key.input_count; ++i) {
    const std::string type =
        key.op->keeps_dtypes
            ? std::string("compute_") + runtime::dtype_name(key.inputs[i])
            : "compute_t";
    text +=
        "const " + type + " " + names[i] + " = " +
        (is_complex(key.compute) && !key.op->keeps_dtypes
             ? load_complex_text(
                   key.inputs[i], key.compute, numbered("input", i), offset(i))
             : load_text(
                   key.inputs[i], numbered("input", i), offset(i), type)) +
        ";\n";
  }
  return text + "const long index = " + index +
         ";\nconst state_t state = " + accumulator + ";\n" + accumulator +
         " = " + step_of(key) + ";\n}\n";
}

std::string combine_text(const ReductionKey& key,
                         const std::string& a,
                         const std::string& b,
                         const std::string& type) {
  return "{\nconst " + type + " a = " + a + ";\nconst " + type + " b = " + b +
         ";\n" + a + " = " + combine_of(key) + ";\n}\n";
}

bool is_compensated(const ReductionKey& key) {
  return is_floating(key.compute) && (key.op->sums || key.op->moments);
}

std::string fold_text(const ReductionKey& key,
                      const std::string& a,
                      const std::string& lost,
                      const std::string& b,
                      const std::string& type) {
  if (!is_compensated(key)) {
    return combine_text(key, a, b, type);
  }
  return std::string(key.op->moments ? "fold_moments" : "fold_sum") + "(&" + a +
         ", &" + lost + ", " + b + ");\n";
}

std::string regain_text(const ReductionKey& key,
                        const std::string& a,
                        const std::string& lost) {
  return is_compensated(key) ? a + " = regained(" + a + ", " + lost + ");\n"
                             : "";
}

std::string finish_text(const ReductionKey& key, bool is_split) {
  if (is_split) {
    return "partials[split * (size_t)outputs + output] = state;\n";
  }
  std::string text;
  for (int i = 0; i < key.output_count; ++i) {
    text += store_text(key.outputs[i],
                       key.op->keeps_dtypes ? key.outputs[i] : key.compute,
                       output_name(i),
                       output_name(i) + "_at",
                       key.op->results[i]) +
            ";\n";
  }
  return text;
}

namespace {

std::vector<Walk> kept_walks(const ReductionKey& key, bool with_input) {
  std::vector<Walk> walks;
  for (int i = 0; with_input && i < key.input_count; ++i) {
    walks.push_back({numbered("base", i), numbered("kept_strides", i)});
  }
  for (int i = 0; i < key.output_count; ++i) {
    walks.push_back({output_name(i) + "_at", output_name(i) + "_strides"});
  }
  return walks;
}

}  // namespace

std::string kept_text(const ReductionKey& key, bool with_input, int first) {
  return offsets_text(
      kept_walks(key, with_input), "kept_sizes", first, key.kept);
}

std::string runs_text(const ReductionKey& key, const std::string& limit) {
  return "const count_t limit = " + limit +
         ";\n"
         "const count_t kept = kept_sizes.s0;\n"
         "const count_t per_row = (kept + limit - 1) / limit;\n"
         "const count_t groups = per_row * (outputs / kept);\n"
         "for (count_t group = get_global_id(0) * (count_t)tile;\n"
         "     group < min(groups, (count_t)(get_global_id(0) + 1) * tile);\n"
         "     ++group) {\n"
         "const count_t row = group / per_row;\n"
         "const count_t column = (group - row * per_row) * limit;\n"
         "const count_t first = row * kept + column;\n"
         "const int width = (int)min(limit, kept - column);\n"
         "count_t linear = row;\n" +
         kept_text(key, true, 1);
}

std::string tree_text(const ReductionKey& key,
                      const std::string& lanes,
                      const std::string& width) {
  return "for (int width = " + width +
         " / 2; width > 0; width /= 2)\n"
         "for (int l = 0; l < width; ++l) " +
         combine_text(key, lanes + "[l]", lanes + "[l + width]");
}

}  // namespace torch_opencl::ops
