#include "indexed.h"

#include "../../cpp/aten/reports.h"
#include "../common/bits.h"
#include "../common/integers.h"
#include "../common/kernel_table.h"
#include "../common/kernel_text.h"
#include "../common/non_temporal.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/SmallVector.h>

#include <numeric>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

constexpr size_t kGroupSize = 64;
// Neighbouring elements that share their indices: from how many on CPUs take
// them as a run, and about how many a work-item takes.
constexpr int64_t kShortestRun = 16;
constexpr int64_t kElementsOfItem = 4096;

// The dtype whose kernels move elements of this size; kAdd needs the real one.
DType mover_of(at::ScalarType type, Indexed mode) {
  if (mode == Indexed::kAdd || c10::elementSize(type) > sizeof(int64_t)) {
    return dtype_of(type);
  }
  return bits_dtype(c10::elementSize(type));
}

// How a work-item of a CPU goes along the first dimension: not at all, over
// elements that follow each other and share their indices, or over any.
enum class Run : uint8_t { kNone, kShared, kAny };

// Dimensions that work-items share out, then those one work-item walks.
struct Order {
  c10::SmallVector<int, kMaxDimensions> dimensions;
  int parallel;
};

// What the text of a kernel depends on.
struct Key {
  int dimensions;
  int parallel;
  int indices;
  DType dtype;
  Indexed mode;
  Run run;
  bool is_large;
  bool non_temporal;   // shared runs are stored non-temporally
  bool wraps;          // negative indices
  bool skips;          // an index
  uint8_t unused = 0;  // instead of padding
};

Order order_of(const at::TensorIteratorBase& iter, Indexed mode) {
  Order order{{}, 0};
  for (const bool is_parallel : {true, false}) {
    for (int d = 0; d < iter.ndim(); ++d) {
      // Along a dimension where the target moves by itself no two elements
      // meet; along the others sums are taken one after the other.
      const bool independent = mode != Indexed::kAdd || iter.strides(0)[d] != 0;
      if (independent == is_parallel) {
        order.dimensions.push_back(d);
        order.parallel += is_parallel;
      }
    }
  }
  return order;
}

Run run_of(const at::TensorIteratorBase& iter,
           const Order& order,
           Indexed mode) {
  if (order.parallel == 0 || iter.shape()[order.dimensions[0]] < kShortestRun ||
      !aten::device_of(iter.tensor_base(0)).is_cpu()) {
    return Run::kNone;
  }
  const int first = order.dimensions[0];
  const int64_t item = static_cast<int64_t>(iter.element_size(0));
  bool is_shared =
      iter.strides(0)[first] == item && iter.strides(1)[first] == item;
  for (int k = 2; k < iter.ntensors(); ++k) {
    is_shared &= iter.strides(k)[first] == 0;
  }
  // Sums along other dimensions would be walked once an element of the run.
  return is_shared               ? Run::kShared
         : mode == Indexed::kAdd ? Run::kNone
                                 : Run::kAny;
}

// MOVE_VECTOR(from, to) of sixteen elements.
std::string move_vector_text(const Key& key) {
  const std::string plain =
      "#define MOVE_VECTOR(from, to) vstore16(vload16(0, from), 0, to);\n";
  if (!key.non_temporal) {
    return plain;
  }
  const std::string vector = key.dtype == DType::kUInt8    ? "uchar16"
                             : key.dtype == DType::kUInt16 ? "ushort16"
                             : key.dtype == DType::kUInt32 ? "uint16"
                                                           : "ulong16";
  return "#if defined(__has_builtin)\n"
         "#if __has_builtin(__builtin_nontemporal_store)\n"
         "#define MOVE_VECTOR(from, to) \\\n"
         "  if ((ulong)(to) % sizeof(" +
         vector +
         ") == 0) \\\n"
         "    __builtin_nontemporal_store(vload16(0, from), (global " +
         vector +
         " *)(to)); \\\n"
         "  else vstore16(vload16(0, from), 0, to);\n"
         "#endif\n#endif\n#ifndef MOVE_VECTOR\n" +
         plain + "#endif\n";
}

