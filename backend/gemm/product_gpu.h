// Matrix products of gpu-class devices, of unpacked operands (product_gpu.cl).
#pragma once

#include "../epilogue/epilogue.h"
#include "packed.h"
#include "product_choice.h"

#include <array>

namespace torch_opencl::ops {

// Elements (line, k): rows of the left operand, columns of the right one.
// `line` has two levels only where it is of panels. `lines` are in memory.
struct ProductOperand {
  aten::BufferView view;
  Levels line;
  int64_t depth_stride;
  int64_t batch_stride;
  int64_t lines;
};

// How a kernel reads an operand: lanes along its lines, four elements a load.
struct OperandAccess {
  bool is_along_lines;
  bool is_wide;

  int64_t width() const { return is_wide ? 4 : 1; }
};

// How it stores outputs: four at once, of a column.
struct OutputAccess {
  bool is_wide;
  bool is_along_rows;
};

// A convolution's columns as right operand: the arguments of product_image.clh.
struct ProductImage {
  using Four = std::array<int32_t, 4>;

  bool is_weight_gradient;
  bool has_channels_innermost;
  bool is_checked;
  bool is_flat;
  Four pixel_sizes;
  Four element_size;
  Four step;
  Four origin;
  Four element_step;
  Four bounds;
  Four image_strides;
  int32_t channel_stride;
  Four left_strides;
  Four out_strides;
};

struct ProductLaunch {
  at::ScalarType operands;  // their dtype
  Product product;
  ProductOperand left;
  ProductOperand right;
  OperandAccess left_access{};
  OperandAccess right_access{};
  Output output;
  OutputAccess output_access{};
  Addend addend;
  bool is_large;
  bool can_repeat = true;  // once or twice gives the same
  const ProductImage* image = nullptr;
  // Where the output may be pending: what it is of, and the operands.
  const EpilogueTarget* target = nullptr;
};

// What a kernel for GPUs unrolls a loop of `steps` by: compilers of CPU
// drivers, where such kernels are tested, take long for it.
int64_t unroll_of(const at::TensorBase& on, int64_t steps);

ProductDevice product_device_of(const runtime::DeviceInfo& info);

// On the device of `on`, whose dtype is that of output and addend.
void launch_product(const at::TensorBase& on, const ProductLaunch& launch);

// Adds `count` dense matrices for each of the batch to the output, in order.
void add_parts(const at::TensorBase& on,
               const ProductLaunch& launch,
               const at::Tensor& parts,
               int64_t count);

// The product of at most kFewRows rows; levels are single.
void multiply_few(const at::TensorBase& on, ProductLaunch launch);

// left @ right by these units, of dense matrices of a 16-bit dtype. Throws
// where the driver's compiler does not know them.
void multiply_with_units(MatrixUnits units,
                         const at::Tensor& left,
                         const at::Tensor& right,
                         const at::Tensor& out);

// Any of matrices, whose accesses it finds.
void multiply_gpu(const at::TensorBase& on, const ProductLaunch& matrices);

}  // namespace torch_opencl::ops
