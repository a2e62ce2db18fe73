#include "product_gpu.h"

#include "../../cpp/aten/factories.h"
#include "../../cpp/aten/solver.h"
#include "kernel_sources.h"
#include "matrix_units.h"
#include "product_wish.h"

#include <bit>
#include <cstdlib>
#include <optional>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

OperandAccess access_of(const ProductOperand& operand, int64_t depth) {
  const int64_t line = operand.line.stride;
  const bool is_along_lines =
      operand.depth_stride != 1 &&
      (line == 1 || std::abs(line) < std::abs(operand.depth_stride));
  const bool is_wide = (is_along_lines ? line : operand.depth_stride) == 1 &&
                       are_fours({static_cast<int64_t>(operand.view.offset),
                                  is_along_lines ? operand.depth_stride : line,
                                  operand.line.outer_stride,
                                  operand.batch_stride,
                                  is_along_lines ? operand.lines : depth});
  return {is_along_lines, is_wide};
}

OutputAccess access_of(const Output& output, const Product& p) {
  const auto offset = static_cast<int64_t>(output.view.offset);
  const Levels& column = output.column;
  if (column.stride == 1) {
    return {are_fours({offset,
                       p.columns,
                       column.outer_stride == 0 ? 0 : column.size,
                       column.outer_stride,
                       output.row_stride,
                       output.batch_stride}),
            false};
  }
  return {output.row_stride == 1 && are_fours({offset,
                                               p.rows,
                                               column.stride,
                                               column.outer_stride,
                                               output.batch_stride}),
          true};
}

// How matrices that are not of images are read and written.
ProductLaunch with_accesses(ProductLaunch launch) {
  launch.left_access = access_of(launch.left, launch.product.depth);
  launch.right_access = access_of(launch.right, launch.product.depth);
  launch.output_access = access_of(launch.output, launch.product);
  return launch;
}

// Multipliers and shifts that divide numbers below 2^31: DIVIDE of
// product_image.clh.
struct Divisors {
  std::array<uint32_t, 8> multipliers{};
  std::array<uint32_t, 8> shifts{};

  void set(size_t lane, int32_t divisor) {
    const auto value = static_cast<uint32_t>(std::max(divisor, 1));
    const auto shift = static_cast<uint32_t>(std::bit_width(value - 1));
    const uint64_t excess = (uint64_t{1} << shift) - value;
    multipliers[lane] = static_cast<uint32_t>((excess << 32) / value + 1);
    shifts[lane] = shift;
  }
};

Divisors divisors_of(const ProductImage& image) {
  Divisors divisors;
  divisors.set(0, image.pixel_sizes[2]);
  divisors.set(1, image.pixel_sizes[1]);
  divisors.set(2, image.pixel_sizes[0]);
  divisors.set(3, image.element_size[2]);
  divisors.set(4, image.element_size[1]);
  divisors.set(5, image.element_size[3]);
  return divisors;
}

// Calls `function` with the arguments of output, addend and image, in the type
// `compute`, after `arguments`.
template <class Function, class... Arguments>
void with_output_and_image(const ProductLaunch& l,
                           at::ScalarType compute,
                           const Function& function,
                           const Arguments&... arguments) {
  const auto with_image = [&](const auto&... all) {
    const ProductImage* const image = l.image;
    if (image == nullptr) {
      function(all...);
      return;
    }
    const Divisors divisors = divisors_of(*image);
    function(all...,
             image->pixel_sizes,
             image->element_size,
             divisors.multipliers,
             divisors.shifts,
             image->step,
             image->origin,
             image->element_step,
             image->bounds,
             image->image_strides,
             image->channel_stride,
             image->left_strides,
             image->out_strides);
  };
  with_output(
      l.output, l.addend, compute, l.is_large, with_image, arguments...);
}

// The last line at which a load may begin.
int32_t last_load(const ProductOperand& operand, const OperandAccess& access) {
  return static_cast<int32_t>(operand.lines -
                              (access.is_along_lines ? access.width() : 1));
}

// Of a work-item, for a step of a tile of `lines` lines.
int64_t loads_of_item(const ProductTile& tile,
                      int lines,
                      const OperandAccess& access) {
  return lines * tile.step / tile.items() / access.width();
}

// Calls `function` with the arguments behind the output of a tile's kernel.
template <class Function>
void with_tile_arguments(const ProductLaunch& l,
                         at::ScalarType compute,
                         int64_t depth_of_part,
                         const Function& function) {
  const Product& p = l.product;
  const auto stride = [&l](int64_t value) {
    return index_argument(value, l.is_large);
  };
  with_output_and_image(l,
                        compute,
                        function,
                        l.left.view,
                        l.right.view,
                        l.addend.view,
                        static_cast<int32_t>(p.rows),
                        static_cast<int32_t>(p.columns),
                        static_cast<int32_t>(p.depth),
                        static_cast<int32_t>(p.batch),
                        static_cast<int32_t>(depth_of_part),
                        last_load(l.left, l.left_access),
                        last_load(l.right, l.right_access),
                        static_cast<int32_t>(l.left.line.size),
                        stride(l.left.line.outer_stride),
                        stride(l.left.line.stride),
                        stride(l.left.depth_stride),
                        stride(l.left.batch_stride),
                        static_cast<int32_t>(l.right.line.size),
                        stride(l.right.line.outer_stride),
                        stride(l.right.line.stride),
                        stride(l.right.depth_stride),
                        stride(l.right.batch_stride));
}