// One element, or `width` of them that share their indices.
std::string move_text(const Key& key) {
  const bool gets = key.mode == Indexed::kGet;
  const std::string to = gets ? "target_at" : "target_at + indexed_at";
  const std::string from = gets ? "source_at + indexed_at" : "source_at";
  const auto element = [&](const std::string& i) {
    const std::string place = "POINTER(target), " + to + i;
    const std::string value = "LOAD(POINTER(source), " + from + i + ")";
    return "STORE(" + place + ", " +
           (key.mode == Indexed::kAdd
                ? "LOAD(" + place + ") + " +
                      (is_complex(key.dtype)
                           ? "c_multiple(alpha, " + value + ")"
                           : "alpha * " + value)
            : gets ? "inside ? " + value + " : (storage_t)(0)"
                   : value) +
           ");\n";
  };
  const std::string condition = gets ? "" : "if (inside) ";
  if (key.run != Run::kShared) {
    return condition + element("");
  }
  std::string text = condition + "{\nint i = 0;\n";
  if (key.mode != Indexed::kAdd && !is_complex(key.dtype)) {
    // Of bits, whatever they mean.
    text += "if (inside) {\nconst global storage_t *from = POINTER(source) + " +
            from + ";\nglobal storage_t *to = POINTER(target) + " + to +
            ";\nfor (; i + 16 <= width; i += 16) "
            "vstore16(vload16(0, from + i), 0, to + i);\n}\n";
  }
  return text + kIndependent + "for (; i < width; ++i) " + element(" + i") +
         "}\n";
}

// Whether the loop along a run is made of vectors of elements from anywhere:
// twice as fast on PoCL, and eight times slower where the driver vectorises
// over work-items.
bool is_vector_loop(const Key& key, const runtime::DeviceInfo& device) {
  return key.run == Run::kAny && key.mode == Indexed::kGet &&
         !device.vectorizes_work_items;
}

// The offset of the element that the indices name, and whether there is one. A
// bad index is reported at once; a vector loop counts the `good` ones.
std::string place_text(const Key& key, bool counts) {
  std::string text = "long indexed_at = 0;\nbool inside = true;\n";
  for (int k = 0; k < key.indices; ++k) {
    const std::string n = std::to_string(k);
    const std::string skipped = "at" + n + " == skipped";
    text +=
        "const long i" + n + " = POINTER(index" + n + ")[index" + n +
        "_at];\nconst long at" + n + " = " +
        (key.wraps ? "i" + n + " < 0 ? i" + n + " + size" + n + " : " : "") +
        "i" + n + ";\nconst bool is_good" + n + " = (ulong)at" + n +
        " < (ulong)size" + n + ";\ninside = inside && is_good" + n +
        (key.skips ? " && !(" + skipped + ")" : "") + ";\n";
    const std::string is_fine =
        "is_good" + n + (key.skips ? " || " + skipped : "");
    text += counts ? "good += " + is_fine + ";\n"
                   : "if (!(" + is_fine +
                         ")) write_report(record, op, REPORT_INDEX, i" + n +
                         ", size" + n + ", dimension + " + n + ");\n";
    text += "indexed_at += at" + n + " * stride" + n + ";\n";
  }
  return text;
}

// Walks a run again, where not all of its indices were good.
std::string report_text(const Key& key) {
  std::string text = "if (good != width * " + std::to_string(key.indices) +
                     ") {\nfor (int i = 0; i < width; ++i) {\n";
  for (int k = 0; k < key.indices; ++k) {
    const std::string n = std::to_string(k);
    text += "{\nconst long given = POINTER(index" + n + ")[index" + n +
            "_at + (i - width) * index" + n + "_strides.s0];\n" +
            (key.skips ? "if (given != skipped) " : "") +
            "checked_index(record, op, given, " +
            (key.wraps ? "-size" + n : "0") + ", size" + n + ", dimension + " +
            n + ");\n}\n";
  }
  return text + "}\n}\n";
}

std::vector<Walk> walks_of(const Key& key) {
  std::vector<Walk> walks = {{"target_at", "target_strides"},
                             {"source_at", "source_strides"}};
  for (int k = 0; k < key.indices; ++k) {
    const std::string name = "index" + std::to_string(k);
    walks.push_back({name + "_at", name + "_strides"});
  }
  return walks;
}

std::string signature_text(const Key& key) {
  std::string text =
      "kernel __attribute__((reqd_work_group_size(" +
      std::to_string(key.run == Run::kNone ? kGroupSize : 1) +
      ", 1, 1)))\nvoid indexed(TENSOR(storage_t, target), "
      "CONST_TENSOR(storage_t, source), const dims_t target_strides, "
      "const dims_t source_strides, const int16 sizes, "
      "const count_t items, const count_t steps, const int chunk, "
      "const int runs, const compute_t alpha, global report_t *record, "
      "const int op, const int dimension, const long skipped";
  for (int k = 0; k < key.indices; ++k) {
    const std::string n = std::to_string(k);
    text += ", CONST_TENSOR(long, index" + n + "), const dims_t index" + n +
            "_strides, const long size" + n + ", const long stride" + n;
  }
  return text + ")";
}

