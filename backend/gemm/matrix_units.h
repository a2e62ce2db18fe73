// The units of GPUs that multiply small matrices of 16-bit numbers.
#pragma once

#include "../../cpp/aten/launch.h"
#include "product_choice.h"

namespace torch_opencl::ops {

// Those of the device for operands of `dtype`, kNone where it has none that are
// known. The first call for a device that may have them multiplies with them
// and compares: drivers whose compiler does not know them, or whose results
// differ, have none.
MatrixUnits matrix_units_of(const at::TensorBase& on, at::ScalarType dtype);

// "gfx11", "gfx12", "sm_80", "intel_8", "intel_16"; kNone for another name.
MatrixUnits matrix_units_named(std::string_view name);

}  // namespace torch_opencl::ops
