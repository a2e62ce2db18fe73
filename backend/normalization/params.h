// The parameters of normalisations as their kernels take them.
#pragma once

#include "../../cpp/aten/launch.h"
#include "../common/dtype_check.h"

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// Calls `launch` with a number of the kernels' compute_t.
template <class Launch>
void with_compute_type(const at::Tensor& input, const Launch& launch) {
  if (input.scalar_type() == at::kDouble) {
    launch(double());
  } else {
    launch(float());
  }
}

// That of the first defined one.
template <class... Tensors>
at::ScalarType param_type(const at::Tensor& first, const Tensors&... others) {
  if constexpr (sizeof...(others) > 0) {
    return first.defined() ? first.scalar_type() : param_type(others...);
  } else {
    return first.scalar_type();
  }
}

template <class... Tensors>
bool all_of_type(at::ScalarType type, const Tensors&... params) {
  return ((!params.defined() || params.scalar_type() == type) && ...);
}

// Parameters have the input's dtype or, beside half types, float.
inline void check_param(const at::Tensor& input, const at::Tensor& param) {
  const at::ScalarType type = input.scalar_type();
  TORCH_CHECK(!param.defined() || param.scalar_type() == type ||
                  param.scalar_type() == aten::compute_type(type),
              "mixed dtype: expect parameter to have scalar type of ",
              c10::toString(aten::compute_type(type)));
}

// Two that go together have one dtype.
inline void check_param_pair(const at::Tensor& input,
                             const at::Tensor& first,
                             const at::Tensor& second) {
  check_param(input, first);
  check_param(input, second);
  if (first.defined() && second.defined()) {
    check_scalar_type(second, first.scalar_type());
  }
}

inline at::Tensor packed(const at::Tensor& param) {
  return param.defined() ? param.contiguous()  // copy: a row of numbers
                         : param;
}

}  // namespace torch_opencl::ops
