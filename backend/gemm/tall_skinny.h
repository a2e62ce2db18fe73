// Products of a long matrix with one of a few columns.
#pragma once

#include "packed.h"

namespace torch_opencl::ops {

// The most columns of such a product.
constexpr int64_t kTallSkinny = 16;

// left x right for a product of at most kTallSkinny columns, of floating-point
// type, on a cpu-class device. The operands' and the output's levels are
// single.
void multiply_tall_skinny(const at::Tensor& on,
                          const Product& product,
                          const Operand& left,
                          const Operand& right,
                          const Output& output,
                          const Addend& addend,
                          bool is_large);

}  // namespace torch_opencl::ops
