// Loops over explicit vectors of the one input, for drivers whose compilers
// only vectorise across work-items.
#include "kernel_pieces.h"

namespace torch_opencl::ops {
namespace {

constexpr const char* kIdentity = "(lanes_t)(compute_t)(IDENTITY)";

std::string vector_step_text(const ReductionKey& key,
                             const std::string& accumulator,
                             const std::string& x) {
  return "{\nconst lanes_t x = " + x +
         ";\nconst lanes_t state = " + accumulator + ";\n" + accumulator +
         " = " + key.op->step + ";\n}\n";
}

std::string vector_combine_text(const ReductionKey& key,
                                const std::string& a,
                                const std::string& b) {
  return combine_text(key, a, b, "lanes_t");
}

std::string load_vector_text(const ReductionKey& key, const std::string& at) {
  return std::string("load_lanes_") + runtime::dtype_name(key.inputs[0]) +
         "(input0 + (" + at + "))";
}

// Joined with itself so rotated, a vector's first lane is the result of all.
constexpr const char* kRotations[] = {".s89abcdef01234567",
                                      ".s456789abcdef0123",
                                      ".s23456789abcdef01",
                                      ".s123456789abcdef0"};

// The loop over the lines of an output's elements in memory, to `at`, where a
// run of BLOCK elements at most begins.
std::string lines_text(const ReductionKey& key) {
  const std::string place =
      key.reduced == 1
          ? "const count_t row = 0, column = r;\n"
          : "const count_t row = r / (count_t)reduced_sizes.s0;\n"
            "const count_t column = r - row * (count_t)reduced_sizes.s0;\n";
  return "for (count_t r = begin; r < end;) {\n" + place +
         "count_t linear = row;\n" +
         offsets_text(
             {{"at", "reduced_strides0"}}, "reduced_sizes", 1, key.reduced) +
         "at += base0 + (index_t)column;\n"
         "const int run = (int)min((count_t)BLOCK,\n"
         "    min((count_t)reduced_sizes.s0 - column, end - r));\n"
         "int i = 0;\n";
}

constexpr const char* kOutputsText =
    "for (count_t output = get_global_id(0) * (count_t)tile;\n"
    "     output < min(outputs, (count_t)(get_global_id(0) + 1) * tile);\n"
    "     ++output) {\n"
    "count_t linear = output;\n";

const char* integer_name(runtime::DType dtype) {
  switch (dtype) {
    case runtime::DType::kBool:
    case runtime::DType::kUInt8:
      return "uchar";
    case runtime::DType::kInt8:
      return "char";
    case runtime::DType::kUInt16:
      return "ushort";
    case runtime::DType::kInt16:
      return "short";
    case runtime::DType::kUInt32:
      return "uint";
    case runtime::DType::kInt32:
      return "int";
    case runtime::DType::kUInt64:
      return "ulong";
    default:
      return "long";
  }
}

}  // namespace

std::string integer_lanes_text(const ReductionKey& key) {
  const runtime::DType dtype = key.inputs[0];
  const std::string stored = integer_name(dtype);
  const std::string lanes = integer_name(key.compute) + std::string("16");
  const std::string value = dtype == runtime::DType::kBool
                                ? "min(vload16(0, p), (uchar16)(1))"
                                : "vload16(0, p)";
  return "typedef " + lanes + " lanes_t;\ninline lanes_t load_lanes_" +
         runtime::dtype_name(dtype) + "(const global " + stored +
         " *p) {\nreturn convert_" + lanes + "(" + value + ");\n}\n";
}

// A run's extreme by vectors, and its place only where it is a new one.
std::string inner_extremes_text(const ReductionKey& key) {
  const std::string better = key.op->extreme;
  const auto join = [&better](const std::string& to, const std::string& x) {
    return to + " = " + better + "(" + x + ", " + to + ");\n";
  };
  std::string steps, fold;
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    steps += join("lanes" + number,
                  load_vector_text(key, "at + i + " + number + " * LANES"));
  }
  for (int i = 3; i > 0; --i) {
    fold += join("lanes0", numbered("lanes", i));
  }
  for (const char* rotation : kRotations) {
    fold += join("lanes0", std::string("lanes0") + rotation);
  }
  const std::string number_at_i =
      load_text(key.inputs[0], "input0", "at + i", "compute_t");
  return kOutputsText + kept_text(key, true, 0) +
         "state_t state = IDENTITY;\n" + lines_text(key) +
         "lanes_t lanes0 = (lanes_t)(IDENTITY.value);\n"
         "lanes_t lanes1 = lanes0, lanes2 = lanes0, lanes3 = lanes0;\n"
         "for (; i + 4 * LANES <= run; i += 4 * LANES) {\n" +
         steps + "}\nfor (; i + LANES <= run; i += LANES) {\n" +
         join("lanes0", load_vector_text(key, "at + i")) + "}\n" + fold +
         "compute_t extreme = lanes0.s0;\nfor (; i < run; ++i) {\n" +
         join("extreme", number_at_i) +
         "}\n{\nconst state_t a = state;\n"
         "const state_t b = value_at(extreme, (long)r);\n"
         "state = " +
         key.op->combine +
         ";\n}\nif (state.index == (long)r) {\n"
         "const lanes_t extremes = (lanes_t)(extreme);\n"
         "for (i = 0; i + LANES <= run; i += LANES) {\n"
         "const lanes_t x = " +
         load_vector_text(key, "at + i") + ";\nif (any(x == extremes" +
         (is_floating(key.compute) ? " || (x != x && extremes != extremes)"
                                   : "") +
         ")) break;\n}\n"
         "for (; i < run; ++i) {\nconst compute_t x = " +
         number_at_i +
         ";\nif (x == extreme || (IS_NAN(x) && IS_NAN(extreme))) {\n"
         "state = value_at(x, (long)r + i);\nbreak;\n}\n}\n}\nr += run;\n}\n" +
         finish_text(key, key.is_split) + "}\n";
}

