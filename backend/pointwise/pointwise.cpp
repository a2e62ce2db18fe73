#include "pointwise.h"

#include "../common/kernel_table.h"
#include "../common/kernel_text.h"

#include <algorithm>
#include <mutex>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;

constexpr size_t kGroupSize = 256;
// Elements of a contiguous chunk, or of a row, that one work-item loops over.
constexpr int64_t kMinChunk = 1024;
constexpr int64_t kMaxChunk = 16384;
constexpr int32_t kShortRun = 16;

enum class Layout : uint8_t {
  kItems,          // contiguous, one element a work-item
  kChunks,         // contiguous, one chunk a work-item
  kStridedItems,   // strided, one element a work-item
  kStridedChunks,  // strided, a run along the innermost dimension a work-item
};

// What the text of a kernel depends on.
struct Key {
  const PointwiseOp* op;
  DType compute;
  Layout layout;
  uint8_t operands;
  uint8_t outputs;        // of the operands, which begin with them
  uint8_t dimensions;     // of the strided layouts
  uint8_t host_operands;  // bit i: operand i is passed by value
  std::array<DType, kMaxOperands> dtypes;
  // Innermost stride of the strided chunks: 0, 1, or 2 for any other.
  std::array<uint8_t, kMaxOperands> inner;

  bool operator==(const Key&) const = default;
  size_t hash() const {
    size_t hash = std::hash<const void*>()(op);
    const auto mix = [&hash](size_t value) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    };
    mix(static_cast<size_t>(compute) | static_cast<size_t>(layout) << 8 |
        size_t(operands) << 16 | size_t(dimensions) << 24 |
        size_t(host_operands) << 32);
    for (int i = 0; i < operands; ++i) {
      mix(static_cast<size_t>(dtypes[i]) | size_t(inner[i]) << 8);
    }
    return hash ^ (hash >> 29);
  }
};

const char* expression_of(const Key& key) {
  const PointwiseOp& op = *key.op;
  if (key.compute == DType::kBool && *op.bool_expression) {
    return op.bool_expression;
  }
  if (!is_floating(key.compute) && *op.integral_expression) {
    return op.integral_expression;
  }
  return op.expression;
}

bool is_strided(Layout layout) {
  return layout == Layout::kStridedItems || layout == Layout::kStridedChunks;
}

std::string offset_name(int operand) {
  return "offset" + std::to_string(operand);
}

