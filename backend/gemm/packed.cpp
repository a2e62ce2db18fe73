#include "packed.h"

#include "../../cpp/aten/factories.h"
#include "../../cpp/aten/packed_weight.h"
#include "../common/int_size.h"
#include "../common/lanes.h"
#include "../common/non_temporal.h"
#include "kernel_sources.h"
#include "product_gpu.h"

#include <algorithm>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// Multiplications of a work-item, where that leaves each core some: drivers
// spend up to 300 ns on one.
constexpr int64_t kWorkOfItem = int64_t(1) << 19;
constexpr int64_t kItemsOfCore = 64;

// Columns of a tile, or fewer.
int64_t widest_columns(const at::TensorBase& on) {
  return aten::device_of(on).info().has_avx512_registers ? 48 : 16;
}

// TILES_OF_BLOCK. Tiles of wide registers read little enough of what the caches
// do not hold for one at a time.
int64_t tiles_of_block(const at::TensorBase& on) {
  return aten::device_of(on).info().has_avx512_registers ? 1 : 32;
}

// Panels of a GPU, whose tiles take several or a part of one.
constexpr int64_t kPanelOfGpu = 64;

ProductOperand panels_of(const at::Tensor& panels,
                         int64_t rows,
                         int64_t depth) {
  const int64_t lines = round_up(rows, kPanelOfGpu);
  const Levels line = rows > kPanelOfGpu
                          ? Levels{kPanelOfGpu, kPanelOfGpu * depth, 1}
                          : level(kPanelOfGpu, 1);
  return {arg_in(panels), line, kPanelOfGpu, lines * depth, lines};
}

bool is_compute_typed(const at::TensorBase& on) {
  return aten::device_of(on).is_cpu() &&
         compute_type(on.scalar_type()) == on.scalar_type();
}

// What a CPU divides a product into.
struct CpuTiles {
  int64_t height;
  int64_t width;
  bool shares_panels;
  int64_t count;          // of each of the batch
  int64_t of_block;       // TILES_OF_BLOCK
  int64_t at_once;        // of a work-item
  int64_t rows_of_strip;  // of tiles
};

CpuTiles cpu_tiles_of(const at::TensorBase& on, const Product& product) {
  const InPlace in_place = product.in_place;
  const int64_t width = in_place == InPlace::kRight
                            ? widest_columns(on)
                            : right_width(on, product.columns);
  const int64_t height = left_width(on, product.rows);
  const int64_t row_tiles = ceil_div(product.rows, height);
  const int64_t count = row_tiles * ceil_div(product.columns, width);
  const bool shares_panels =
      in_place != InPlace::kNeither && product.shares_panels;
  const int64_t of_block = tiles_of_block(on);
  const int64_t at_once = tiles_at_once(
      on, count, product.batch, height * width * product.depth, of_block);
  const bool has_strips =
      of_block > 1 || (in_place == InPlace::kLeft && shares_panels);
  return {height,
          width,
          shares_panels,
          count,
          of_block,
          at_once,
          has_strips ? std::min(row_tiles, kRowTilesOfStrip) : row_tiles};
}

template <class... Arguments>
void launch_cpu_tiles(const at::TensorBase& on,
                      const Product& product,
                      const CpuTiles& tiles,
                      bool is_large,
                      const Arguments&... arguments) {
  const InPlace in_place = product.in_place;
  launch(on,
         sources::gemm,
         "gemm_cpu",
         {{"DTYPE", dtype_of(on)},
          {"LANES", 16},
          {in_place == InPlace::kRight  ? "RIGHT_IN_PLACE"
           : in_place == InPlace::kLeft ? "LEFT_IN_PLACE"
                                        : "PANELS",
           1},
          {tiles.shares_panels ? "SHARES_PANELS" : "HAS_OWN_PANELS", 1},
          {"NON_TEMPORAL",
           is_non_temporal(aten::device_of(on),
                           on.scalar_type(),
                           product.batch * product.rows * product.columns)},
          {"ROWS", tiles.height},
          {"ROWS_AT_ONCE", rows_at_once(on, tiles.height)},
          {"COLUMNS", tiles.width},
          {"TILES_OF_BLOCK", tiles.of_block},
          {"SUM_BLOCK", product.sum_block},
          {"INDEX64", is_large}},
         range(ceil_div(tiles.count, tiles.at_once), product.batch, 1, 1),
         arguments...);
}