// A run's mean, from its sum above its first element; then the sums of what
// exceeds that and of its squares, which correct the mean's rounding (Chan,
// Golub and LeVeque, Algorithms for computing the sample variance, 1983).
std::string inner_moments_text(const ReductionKey& key) {
  using Sum = std::pair<std::string, std::string>;  // a name and its term
  const auto sums_text = [&key](const std::vector<Sum>& sums) {
    std::string declared, folded, rest;
    for (const auto& [total, term] : sums) {
      declared += "lanes_t " + total + "_lanes[4] = {0, 0, 0, 0};\n";
      folded += "const lanes_t " + total + "_all = (" + total + "_lanes[0] + " +
                total + "_lanes[1]) + (" + total + "_lanes[2] + " + total +
                "_lanes[3]);\ncompute_t " + total + " = LANES_SUM(" + total +
                "_all);\n";
      rest += total + " += " + term + ";\n";
    }
    const auto add_text = [&](int lanes, const std::string& at) {
      std::string text =
          "{\nconst lanes_t x = " + load_vector_text(key, at) + ";\n";
      for (const auto& [total, term] : sums) {
        text +=
            total + "_lanes[" + std::to_string(lanes) + "] += " + term + ";\n";
      }
      return text + "}\n";
    };
    std::string vectors;
    for (int lanes = 0; lanes < 4; ++lanes) {
      vectors +=
          add_text(lanes, "at + i + " + std::to_string(lanes) + " * LANES");
    }
    return declared +
           "i = 0;\nfor (; i + 4 * LANES <= run; i += 4 * LANES) {\n" +
           vectors + "}\nfor (; i + LANES <= run; i += LANES) " +
           add_text(0, "at + i") + folded +
           "for (; i < run; ++i) {\nconst compute_t x = " +
           load_text(key.inputs[0], "input0", "at + i") + ";\n" + rest + "}\n";
  };
  return kOutputsText + kept_text(key, true, 0) +
         "state_t state = IDENTITY, lost = IDENTITY;\n" + lines_text(key) +
         "const compute_t first = shift_of(" +
         load_text(key.inputs[0], "input0", "at") + ");\n" +
         sums_text({{"sum", "x - first"}}) +
         "const compute_t shift = shift_of(first + sum / run);\n" +
         sums_text({{"above", "x - shift"},
                    {"squares", "(x - shift) * (x - shift)"}}) +
         "const compute_t mean = above / run;\n" +
         fold_text(key,
                   "state",
                   "lost",
                   "welford_of(shift, mean, squares - above * mean, run)") +
         "r += run;\n}\n" + regain_text(key, "state", "lost") +
         finish_text(key, key.is_split) + "}\n";
}