void launch_tiles(const at::TensorBase& on,
                  const ProductLaunch& l,
                  const ProductChoice& choice,
                  bool is_emulated,
                  bool has_large_registers) {
  const Product& p = l.product;
  const ProductTile& tile = choice.tile;
  const at::ScalarType compute = compute_type(on.scalar_type());
  const bool is_part = choice.parts > 1;
  const at::ScalarType out = is_part ? compute : on.scalar_type();
  const ProductImage* const image = l.image;
  const bool uses_units = choice.units != MatrixUnits::kNone;
  with_tile_arguments(
      l, compute, choice.depth_of_part, [&](const auto&... arguments) {
        launch_with_epilogue(
            l.target,
            on,
            uses_units ? sources::product_matrix : sources::product_gpu,
            uses_units ? "product_matrix" : "product_gpu",
            {{"MATRIX_UNITS", static_cast<int64_t>(choice.units)},
             {"IS_EMULATED", is_emulated},
             {"DTYPE", dtype_of(on)},
             {"OPERAND_DTYPE", dtype_of(l.operands)},
             {"OUT_DTYPE", dtype_of(out)},
             {"INDEX64", l.is_large},
             {"TILE_ROWS", tile.rows},
             {"TILE_COLUMNS", tile.columns},
             {"ITEM_ROWS", tile.item_rows},
             {"ITEM_COLUMNS", tile.item_columns},
             {"STEP", tile.step},
             {"UNROLL", unroll_of(on, tile.step)},
             {"HAS_TOTALS", choice.has_totals},
             {"SUM_BLOCK", p.sum_block},
             {"LEFT_ALONG_LINES", l.left_access.is_along_lines},
             {"LEFT_WIDTH", l.left_access.width()},
             {"LEFT_LOADS", loads_of_item(tile, tile.rows, l.left_access)},
             {"LEFT_HAS_LEVELS", l.left.line.outer_stride != 0},
             {"RIGHT_ALONG_LINES", l.right_access.is_along_lines},
             {"RIGHT_WIDTH", l.right_access.width()},
             {"RIGHT_LOADS", loads_of_item(tile, tile.columns, l.right_access)},
             {"RIGHT_HAS_LEVELS", l.right.line.outer_stride != 0},
             {"OUT_WIDTH", l.output_access.is_wide ? 4 : 1},
             {"OUT_ALONG_ROWS", l.output_access.is_along_rows},
             {"IS_PART", is_part},
             {"IS_IMAGE", image != nullptr},
             {"IS_WEIGHT_GRADIENT", image && image->is_weight_gradient},
             {"CHANNELS_INNERMOST", image && image->has_channels_innermost},
             {"IS_CHECKED", image && image->is_checked},
             {"IS_FLAT", image && image->is_flat},
             runtime::Define::option(kLargeRegisters, has_large_registers)},
            range(ceil_div(p.columns, tile.columns) * tile.items(),
                  ceil_div(p.rows, tile.rows),
                  p.batch * choice.parts,
                  tile.items(),
                  1,
                  1),
            l.output.view,
            arguments...);
      });
}

}  // namespace

int64_t unroll_of(const at::TensorBase& on, int64_t steps) {
  const cl_device_type type = aten::device_of(on).info().type;
  return (type & CL_DEVICE_TYPE_CPU) != 0 ? 1 : steps;
}

ProductDevice product_device_of(const runtime::DeviceInfo& info) {
  // Intel counts its execution units, sixteen of which share local memory.
  const bool is_intel = (info.type & CL_DEVICE_TYPE_GPU) != 0 &&
                        info.vendor.find("Intel") != std::string::npos;
  const int64_t units = is_intel ? info.compute_units / 16 : info.compute_units;
  return {std::max<int64_t>(units, 1),
          static_cast<int64_t>(info.max_work_group_size),
          static_cast<int64_t>(info.local_memory),
          is_intel,
          info.tuning->numbers};
}

void add_parts(const at::TensorBase& on,
               const ProductLaunch& l,
               const at::Tensor& parts,
               int64_t count) {
  const Product& p = l.product;
  const at::ScalarType compute = compute_type(on.scalar_type());
  const ProductImage* const image = l.image;
  std::optional<EpilogueTarget> target;
  if (l.target != nullptr) {
    target = *l.target;
    target->uses.push_back(parts);
  }
  with_output_and_image(
      l,
      compute,
      [&](const auto&... arguments) {
        launch_with_epilogue(
            target ? &*target : nullptr,
            on,
            sources::product_parts,
            "product_parts",
            {{"DTYPE", dtype_of(on)},
             {"INDEX64", l.is_large},
             {"IS_IMAGE", image != nullptr},
             {"IS_WEIGHT_GRADIENT", image && image->is_weight_gradient},
             {"CHANNELS_INNERMOST", image && image->has_channels_innermost}},
            range(p.rows * p.columns, p.batch, 64, 1),
            l.output.view,
            arguments...);
      },
      arg_in(parts),
      l.addend.view,
      static_cast<int32_t>(p.rows),
      static_cast<int32_t>(p.columns),
      static_cast<int32_t>(p.batch),
      static_cast<int32_t>(count));
}