bool keeps_dtypes(const PointwiseOp& op) {
  return *op.outputs != '\0';
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

// Work-items that loop compute vectors where they can: compilers make no vector
// of a call of exp or erf in a loop.
bool uses_lanes(const Key& key) {
  bool uses = key.op->is_lanewise && key.compute == DType::kFloat32 &&
              (key.layout == Layout::kChunks ||
               (key.layout == Layout::kStridedChunks && key.inner[0] == 1));
  for (int i = 0; i < key.operands; ++i) {
    uses &= (key.host_operands >> i & 1) != 0 ||
            (has_lanes(key.dtypes[i]) && key.inner[i] <= 1);
  }
  return uses;
}

// The type of operand i in expressions.
std::string value_type(const Key& key, int i) {
  return keeps_dtypes(*key.op)
             ? std::string("compute_") + runtime::dtype_name(key.dtypes[i])
             : "compute_t";
}

// The statements for one element, its operands at `index(i)`.
template <class Index>
std::string element_text(const Key& key, const Index& index) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text;
  for (int i = key.outputs; i < key.operands; ++i) {
    if (!(key.host_operands >> i & 1)) {
      text += "const " + value_type(key, i) + " " + names[i] + " = " +
              load_text(key.dtypes[i],
                        "p" + std::to_string(i),
                        index(i),
                        value_type(key, i)) +
              ";\n";
    }
  }
  if (!keeps_dtypes(*key.op)) {
    const std::string value = expression_of(key);
    return text +
           (key.dtypes[0] == DType::kBool
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
std::string lanes_text(const Key& key, const Index& index) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text = "const int width = (int)(end - i);\n";
  for (int i = 1; i < key.operands; ++i) {
    text += "const value_t " + names[i] + " = ";
    if (key.host_operands >> i & 1) {
      text += names[i] + "_number;\n";
      continue;
    }
    const std::string pointer = "p" + std::to_string(i);
    const bool repeats =
        key.layout == Layout::kStridedChunks && key.inner[i] == 0;
    text +=
        (repeats ? load_text(key.dtypes[i], pointer, index(i))
                 : load_lanes_text(key.dtypes[i], pointer, index(i), "width")) +
        ";\n";
  }
  return text +
         store_lanes_text(
             key.dtypes[0], "p0", index(0), "width", expression_of(key)) +
         ";\n";
}

// The loop over elements `begin` to `end` - 1.
template <class Index>
std::string loop_text(const Key& key, const char* type, const Index& index) {
  const bool lanes = uses_lanes(key);
  return (lanes ? "" : kIndependent) + std::string("for (") + type +
         " i = begin; i < end; i += " +
         std::to_string(lanes ? kValueLanes : 1) + ") {\n" +
         (lanes ? lanes_text(key, index) : element_text(key, index)) + "}\n";
}

// Every operand's offset of the element (or run) numbered `linear`.
std::string operand_offsets_text(const Key& key, int first) {
  std::vector<Walk> walks;
  for (int i = 0; i < key.operands; ++i) {
    if (!(key.host_operands >> i & 1)) {
      walks.push_back({offset_name(i), "strides" + std::to_string(i)});
    }
  }
  return offsets_text(walks, "sizes", first, key.dimensions);
}

std::string parameters_text(const Key& key) {
  const std::vector<std::string> names = operand_names(*key.op);
  std::string text;
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

std::string body_text(const Key& key) {
  const auto same = [](int) { return std::string("i"); };
  switch (key.layout) {
    case Layout::kItems:
      // size_t, not uint: an index that may wrap keeps compilers from seeing
      // that neighbouring work-items touch neighbouring elements.
      return "const size_t i = get_global_id(0);\nif (i < count) {\n" +
             element_text(key, same) + "}\n";
    case Layout::kChunks:
      return "const uint begin = get_global_id(0) * chunk;\n"
             "const uint end = min(count, begin + chunk);\n" +
             loop_text(key, "uint", same);
    case Layout::kStridedItems:
      return "if (get_global_id(0) >= count) return;\n"
             "count_t linear = get_global_id(0);\n" +
             operand_offsets_text(key, 0) + element_text(key, offset_name);
    case Layout::kStridedChunks: {
      const auto index = [&key](int i) {
        const std::string step = "strides" + std::to_string(i) + ".s0";
        return offset_name(i) + (key.inner[i] == 0   ? ""
                                 : key.inner[i] == 1 ? " + i"
                                                     : " + i * " + step);
      };
      return "const uint runs = ((uint)sizes.s0 + chunk - 1) / chunk;\n"
             "for (uint run = get_global_id(0) * count;\n"
             "     run < (get_global_id(0) + 1) * count && run < total;\n"
             "     ++run) {\n"
             "count_t linear = run / runs;\n"
             "const int begin = (run - linear * runs) * chunk;\n"
             "const int end = min(sizes.s0, begin + (int)chunk);\n" +
             operand_offsets_text(key, 1) + loop_text(key, "int", index) +
             "}\n";
    }
  }
  return "";
}

std::string kernel_text(const Key& key) {
  std::string text = preamble(key.compute, key.op->uses_math, uses_lanes(key));
  const bool items =
      key.layout == Layout::kItems || key.layout == Layout::kStridedItems;
  text += "typedef int index_t;\ntypedef uint count_t;\n";
  text += key.op->preamble;
  text += "kernel __attribute__((reqd_work_group_size(" +
          std::to_string(items ? kGroupSize : 1) +
          ", 1, 1)))\nvoid pointwise(" + parameters_text(key);
  if (key.layout == Layout::kStridedChunks) {
    text += ", const uint total";
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

runtime::Kernel& find_kernel(runtime::Device& device, const Key& key) {
  static auto* table = new KernelTable<Key>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    return device.programs().get_generated(
        key.op->name,
        kernel_text(key),
        "pointwise",
        keeps_dtypes(*key.op) ? literal_options(key.dtypes) : "");
  });
}

// The dtype arithmetic is done in. An iterator that was not asked to promote
// reports its first input's dtype, which for where() is the condition's: the
// values come last.
at::ScalarType compute_dtype(const at::TensorIteratorBase& iter) {
  const at::ScalarType last = iter.dtype(iter.ntensors() - 1);
  const at::ScalarType common = iter.maybe_common_dtype().value_or(last);
  return compute_type(common == at::kBool ? last : common);
}

void check_dtype(const PointwiseOp& op, at::ScalarType compute) {
  const bool supported =
      op.dtypes == Dtypes::kAll ||
      (op.dtypes == Dtypes::kFloating) == at::isFloatingType(compute);
  const std::string_view name = op.name;
  TORCH_CHECK_NOT_IMPLEMENTED(supported,
                              '"',
                              name.substr(0, name.find('.')),
                              "\" not implemented for '",
                              compute,
                              "'");
}

Layout choose_layout(const runtime::DeviceInfo& info, bool contiguous) {
  const bool items = info.device_class == runtime::DeviceClass::kGpu;
  if (contiguous) {
    return items || info.vectorizes_work_items ? Layout::kItems
                                               : Layout::kChunks;
  }
  return items ? Layout::kStridedItems : Layout::kStridedChunks;
}

struct Operands {
  std::array<Dimensions, kMaxOperands> strides{};
  Dimensions sizes{};
  bool contiguous = true;
};

// Strides in elements, at least one dimension.
Operands describe(const at::TensorIteratorBase& iter) {
  Operands operands;
  const int dimensions = iter.ndim();
  operands.sizes[0] = 1;
  for (int d = 0; d < dimensions; ++d) {
    operands.sizes[d] = static_cast<int32_t>(iter.shape()[d]);
  }
  for (int i = 0; i < iter.ntensors(); ++i) {
    const int64_t item = static_cast<int64_t>(iter.element_size(i));
    for (int d = 0; d < dimensions; ++d) {
      operands.strides[i][d] = static_cast<int32_t>(iter.strides(i)[d] / item);
    }
    if (!iter.is_cpu_scalar(i) && dimensions > 0) {
      operands.contiguous &= dimensions == 1 && operands.strides[i][0] == 1;
    }
  }
  return operands;
}

// Runs of few elements cost more than they hold: a longer dimension becomes the
// innermost. The ones it passes follow at once, so that their lines of memory
// are still in the caches.
void lengthen_runs(Operands& operands, int dimensions) {
  int longest = 0;
  for (int d = 1; d < dimensions && operands.sizes[longest] < kShortRun; ++d) {
    if (operands.sizes[d] > operands.sizes[longest]) {
      longest = d;
    }
  }
  const auto front = [longest](Dimensions& values) {
    std::rotate(
        values.begin(), values.begin() + longest, values.begin() + longest + 1);
  };
  front(operands.sizes);
  for (Dimensions& strides : operands.strides) {
    front(strides);
  }
}

void launch_pointwise(at::TensorIteratorBase& iter,
                      const PointwiseOp& op,
                      c10::ArrayRef<at::Scalar> scalars) {
  TORCH_CHECK(iter.ndim() <= kMaxDimensions,
              op.name,
              ": opencl supports up to ",
              kMaxDimensions,
              " dimensions that do not collapse, got ",
              iter.ndim());
  TORCH_CHECK(iter.ntensors() <= kMaxOperands,
              op.name,
              ": opencl supports up to ",
              kMaxOperands,
              " operands, got ",
              iter.ntensors());
  const at::ScalarType compute =
      keeps_dtypes(op) ? compute_type(iter.dtype(0)) : compute_dtype(iter);
  check_dtype(op, compute);
  const at::TensorBase& out = iter.tensor_base(0);
  runtime::Queue& queue = queue_of(out);
  const runtime::DeviceInfo& info = queue.device().info();
  Operands operands = describe(iter);

  Key key{};
  key.op = &op;
  key.compute = dtype_of(compute);
  key.layout = choose_layout(info, operands.contiguous);
  key.operands = static_cast<uint8_t>(iter.ntensors());
  key.outputs = static_cast<uint8_t>(iter.noutputs());
  if (is_strided(key.layout)) {
    key.dimensions = static_cast<uint8_t>(iter.ndim());
  }
  if (key.layout == Layout::kStridedChunks) {
    lengthen_runs(operands, iter.ndim());
  }
  for (int i = 0; i < key.operands; ++i) {
    key.dtypes[i] = dtype_of(iter.dtype(i));
    if (iter.is_cpu_scalar(i)) {
      key.host_operands |= 1 << i;
    } else if (key.layout == Layout::kStridedChunks) {
      const int32_t inner = operands.strides[i][0];
      key.inner[i] = inner == 0 || inner == 1 ? inner : 2;
    }
  }
  runtime::Kernel& kernel = find_kernel(queue.device(), key);

  const int64_t count = iter.numel();
  const int64_t workers = int64_t(info.compute_units) * 4;
  const int64_t chunk =
      std::clamp((count + workers - 1) / workers, kMinChunk, kMaxChunk);
  const int64_t runs =
      (operands.sizes[0] + chunk - 1) / chunk * (count / operands.sizes[0]);
  // Short runs are taken several at a time.
  const int64_t runs_per_item =
      std::max<int64_t>(1, chunk / std::min<int64_t>(operands.sizes[0], chunk));

  const std::lock_guard lock(kernel.mutex);
  ArgumentBinder arguments(kernel);
  for (int i = 0; i < key.operands; ++i) {
    if (key.host_operands >> i & 1) {
      arguments.add(scalar_argument(
          cpu_scalar_value(iter, i),
          keeps_dtypes(op) ? compute_type(iter.dtype(i)) : compute));
      continue;
    }
    arguments.add(arg_at(iter.data_ptr(i), iter.dtype(i)));
    if (is_strided(key.layout)) {
      arguments.add(operands.strides[i]);
    }
  }
  for (const at::Scalar& scalar : scalars) {
    arguments.add(scalar_argument(scalar, compute));
  }
  NDRange work = range(count, kGroupSize);
  if (is_strided(key.layout)) {
    arguments.add(operands.sizes);
  }
  if (key.layout == Layout::kStridedChunks) {
    arguments.add(static_cast<uint32_t>(runs_per_item));
    arguments.add(static_cast<uint32_t>(chunk));
    arguments.add(static_cast<uint32_t>(runs));
    work = range((runs + runs_per_item - 1) / runs_per_item, 1);
  } else {
    arguments.add(static_cast<uint32_t>(count));
    arguments.add(static_cast<uint32_t>(chunk));
    if (key.layout == Layout::kChunks) {
      work = range((count + chunk - 1) / chunk, 1);
    }
  }
  queue.launch(kernel, work);
}

}  // namespace

void pointwise(at::TensorIteratorBase& iter,
               const PointwiseOp& op,
               c10::ArrayRef<at::Scalar> scalars) {
  if (iter.numel() == 0) {
    return;
  }
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) {
      launch_pointwise(part, op, scalars);
    }
    return;
  }
  launch_pointwise(iter, op, scalars);
}

}  // namespace torch_opencl::ops