// Four vectors in turn hide the latency of an addition. What is left of a line
// is joined by itself first: of short lines it is half of all elements.
std::string inner_vectors_text(const ReductionKey& key) {
  const std::string identity = kIdentity;
  std::string steps;
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    steps += vector_step_text(
        key,
        "lanes" + number,
        load_vector_text(key, "at + i + " + number + " * LANES"));
  }
  const std::string fold =
      vector_combine_text(key, "lanes0", "lanes1") +
      vector_combine_text(key, "lanes2", "lanes3") +
      vector_combine_text(key, "lanes0", "lanes2") +
      fold_text(key, "folded", "lost", "lanes0", "lanes_t") +
      fold_text(key, "folded_rest", "lost_rest", "rest") +
      "lanes0 = lanes1 = lanes2 = lanes3 = " + identity +
      ";\nrest = IDENTITY;\nsince = 0;\n";
  std::string fold_lanes;
  for (const char* rotation : kRotations) {
    fold_lanes +=
        vector_combine_text(key, "folded", std::string("folded") + rotation);
  }
  return kOutputsText + kept_text(key, true, 0) +
         "lanes_t lanes0 = " + identity +
         ";\nlanes_t lanes1 = lanes0, lanes2 = lanes0, lanes3 = lanes0;\n"
         "lanes_t folded = lanes0, lost = lanes0;\n"
         "state_t rest = IDENTITY, folded_rest = rest, lost_rest = rest;\n"
         "int since = 0;\n" +
         lines_text(key) + "for (; i + 4 * LANES <= run; i += 4 * LANES) {\n" +
         steps + "}\nfor (; i + LANES <= run; i += LANES) " +
         vector_step_text(key, "lanes0", load_vector_text(key, "at + i")) +
         "state_t tail = IDENTITY;\nfor (; i < run; ++i) " +
         step_text(
             key, "tail", [](int) { return "at + i"; }, "r + i") +
         combine_text(key, "rest", "tail") +
         "since += run;\nif (since >= BLOCK) {\n" + fold + "}\nr += run;\n}\n" +
         fold + regain_text(key, "folded", "lost") +
         regain_text(key, "folded_rest", "lost_rest") + fold_lanes +
         "state_t state = folded.s0;\n" +
         combine_text(key, "state", "folded_rest") +
         finish_text(key, key.is_split) + "}\n";
}