constexpr const char* kProductName = "matrix product";

}  // namespace

void check_sides(const Product& product) {
  int_size(kProductName, product.batch);
  int_size(kProductName, product.rows);
  int_size(kProductName, product.columns);
  int_size(kProductName, product.depth);
}

int64_t tiles_at_once(const at::TensorBase& on,
                      int64_t tiles,
                      int64_t batch,
                      int64_t multiplications,
                      int64_t of_block) {
  const int64_t wanted = std::max(
      of_block, ceil_div(kWorkOfItem, std::max<int64_t>(multiplications, 1)));
  const int64_t cores = aten::device_of(on).info().compute_units;
  const int64_t shared = tiles * batch / (kItemsOfCore * cores);
  return std::clamp<int64_t>(std::min(wanted, shared), 1, tiles);
}

bool needs_long_index(std::initializer_list<at::TensorBase> tensors) {
  for (const at::TensorBase& tensor : tensors) {
    int64_t reach = 1;
    for (int64_t d = 0; tensor.defined() && d < tensor.dim(); ++d) {
      reach += std::max<int64_t>(tensor.size(d) - 1, 0) * tensor.stride(d);
    }
    if (!fits_int32(reach)) {
      return true;
    }
  }
  return false;
}

int64_t left_width(const at::TensorBase& on, int64_t rows) {
  const runtime::Device& device = aten::device_of(on);
  if (!device.is_cpu()) {
    return kPanelOfGpu;
  }
  // Tiles of 16 rows, in parts, are a sixth faster than those of 8 where the
  // registers hold neither.
  return device.info().has_avx512_registers || rows < 16 ||
                 6 * round_up(rows, 16) > 7 * round_up(rows, 8)
             ? 8
             : 16;
}

int64_t right_width(const at::TensorBase& on, int64_t columns) {
  if (!aten::device_of(on).is_cpu()) {
    return kPanelOfGpu;
  }
  const int64_t widest = widest_columns(on);
  return widest > 32 && round_up(columns, 32) < round_up(columns, widest)
             ? 32
             : widest;
}

int64_t rows_at_once(const at::TensorBase& on, int64_t width) {
  return aten::device_of(on).info().has_avx512_registers ? width
         : width == 8                                    ? 5
                                                         : 6;
}

bool is_right_in_place(const at::TensorBase& on,
                       int64_t rows,
                       int64_t columns,
                       int64_t depth) {
  const int64_t width = widest_columns(on);
  const int64_t readers =
      depth <= kFewLines ? kReadersOfFewLines : kReadersInPlace;
  return is_compute_typed(on) && rows <= readers && columns >= width &&
         round_up(columns, width) <= columns + columns / 8;
}

bool is_left_in_place(const at::TensorBase& on, int64_t rows) {
  const int64_t width = left_width(on, rows);
  return is_compute_typed(on) && rows >= width &&
         round_up(rows, width) <= rows + rows / 8;
}

at::Tensor empty_panels(const at::TensorBase& on,
                        int64_t batch,
                        int64_t rows,
                        int64_t depth,
                        int64_t width) {
  int_size(kProductName, rows);
  int_size(kProductName, depth);
  return empty_like_meta({batch * round_up(rows, width) * depth},
                         {},
                         on.options().dtype(compute_type(on.scalar_type())));
}