// Adds to the offsets the place of `step` in the dimensions that one work-item
// walks.
std::string walked_text(const Key& key, const std::vector<Walk>& walks) {
  std::string text = "{\nlinear = step;\n";
  for (int d = key.parallel; d < key.dimensions; ++d) {
    const std::string size = "(count_t)sizes" + component(d);
    text += "{\nconst index_t at = linear % " + size + ";\nlinear /= " + size +
            ";\n";
    for (const Walk& walk : walks) {
      text += walk.offset + " += at * " + walk.strides + component(d) + ";\n";
    }
    text += "}\n";
  }
  return text + "}\n";
}

// The loops of a work-item over its runs, or its one element, and over their
// steps, to the offsets where a step begins.
std::string items_text(const Key& key, const std::vector<Walk>& walks) {
  const bool is_run = key.run != Run::kNone;
  std::string text =
      is_run
          ? "const int pieces = (sizes.s0 + chunk - 1) / chunk;\n"
            "for (count_t run = get_global_id(0) * (count_t)runs;\n"
            "     run < min(items, (count_t)(get_global_id(0) + 1) * runs);\n"
            "     ++run) {\nconst int begin = (int)(run % pieces) * chunk;\n"
            "const int width = min(chunk, sizes.s0 - begin);\n"
          : "if (get_global_id(0) >= items) return;\n";
  text += std::string("for (count_t step = 0; step < steps; ++step) {\n") +
          "count_t linear = " + (is_run ? "run / pieces" : "get_global_id(0)") +
          ";\n" + offsets_text(walks, "sizes", is_run ? 1 : 0, key.parallel);
  if (is_run) {
    for (const Walk& walk : walks) {
      text += walk.offset + " += begin * " + walk.strides + ".s0;\n";
    }
  }
  return text + (key.parallel < key.dimensions ? walked_text(key, walks) : "");
}

// Moves what begins at the offsets: an element, or a run of them.
std::string step_text(const Key& key,
                      const std::vector<Walk>& walks,
                      bool is_vector) {
  std::string text;
  if (is_vector) {
    text += std::string("int good = 0;\n") + kIndependent;
  }
  if (key.run == Run::kAny) {
    text += "for (int i = 0; i < width; ++i) {\n";
  }
  text += place_text(key, is_vector) + move_text(key);
  if (key.run == Run::kAny) {
    for (const Walk& walk : walks) {
      text += walk.offset + " += " + walk.strides + ".s0;\n";
    }
    text += "}\n";
  }
  return text + (is_vector ? report_text(key) : "");
}

std::string kernel_text(const Key& key, const runtime::DeviceInfo& device) {
  const std::vector<Walk> walks = walks_of(key);
  return preamble(key.dtype, false) +
         (key.is_large ? "typedef long index_t;\ntypedef ulong count_t;\n"
                         "typedef long16 dims_t;\n"
                       : "typedef int index_t;\ntypedef uint count_t;\n"
                         "typedef int16 dims_t;\n") +
         move_vector_text(key) + signature_text(key) + " {\n" +
         items_text(key, walks) +
         step_text(key, walks, is_vector_loop(key, device)) +
         (key.run == Run::kNone ? "}\n}\n" : "}\n}\n}\n");
}

runtime::Kernel& find_kernel(runtime::Device& device, const Key& key) {
  static auto* table = new KernelTable<Key>();
  return table->find(device, key, [&]() -> runtime::Kernel& {
    return device.programs().get_generated(
        "indexed", kernel_text(key, device.info()), "indexed");
  });
}

// How the elements are shared out.
struct Shares {
  Order order;
  DType dtype;
  Run run;
  bool is_large;
  Dimensions shape{};
  int64_t items = 1;
  int64_t steps = 1;
  int64_t runs = 1;  // of a work-item
};

Shares shares_of(const at::TensorIteratorBase& iter, Indexed mode) {
  const Order order = order_of(iter, mode);
  check_dimensions("indexing", iter.ndim());
  Shares s{order,
           mover_of(iter.dtype(0), mode),
           run_of(iter, order, mode),
           !iter.can_use_32bit_indexing()};
  for (size_t d = 0; d < order.dimensions.size(); ++d) {
    const int64_t size = iter.shape()[order.dimensions[d]];
    TORCH_CHECK_NOT_IMPLEMENTED(
        fits_int32(size),
        "opencl indexing along a dimension of 2^31 or more elements");
    s.shape[d] = static_cast<int32_t>(size);
    (static_cast<int>(d) < order.parallel ? s.items : s.steps) *= size;
  }
  if (s.run != Run::kNone) {
    s.items = s.items / s.shape[0] * ceil_div(s.shape[0], kElementsOfItem);
    s.runs = std::max<int64_t>(1, kElementsOfItem / s.shape[0]);
  }
  return s;
}

void add_count(ArgumentBinder& arguments, const Shares& s, int64_t count) {
  if (s.is_large) {
    arguments.add(count);
  } else {
    arguments.add(static_cast<uint32_t>(count));
  }
}