namespace {

// Of joined rows those that make no whole one, of which the first split takes
// care, and every output's accumulators, joined to its first.
std::string joined_rows_text(const ReductionKey& key) {
  return "state_t *each = (state_t *)folded;\n"
         "for (int i = 0; split == 0 && i < width * (int)odd_rows; ++i) " +
         step_text(
             key,
             "each[i]",
             [](int) {
               return "base0 + (index_t)length * (index_t)span + (index_t)i";
             },
             "0") +
         "for (int i = width; i < span; i += width)\n"
         "for (int l = 0; l < width; ++l) " +
         combine_text(key, "each[l]", "each[i + l]");
}

// Moves the outputs' offsets by `count`, which is empty or "(...) * ", along
// dimension 0.
std::string move_outputs_text(const ReductionKey& key,
                              const std::string& count) {
  std::string text;
  for (int i = 0; i < key.output_count; ++i) {
    const std::string name = output_name(i);
    text += name + "_at += " + count + name + "_strides.s0;\n";
  }
  return text;
}

// Pointers to the rows, found once: PoCL found them for every vector, and read
// memory a third slower. `first` is empty or "r + ".
std::string row_pointers_text(const ReductionKey& key,
                              int rows,
                              const std::string& first) {
  std::string text;
  for (int row = 0; row < rows; ++row) {
    text += std::string("const global storage_") +
            runtime::dtype_name(key.inputs[0]) + " *" + numbered("row", row) +
            " = input0 + ROW_AT(" + first + std::to_string(row) + ");\n";
  }
  return text;
}

// Vector v of the row with that pointer.
std::string load_of_row_text(const ReductionKey& key, int row) {
  return std::string("load_lanes_") + runtime::dtype_name(key.inputs[0]) + "(" +
         numbered("row", row) + " + v * LANES)";
}

// The `rest` elements of a row that make no vector, and repeated the last one.
std::string load_rest_text(const ReductionKey& key, const std::string& row_at) {
  return "compute_t last[LANES];\n"
         "for (int l = 0; l < LANES; ++l) last[l] = " +
         load_text(key.inputs[0],
                   "input0",
                   row_at + " + whole * LANES + min(l, rest - 1)") +
         ";\n";
}

// Writes the outputs: `arrays` puts vector v into arrays, of which `state` is
// element l.
std::string finish_lanes_text(const ReductionKey& key,
                              const std::string& arrays,
                              const std::string& state) {
  return "for (int v = 0; v * LANES < width; ++v) {\n" + arrays +
         "for (int l = 0; l < min(LANES, width - v * LANES); ++l) {\n"
         "const state_t state = " +
         state +
         ";\n"
         "const count_t output = first + v * LANES + l;\n" +
         finish_text(key, key.is_split) + move_outputs_text(key, "") +
         "}\n}\n}\n";
}

// ROW_AT(j): where row j of ROWS begins.
std::string row_at_text(const ReductionKey& key) {
  if (key.reduced == 1) {
    const std::string row_stride =
        key.joins_rows ? "span" : "reduced_strides0.s0";
    return "#define ROW_AT(j) (base0 + (index_t)(r + (j)) * (index_t)" +
           row_stride + ")\n";
  }
  return "#define ROW_AT(j) row_at[j]\nindex_t row_at[ROWS];\n"
         "for (int j = 0; j < rows; ++j) {\ncount_t linear = r + j;\n" +
         offsets_text(
             {{"at", "reduced_strides0"}}, "reduced_sizes", 0, key.reduced) +
         "row_at[j] = at + base0;\n}\n";
}

// Joins ROWS rows, or the `rows` that are left, to the vectors.
std::string join_rows_text(const ReductionKey& key, int rows_at_once) {
  std::string steps;
  for (int row = 0; row < rows_at_once; ++row) {
    steps += vector_step_text(key, "joined", load_of_row_text(key, row));
  }
  return "if (rows == ROWS && span >= " + std::to_string(kReductionWideRow) +
         ") {\n" + row_pointers_text(key, rows_at_once, "") +
         "for (int v = 0; v < whole; ++v) {\n"
         "lanes_t joined = lanes[v];\n" +
         steps +
         "lanes[v] = joined;\n}\n} else {\n"
         "for (int j = 0; j < rows; ++j)\nfor (int v = 0; v < whole; ++v) " +
         vector_step_text(
             key, "lanes[v]", load_vector_text(key, "ROW_AT(j) + v * LANES")) +
         "}\nfor (int j = 0; rest > 0 && j < rows; ++j) {\n" +
         load_rest_text(key, "ROW_AT(j)") +
         vector_step_text(key, "lanes[whole]", "vload16(0, last)") + "}\n";
}

// `place` becomes `at` in the lanes where `x` is better than `value`.
std::string extreme_step_text(const ReductionKey& key,
                              const std::string& x,
                              const std::string& at) {
  const std::string order =
      std::string(key.op->extreme) == "greater_of" ? ">" : "<";
  const std::string better =
      is_floating(key.compute)
          ? "(x " + order + " value || (x != x && value == value))"
          : "(x " + order + " value)";
  return "{\nconst lanes_t x = " + x + ";\nplace = convert_int16(" + better +
         ") ? (int16)((int)(" + at + ")) : place;\nvalue = " + better +
         " ? x : value;\n}\n";
}

}  // namespace