at::Tensor pack(const at::TensorBase& on,
                const Operand& operand,
                int64_t batch,
                int64_t rows,
                int64_t depth,
                int64_t width,
                bool is_large) {
  at::Tensor panels = empty_panels(on, batch, rows, depth, width);
  if (panels.numel() == 0) {
    return panels;
  }
  const bool is_cpu = aten::device_of(on).is_cpu();
  const auto stride = [is_large](int64_t value) {
    return index_argument(value, is_large);
  };
  const size_t count = ceil_div(rows, width);
  launch(on,
         sources::pack,
         is_cpu ? "pack_panels_cpu" : "pack_panels_gpu",
         {{"DTYPE", dtype_of(on)},
          {"LANES", is_cpu ? kLanes : 1},
          {"WIDTH", width},
          {"INDEX64", is_large},
          {is_cpu ? "IS_CPU" : "IS_GPU", 1}},
         is_cpu ? range(count, ceil_div(depth, kDepthBlock), batch, 1, 1, 1)
                : range(depth * width, count, batch, 64, 1, 1),
         operand.view,
         arg(panels),
         static_cast<int32_t>(rows),
         static_cast<int32_t>(depth),
         static_cast<int32_t>(operand.row.size),
         stride(operand.row.outer_stride),
         stride(operand.row.stride),
         static_cast<int32_t>(operand.depth.size),
         stride(operand.depth.outer_stride),
         stride(operand.depth.stride),
         stride(operand.batch_stride));
  return panels;
}

at::Tensor pack_kept(const at::Tensor& weight,
                     int64_t first,
                     Operand operand,
                     int64_t batch,
                     int64_t rows,
                     int64_t depth,
                     int64_t width) {
  operand.view = arg_in(weight);
  operand.view.offset += first;
  return packed_weight(
      weight,
      sources::pack,
      {first,
       operand.row.size,
       operand.row.outer_stride,
       operand.row.stride,
       operand.depth.size,
       operand.depth.outer_stride,
       operand.depth.stride,
       operand.batch_stride,
       batch,
       rows,
       depth,
       width},
      [&] { return pack(weight, operand, batch, rows, depth, width, false); });
}

void multiply(const at::TensorBase& on,
              const Product& product,
              const at::Tensor& left,
              const at::Tensor& right,
              const Output& output,
              const Addend& addend,
              bool is_large) {
  check_sides(product);
  if (!aten::device_of(on).is_cpu()) {
    // Sums of several chunks.
    const bool adds_to_output = !addend.beta.equal(0) &&
                                addend.view.memory == output.view.memory &&
                                addend.view.offset == output.view.offset;
    // Panels may be larger than what was packed, which `is_large` is of.
    const int64_t lines =
        round_up(std::max(product.rows, product.columns), kPanelOfGpu);
    multiply_gpu(on,
                 {.operands = left.scalar_type(),
                  .product = product,
                  .left = panels_of(left, product.rows, product.depth),
                  .right = panels_of(right, product.columns, product.depth),
                  .output = output,
                  .addend = addend,
                  .is_large = is_large || !fits_int32(lines * product.depth),
                  .can_repeat = !adds_to_output});
    return;
  }
  const CpuTiles tiles = cpu_tiles_of(on, product);
  with_output(
      output,
      addend,
      compute_type(on.scalar_type()),
      is_large,
      [&](const auto&... arguments) {
        launch_cpu_tiles(on, product, tiles, is_large, arguments...);
      },
      arg_in(left),
      arg_in(right),
      output.view,
      addend.view,
      static_cast<int32_t>(product.rows),
      static_cast<int32_t>(product.columns),
      static_cast<int32_t>(product.depth),
      index_argument(product.in_place_stride, is_large),
      index_argument(product.in_place_batch_stride, is_large),
      static_cast<int32_t>(tiles.at_once),
      static_cast<int32_t>(tiles.rows_of_strip));
}

}  // namespace torch_opencl::ops
