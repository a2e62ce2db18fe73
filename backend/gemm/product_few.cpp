// Products of a few rows, or columns, by a matrix that is read once.
#include "../../cpp/aten/factories.h"
#include "kernel_sources.h"
#include "product_gpu.h"

#include <utility>

namespace torch_opencl::ops {

using namespace torch_opencl::aten;

namespace {

// (A B)^T = B^T A^T: the few become the rows.
void swap_sides(ProductLaunch& l) {
  std::swap(l.product.rows, l.product.columns);
  std::swap(l.left, l.right);
  std::swap(l.left_access, l.right_access);
  Output& output = l.output;
  output.column = level(l.product.columns,
                        std::exchange(output.row_stride, output.column.stride));
  std::swap(l.addend.row_stride, l.addend.column_stride);
}

bool is_along_depth(const ProductLaunch& l) {
  return !l.right_access.is_along_lines;
}

FewChoice choice_of(const at::TensorBase& on, const ProductLaunch& l) {
  const Product& p = l.product;
  const at::ScalarType compute = compute_type(on.scalar_type());
  return choose_few({p.batch,
                     p.rows,
                     p.columns,
                     p.depth,
                     p.sum_block,
                     static_cast<int>(c10::elementSize(compute)),
                     false},
                    product_device_of(aten::device_of(on).info()),
                    is_along_depth(l),
                    static_cast<int>(l.right_access.width()));
}

// Writes the launch's output, or the parts of its sums, without its addend.
void launch_few(const at::TensorBase& on,
                const ProductLaunch& l,
                const FewChoice& choice,
                const Output& output,
                const Addend& addend) {
  const Product& p = l.product;
  const int64_t width = l.right_access.width();
  const at::ScalarType compute = compute_type(on.scalar_type());
  const bool is_part = choice.parts > 1;
  const auto stride = [&l](int64_t value) {
    return index_argument(value, l.is_large);
  };
  with_output(
      output,
      addend,
      compute,
      l.is_large,
      [&](const auto&... arguments) {
        launch_with_epilogue(
            is_part ? nullptr : l.target,
            on,
            sources::product_few,
            "product_few",
            {{"DTYPE", dtype_of(on)},
             {"OPERAND_DTYPE", dtype_of(l.operands)},
             {"OUT_DTYPE", dtype_of(is_part ? compute : on.scalar_type())},
             {"INDEX64", l.is_large},
             {"FEW", choice.few},
             {"WIDTH", width},
             {"FEW_WIDTH",
              !l.left_access.is_along_lines && l.left_access.is_wide ? 4 : 1},
             {"ALONG_DEPTH", is_along_depth(l)}},
            range(ceil_div(p.columns, choice.lines) * 128,
                  p.batch * choice.parts,
                  128,
                  1),
            arguments...);
      },
      output.view,
      l.left.view,
      l.right.view,
      addend.view,
      static_cast<int32_t>(p.rows),
      static_cast<int32_t>(p.columns),
      static_cast<int32_t>(p.depth),
      static_cast<int32_t>(p.batch),
      static_cast<int32_t>(choice.depth_of_part),
      static_cast<int32_t>(l.right.lines - width),
      stride(l.left.line.stride),
      stride(l.left.depth_stride),
      stride(l.left.batch_stride),
      stride(l.right.line.stride),
      stride(l.right.depth_stride),
      stride(l.right.batch_stride));
}

}  // namespace

void multiply_few(const at::TensorBase& on, ProductLaunch l) {
  if (l.product.columns < l.product.rows) {
    swap_sides(l);
  }
  const FewChoice choice = choice_of(on, l);
  if (choice.parts <= 1) {
    launch_few(on, l, choice, l.output, l.addend);
    return;
  }
  const Product& p = l.product;
  const at::Tensor parts =
      empty_like_meta({choice.parts * p.batch * p.rows * p.columns},
                      {},
                      on.options().dtype(compute_type(on.scalar_type())));
  const Output output{
      arg(parts), p.columns, level(p.columns, 1), p.rows * p.columns};
  launch_few(on, l, choice, output, {});
  add_parts(on, l, parts, choice.parts);
}

}  // namespace torch_opencl::ops