// Lines of up to COLUMNS outputs, so that memory is read in long runs; of
// several rows at once, so that what they are joined to is moved less often. Of
// one vector or a few, every addition would wait until the last one was stored.
std::string outer_vectors_text(const ReductionKey& key) {
  const std::string identity = kIdentity;
  const int rows_at_once = key.joins_rows ? 1 : kReductionRowsAtOnce;
  return "#define ROWS " + std::to_string(rows_at_once) + "\n" +
         runs_text(key, "COLUMNS") + "const int span = width" +
         (key.joins_rows ? " * (int)joined_rows" : "") +
         ";\nconst int whole = span / LANES;\n"
         "const int rest = span - whole * LANES;\n"
         "const int vectors = whole + (rest > 0);\n"
         "base0 += (index_t)column;\n" +
         move_outputs_text(key, "(index_t)column * ") +
         "lanes_t lanes[COLUMNS / LANES], folded[COLUMNS / LANES];\n"
         "lanes_t lost[COLUMNS / LANES];\n"
         "for (int v = 0; v < vectors; ++v) lanes[v] = folded[v] = lost[v] = " +
         identity +
         ";\nint since = 0;\n"
         "for (count_t r = begin; r < end; r += ROWS) {\n"
         "const int rows = (int)min((count_t)ROWS, end - r);\n" +
         row_at_text(key) + join_rows_text(key, rows_at_once) +
         "since += rows;\nif (since >= BLOCK / LANES || r + rows == end) {\n"
         "for (int v = 0; v < vectors; ++v) {\n" +
         fold_text(key, "folded[v]", "lost[v]", "lanes[v]", "lanes_t") +
         "lanes[v] = " + identity +
         ";\n}\nsince = 0;\n}\n}\n"
         "for (int v = 0; v < vectors; ++v) {\n" +
         regain_text(key, "folded[v]", "lost[v]") + "}\n" +
         (key.joins_rows ? joined_rows_text(key) : "") +
         finish_lanes_text(
             key,
             "state_t lane[LANES];\nvstore16(folded[v], 0, lane);\n",
             "lane[l]");
}

