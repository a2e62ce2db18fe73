// Which kernel, tile and range a problem takes on a class of device.
#include "../common/integers.h"
#include "../common/lanes.h"
#include "../common/large_registers.h"
#include "../gemm/matrix_units.h"
#include "../gemm/product_gpu.h"
#include "attention.h"
#include "kernel_sources.h"

#include <algorithm>
#include <optional>

namespace torch_opencl::ops {
namespace {

using namespace torch_opencl::aten;
using at::Tensor;

// Few widths of tiles, hence few programs.
int64_t cpu_columns(int64_t head_dim) {
  const int64_t step = head_dim <= 128 ? 32 : 64;
  return ceil_div(head_dim, step) * step;
}
int64_t gpu_columns(int64_t head_dim) {
  return head_dim <= 64 ? 64 : (head_dim <= 128 ? 128 : 256);
}

// Two vectors of lanes keep the multipliers busy; one is better where there
// are few rows, and where two panels would leave the cache.
int64_t cpu_vectors(int64_t head_dim, int64_t rows) {
  return rows > kLanes && head_dim <= 128 ? 2 : 1;
}

int64_t cpu_block(int64_t head_dim) {
  return head_dim <= 64 ? 64 : (head_dim <= 128 ? 32 : 16);
}

// Four rows a work-item, where there are that many and their sums fit into
// registers.
int64_t gpu_item_rows(int64_t head_dim, int64_t rows) {
  return rows > 32 && head_dim <= 128 ? 4 : 2;
}

struct Kernels {
  const char* cpu;
  const char* gpu;
  bool has_many_sums;  // of the one for GPUs: too many for 128 registers
};

// Of a kernel by matrix units.
struct UnitsTile {
  MatrixUnits units;
  bool is_emulated;
  int64_t rows;
  int64_t columns;
  int64_t head_dim;
};

// Scores and the sums of a gradient have to fit into registers, the tiles into
// local memory.
std::optional<UnitsTile> choose_units(const Attention& attention,
                                      int64_t rows,
                                      bool is_backward) {
  constexpr int64_t kFewestRows = 16;
  constexpr uint64_t kLocalMemory = 48 << 10;
  const at::ScalarType dtype = attention.query.scalar_type();
  if (c10::elementSize(dtype) != 2 || rows < kFewestRows) {
    return std::nullopt;
  }
  const MatrixUnits emulated = emulated_units();
  const bool is_emulated = emulated != MatrixUnits::kNone;
  const MatrixUnits units =
      is_emulated ? emulated : matrix_units_of(attention.query, dtype);
  const bool is_small =
      aten::device_of(attention.query).info().local_memory < kLocalMemory;
  if (units == MatrixUnits::kNone || (is_small && !is_emulated)) {
    return std::nullopt;
  }
  // Registers of eight lanes.
  const bool is_narrow = units == MatrixUnits::kIntel8;
  const int64_t head_dim = attention.head_dim();
  if (head_dim > (is_narrow ? 64 : 128)) {
    return std::nullopt;
  }
  UnitsTile tile{units, is_emulated, 64, 64, 128};
  if (head_dim <= 64) {
    tile.head_dim = head_dim <= 32 ? 32 : 64;
  } else if (is_backward) {
    tile.rows = 32;
  }
  if (is_narrow || is_backward || head_dim > 64) {
    tile.columns = is_backward && (is_narrow || head_dim > 64) ? 16 : 32;
  }
  return tile;
}

bool has_rows_of_fours(const Tensor& tensor) {
  const auto offset = static_cast<int64_t>(arg_in(tensor).offset);
  return tensor.stride(3) == 1 && are_fours({offset,
                                             tensor.size(3),
                                             tensor.stride(0),
                                             tensor.stride(1),
                                             tensor.stride(2)});
}

// How elements are read: four of a row at a time, and at offsets of 64 bits.
struct Access {
  bool is_wide = true;
  bool is_large = false;
};

Access access_of(const Attention& attention,
                 std::initializer_list<Tensor> operands,
                 std::initializer_list<Tensor> results) {
  Access access;
  for (const Tensor& tensor : operands) {
    access.is_wide &= has_rows_of_fours(tensor);
  }
  // Tiles end past the last row; of a head's bytes.
  constexpr int64_t kLargest = int64_t{1} << 31;
  const auto add = [&](const Tensor& tensor, int64_t margin) {
    const int64_t elements = (tensor.size(2) + margin) * tensor.stride(2) +
                             (tensor.size(3) + margin) * tensor.stride(3);
    access.is_large |= elements * tensor.element_size() >= kLargest;
  };
  constexpr int64_t kMargin = 128;
  for (const Tensor& tensor : operands) {
    add(tensor, kMargin);
  }
  for (const Tensor& tensor : results) {
    add(tensor, kMargin);
  }
  if (attention.mask.defined()) {
    add(attention.mask, 0);
  }
  return access;
}

at::ScalarType mask_dtype_of(const Attention& attention) {
  return attention.mask.defined() ? attention.mask.scalar_type() : at::kFloat;
}

// Kernels take the operands of the forward pass first.
template <class... Arguments>
void launch_on(const Attention& attention,
               const KernelSource& source,
               const char* kernel,
               std::initializer_list<runtime::Define> defines,
               const NDRange& range,
               const Arguments&... arguments) {
  launch(attention.query,
         source,
         kernel,
         defines,
         range,
         attention.shape,
         arg_in(attention.query),
         arg_in(attention.key),
         arg_in(attention.value),
         arg_in(attention.mask),
         arguments...);
}

// A work-item of a CPU, or a work-group of a GPU, has a tile of the `rows` of
// a head.
template <class... Arguments>
void run(const Attention& attention,
         const Kernels& kernels,
         bool stores_fours,
         int64_t rows,
         int64_t heads,
         const Arguments&... arguments) {
  const bool is_cpu = aten::device_of(attention.query).is_cpu();
  const int64_t head_dim = attention.head_dim();
  const int64_t vectors = cpu_vectors(head_dim, rows);
  const int64_t item_rows = gpu_item_rows(head_dim, rows);
  const at::ScalarType mask_dtype = mask_dtype_of(attention);
  launch_on(
      attention,
      is_cpu ? sources::attention_cpu : sources::attention_gpu,
      is_cpu ? kernels.cpu : kernels.gpu,
      {{"DTYPE", dtype_of(attention.query)},
       {"HEAD_DIM", is_cpu ? cpu_columns(head_dim) : gpu_columns(head_dim)},
       {"VECTORS", is_cpu ? vectors : 1},
       {"BLOCK", is_cpu ? cpu_block(head_dim) : 1},
       {"ITEM_ROWS", is_cpu ? 1 : item_rows},
       {"STORES_FOURS", !is_cpu && stores_fours},
       {"HAS_MASK", attention.mask.defined()},
       {"MASK_DTYPE", dtype_of(mask_dtype)},
       {"MASK_IS_BOOL", mask_dtype == at::kBool},
       {"IS_CAUSAL", attention.is_causal},
       {"HAS_DROPOUT", attention.has_dropout},
       runtime::Define::option(
           kLargeRegisters,
           kernels.has_many_sums && takes_large_registers(attention.query))},
      is_cpu ? range(ceil_div(rows, vectors * kLanes),
                     heads,
                     attention.batch,
                     1,
                     1,
                     1)
             : range(ceil_div(rows, item_rows * 16) * 16,
                     heads * 16,
                     attention.batch,
                     16,
                     16,
                     1),
      arguments...);
}

// A work-group has a tile of the `rows` of a head.
template <class... Arguments>
void run_by_units(const Attention& attention,
                  const UnitsTile& tile,
                  const KernelSource& source,
                  const char* kernel,
                  const Access& access,
                  int64_t rows,
                  int64_t heads,
                  const Arguments&... arguments) {
  const UnitShape unit = shape_of(tile.units);
  const int64_t items = tile.rows / unit.rows * unit.wave;
  const at::ScalarType mask_dtype = mask_dtype_of(attention);
  launch_on(attention,
            source,
            kernel,
            {{"MATRIX_UNITS", static_cast<int64_t>(tile.units)},
             {"IS_EMULATED", tile.is_emulated},
             {"DTYPE", dtype_of(attention.query)},
             {"HEAD_DIM", tile.head_dim},
             {"ROWS", tile.rows},
             {"COLUMNS", tile.columns},
             {"SCORE_UNITS", tile.columns / unit.columns},
             {"SUM_UNITS", tile.head_dim / unit.columns},
             {"BLOCKS", ceil_div(tile.columns * tile.head_dim / 16, items)},
             {"UNROLL", unroll_of(attention.query, 8)},
             {"IS_WIDE", access.is_wide},
             {"OFFSET64", access.is_large},
             {"HAS_MASK", attention.mask.defined()},
             {"MASK_DTYPE", dtype_of(mask_dtype)},
             {"MASK_IS_BOOL", mask_dtype == at::kBool},
             {"IS_CAUSAL", attention.is_causal},
             {"HAS_DROPOUT", attention.has_dropout},
             runtime::Define::option(
                 kLargeRegisters, is_intel(tile.units) && !tile.is_emulated)},
            range(ceil_div(rows, tile.rows) * items,
                  heads,
                  attention.batch,
                  items,
                  1,
                  1),
            arguments...);
}

}  // namespace

void attention_forward(const Attention& attention,
                       const Tensor& out,
                       const Tensor& logsumexp) {
  if (attention.shape.queries == 1 && !attention.has_dropout) {
    attention_decode(attention, out, logsumexp);
    return;
  }
  const AttentionShape& shape = attention.shape;
  const auto tile =
      choose_units(attention, shape.queries, /*is_backward=*/false);
  if (tile && try_units(attention.query, "attention_matrix", [&] {
        run_by_units(
            attention,
            *tile,
            sources::attention_matrix,
            "attention_matrix",
            access_of(attention,
                      {attention.query, attention.key, attention.value},
                      {out}),
            shape.queries,
            shape.heads,
            arg(out),
            arg(logsumexp));
      })) {
    return;
  }
  run(attention,
      {"attention_forward_cpu", "attention_forward_gpu", false},
      has_rows_of_fours(out),
      shape.queries,
      shape.heads,
      arg(out),
      arg(logsumexp));
}

void attention_backward(const Attention& attention,
                        const AttentionGradients& gradients) {
  const AttentionShape& shape = attention.shape;
  const auto step = [&](const KernelSource& source,
                        const char* units_kernel,
                        const Kernels& kernels,
                        int64_t rows,
                        int64_t heads,
                        const auto&... results) {
    const auto launched = [&](const auto& function) {
      function(rows,
               heads,
               arg(gradients.grad_out),
               arg(gradients.logsumexp),
               arg(gradients.delta),
               arg(results)...);
    };
    const auto tile = choose_units(attention, rows, /*is_backward=*/true);
    const auto by_units = [&] {
      launched([&](const auto&... arguments) {
        run_by_units(attention,
                     *tile,
                     source,
                     units_kernel,
                     access_of(attention,
                               {attention.query,
                                attention.key,
                                attention.value,
                                gradients.grad_out},
                               {results...}),
                     arguments...);
      });
    };
    if (!tile || !try_units(attention.query, units_kernel, by_units)) {
      launched([&](const auto&... arguments) {
        run(attention,
            kernels,
            (has_rows_of_fours(results) && ...),
            arguments...);
      });
    }
  };
  if (gradients.grad_query.defined()) {
    step(sources::attention_matrix_grad_query,
         "attention_matrix_grad_query",
         {"attention_grad_query_cpu", "attention_grad_query_gpu", true},
         shape.queries,
         shape.heads,
         gradients.grad_query);
  }
  if (gradients.grad_key.defined()) {
    step(sources::attention_matrix_grad_key_value,
         "attention_matrix_grad_key_value",
         {"attention_grad_key_value_cpu", "attention_grad_key_value_gpu", true},
         shape.keys,
         shape.key_heads,
         gradients.grad_key,
         gradients.grad_value);
  }
}

}  // namespace torch_opencl::ops