// `strides` are bytes, of elements of `item` bytes.
void add_strides(ArgumentBinder& arguments,
                 const Shares& s,
                 at::IntArrayRef strides,
                 int64_t item) {
  std::array<int64_t, kMaxDimensions> wide{};
  for (size_t d = 0; d < s.order.dimensions.size(); ++d) {
    wide[d] = strides[s.order.dimensions[d]] / item;
  }
  if (s.is_large) {
    arguments.add(wide);
    return;
  }
  Dimensions narrow{};
  std::copy(wide.begin(), wide.end(), narrow.begin());
  arguments.add(narrow);
}

void launch_indexed(at::TensorIteratorBase& iter,
                    Indexed mode,
                    at::IntArrayRef sizes,
                    at::IntArrayRef strides,
                    const IndexedBy& by,
                    const at::Scalar& alpha) {
  const int indices = iter.ntensors() - 2;
  const at::ScalarType type = iter.dtype(0);
  const int64_t item = static_cast<int64_t>(c10::elementSize(type));
  const Shares s = shares_of(iter, mode);
  runtime::Queue& queue = queue_of(iter.tensor_base(0));
  runtime::Kernel& kernel =
      find_kernel(queue.device(),
                  {static_cast<int>(s.order.dimensions.size()),
                   s.order.parallel,
                   indices,
                   s.dtype,
                   mode,
                   s.run,
                   s.is_large,
                   s.run == Run::kShared && mode == Indexed::kGet &&
                       exceeds_caches(queue.device(), iter.numel() * item),
                   by.wraps,
                   by.skipped.has_value()});
  const runtime::ReportArgument reports(queue, by.op);
  const auto lock = queue.lock(kernel);
  ArgumentBinder arguments(kernel);
  arguments.add(arg_at(iter.data_ptr(0), type));
  arguments.add(arg_in_at(iter.data_ptr(1), type));
  add_strides(arguments, s, iter.strides(0), item);
  add_strides(arguments, s, iter.strides(1), item);
  arguments.add(s.shape);
  add_count(arguments, s, s.items);
  add_count(arguments, s, s.steps);
  arguments.add(static_cast<int32_t>(kElementsOfItem));
  arguments.add(static_cast<int32_t>(s.runs));
  if (mode == Indexed::kAdd) {
    arguments.add(scalar_argument(alpha, compute_type(type)));
  } else {
    ScalarArgument unused{};
    unused.size = item;
    arguments.add(unused);
  }
  arguments.add(reports);
  arguments.add(static_cast<int32_t>(by.dim));
  arguments.add(by.skipped.value_or(0));
  for (int k = 0; k < indices; ++k) {
    arguments.add(arg_in_at(iter.data_ptr(k + 2), at::kLong));
    add_strides(arguments, s, iter.strides(k + 2), sizeof(int64_t));
    arguments.add(sizes[k]);
    arguments.add(strides[k] / item);
  }
  arguments.launch(queue,
                   s.run == Run::kNone ? range(s.items, kGroupSize)
                                       : range(ceil_div(s.items, s.runs), 1));
}

}  // namespace

void indexed(at::TensorIteratorBase& iter,
             Indexed mode,
             at::IntArrayRef sizes,
             at::IntArrayRef strides,
             const IndexedBy& by,
             const at::Scalar& alpha) {
  if (iter.numel() > 0) {
    launch_indexed(iter, mode, sizes, strides, by, alpha);
  }
}

void indexed_along(const Tensor& table,
                   const Tensor& plain,
                   const Tensor& index,
                   Indexed mode,
                   IndexedBy by,
                   const at::Scalar& alpha) {
  if (index.numel() == 0) {
    return;
  }
  if (index.dim() == 0) {
    indexed_along(table.reshape({1}),
                  plain.reshape({1}),
                  index.reshape({1}),
                  mode,
                  by,
                  alpha);
    return;
  }
  by.dim = at::maybe_wrap_dim(by.dim, index.dim());
  const int64_t dim = by.dim;
  at::DimVector strides(table.strides());
  const int64_t size = table.size(dim);
  const int64_t stride = strides[dim] * static_cast<int64_t>(table.itemsize());
  strides[dim] = 0;
  const Tensor held = table.as_strided(index.sizes(), strides);
  const Tensor part = plain.as_strided(index.sizes(), plain.strides());
  const bool is_get = mode == Indexed::kGet;
  const Tensor positions =
      index.scalar_type() == at::kLong ? index : index.to(at::kLong);
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(is_get ? part : held)
                  .add_const_input(is_get ? held : part)
                  .add_const_input(positions)
                  .build();
  indexed(iter, mode, {size}, {stride}, by, alpha);
}

}  // namespace torch_opencl::ops