// Lines as above; rows of a line count alike, so one division is for all.
std::string outer_moments_text(const ReductionKey& key) {
  const std::string step =
      "if (since == 1) {\nshifts[v] = shift_of(x);\n"
      "means[v] = deviations[v] = 0;\n}\n"
      "const lanes_t above = x - shifts[v], delta = above - means[v];\n"
      "means[v] += delta * share;\n"
      "deviations[v] += delta * (above - means[v]);\n"
      "recenter(&shifts[v], &means[v]);\n";
  return runs_text(key, "COLUMNS") +
         "const int whole = width / LANES;\n"
         "const int rest = width - whole * LANES;\n"
         "base0 += (index_t)column;\n" +
         move_outputs_text(key, "(index_t)column * ") +
         "lanes_t shifts[COLUMNS / LANES], means[COLUMNS / LANES];\n"
         "lanes_t deviations[COLUMNS / LANES];\n"
         "state_t folded[COLUMNS], lost[COLUMNS];\n"
         "for (int i = 0; i < width; ++i) folded[i] = lost[i] = IDENTITY;\n"
         "int since = 0;\n"
         "for (count_t r = begin; r < end; ++r) {\ncount_t linear = r;\n" +
         offsets_text(
             {{"at", "reduced_strides0"}}, "reduced_sizes", 0, key.reduced) +
         "at += base0;\n"
         "const compute_t share = 1 / (compute_t)++since;\n"
         "for (int v = 0; v < whole; ++v) {\nconst lanes_t x = " +
         load_vector_text(key, "at + v * LANES") + ";\n" + step +
         "}\nif (rest > 0) {\nconst int v = whole;\n" +
         load_rest_text(key, "at") + "const lanes_t x = vload16(0, last);\n" +
         step +
         "}\nif (since == BLOCK / LANES || r + 1 == end) {\n"
         "for (int i = 0; i < width; ++i) {\n"
         "const int v = i / LANES, l = i % LANES;\n" +
         fold_text(key,
                   "folded[i]",
                   "lost[i]",
                   "welford_of(((const compute_t *)&shifts[v])[l], "
                   "((const compute_t *)&means[v])[l], "
                   "((const compute_t *)&deviations[v])[l], since)") +
         "}\nsince = 0;\n}\n}\n"
         "for (int i = 0; i < width; ++i) {\n" +
         regain_text(key, "folded[i]", "lost[i]") + "}\n" +
         finish_lanes_text(key, "", "folded[v * LANES + l]");
}

// As the vectors above, of values and their places. Rows come in the order of
// places, so that of equal values the first stays.
std::string outer_extremes_text(const ReductionKey& key) {
  const std::string load_rest = load_rest_text(key, "ROW_AT(r)");
  const std::string vector = load_vector_text(key, "ROW_AT(r) + v * LANES");
  std::string steps;
  for (int row = 0; row < kReductionRowsAtOnce; ++row) {
    steps += extreme_step_text(
        key, load_of_row_text(key, row), "r + " + std::to_string(row));
  }
  return "#define ROWS " + std::to_string(kReductionRowsAtOnce) +
         "\n#define ROW_AT(r) (base0 + (index_t)(r) * "
         "reduced_strides0.s0)\n" +
         runs_text(key, "COLUMNS") +
         "const int whole = width / LANES;\n"
         "const int rest = width - whole * LANES;\n"
         "base0 += (index_t)column;\n" +
         move_outputs_text(key, "(index_t)column * ") +
         "lanes_t values[COLUMNS / LANES];\nint16 places[COLUMNS / LANES];\n"
         "count_t r = begin;\n"
         "for (int v = 0; v < whole; ++v) {\nvalues[v] = " +
         vector + ";\nplaces[v] = (int)r;\n}\nif (rest > 0) {\n" + load_rest +
         "values[whole] = vload16(0, last);\nplaces[whole] = (int)r;\n}\n"
         "for (r = begin + 1; r + ROWS <= end; r += ROWS) {\n" +
         row_pointers_text(key, kReductionRowsAtOnce, "r + ") +
         "for (int v = 0; v < whole; ++v) {\n"
         "lanes_t value = values[v];\nint16 place = places[v];\n" +
         steps +
         "values[v] = value;\nplaces[v] = place;\n}\n}\n"
         "for (; r < end; ++r)\nfor (int v = 0; v < whole; ++v) {\n"
         "lanes_t value = values[v];\nint16 place = places[v];\n" +
         extreme_step_text(key, vector, "r") +
         "values[v] = value;\nplaces[v] = place;\n}\n"
         "for (r = begin + 1; rest > 0 && r < end; ++r) {\n" +
         load_rest +
         "lanes_t value = values[whole];\nint16 place = places[whole];\n" +
         extreme_step_text(key, "vload16(0, last)", "r") +
         "values[whole] = value;\nplaces[whole] = place;\n}\n" +
         finish_lanes_text(
             key,
             "compute_t value[LANES];\nint place[LANES];\n"
             "vstore16(values[v], 0, value);\nvstore16(places[v], 0, place);\n",
             "value_at(value[l], place[l])");
}

}  // namespace torch_opencl::ops