namespace {

// Whether an item's sums are too many for 128 registers beside an image's
// indices, which single loads have more of.
bool needs_large_registers(const at::TensorBase& on,
                           const ProductLaunch& l,
                           const ProductChoice& choice,
                           bool is_emulated) {
  if (l.image == nullptr) {
    return false;
  }
  if (choice.units != MatrixUnits::kNone) {
    return choice.units == MatrixUnits::kIntel8 && !is_emulated;
  }
  const auto words =
      static_cast<int>(c10::elementSize(compute_type(on.scalar_type()))) / 4;
  const int sums = choice.tile.item_rows * choice.tile.item_columns * words;
  const bool are_loads_wide = l.left_access.is_wide && l.right_access.is_wide;
  return sums >= (are_loads_wide ? 64 : 32) && takes_large_registers(on);
}

void launch_choice(const at::TensorBase& on,
                   const ProductLaunch& l,
                   const ProductChoice& choice,
                   bool is_emulated) {
  const Product& p = l.product;
  const bool has_large_registers =
      needs_large_registers(on, l, choice, is_emulated);
  if (choice.parts == 1) {
    launch_tiles(on, l, choice, is_emulated, has_large_registers);
    return;
  }
  const at::Tensor parts =
      empty_like_meta({choice.parts * p.batch * p.rows * p.columns},
                      {},
                      on.options().dtype(compute_type(on.scalar_type())));
  ProductLaunch split = l;
  split.output = {
      arg(parts), p.columns, level(p.columns, 1), p.rows * p.columns};
  split.output_access = access_of(split.output, p);
  split.addend = {};
  split.target = nullptr;
  launch_tiles(on, split, choice, is_emulated, has_large_registers);
  add_parts(on, l, parts, choice.parts);
}

}  // namespace

void launch_product(const at::TensorBase& on, const ProductLaunch& l) {
  const Product& p = l.product;
  const MatrixUnits emulated = emulated_units();
  const bool is_emulated = emulated != MatrixUnits::kNone;
  MatrixUnits units = MatrixUnits::kNone;
  if (c10::elementSize(l.operands) == 2) {
    units = is_emulated ? emulated : matrix_units_of(on, l.operands);
  }
  const ProductSize size{
      p.batch,
      p.rows,
      p.columns,
      p.depth,
      p.sum_block,
      static_cast<int>(c10::elementSize(compute_type(on.scalar_type()))),
      l.image != nullptr,
      units};
  const ProductDevice device = product_device_of(aten::device_of(on).info());
  const auto run = [&](const ProductChoice& choice) {
    launch_choice(on, l, choice, is_emulated);
  };
  const ProductWish wish =
      has_wishes(on) ? wish_of(on, l, size, device, run) : ProductWish{};
  run(choose_product(size, device, wish));
}

void multiply_with_units(MatrixUnits units,
                         const at::Tensor& left,
                         const at::Tensor& right,
                         const at::Tensor& out) {
  const int64_t rows = out.size(0), columns = out.size(1), depth = left.size(1);
  const Product product{1, rows, columns, depth};
  const ProductLaunch launch = with_accesses(
      {.operands = left.scalar_type(),
       .product = product,
       .left =
           {arg_in(left), level(rows, left.stride(0)), left.stride(1), 0, rows},
       .right = {arg_in(right),
                 level(columns, right.stride(1)),
                 right.stride(0),
                 0,
                 columns},
       .output = {arg(out),
                  out.stride(0),
                  level(columns, out.stride(1)),
                  out.numel()},
       .addend = {},
       .is_large = false});
  const ProductChoice choice = choose_product(
      {1, rows, columns, depth, product.sum_block, 4, false, units},
      product_device_of(aten::device_of(out).info()));
  TORCH_CHECK(choice.units == units,
              "opencl: no tile of matrix units fits the device");
  launch_tiles(out, launch, choice, /*is_emulated=*/false, is_intel(units));
}

void multiply_gpu(const at::TensorBase& on, const ProductLaunch& matrices) {
  check_sides(matrices.product);
  const ProductLaunch launch = with_accesses(matrices);
  const Product& product = launch.product;
  const bool has_levels = launch.left.line.outer_stride != 0 ||
                          launch.right.line.outer_stride != 0 ||
                          launch.output.column.outer_stride != 0;
  const bool is_few = std::min(product.rows, product.columns) <= kFewRows;
  if (is_few && !has_levels && !settings_wish_tile()) {
    multiply_few(on, launch);
  } else {
    launch_product(on, launch);
  }
}

}  // namespace torch_opencl::ops
