// Ops that the CPU runs by decision: decompositions and transforms that no
// network's inner loop needs. They are neither counted nor announced.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace torch_opencl::aten {

// Names of op families, such as "aten::linalg_qr".
const std::vector<std::string>& cpu_on_purpose();

bool is_cpu_on_purpose(const std::string& family);

// det, slogdet and solve factorise the transpose of a contiguous matrix, and
// their gradients ask the matrix again. A copy of one with gaps would be
// contiguous; this puts a transposed one into `stack`.
void keep_order_of_matrix(const c10::FunctionSchema& op,
                          torch::jit::Stack* stack);

}  // namespace torch_opencl::aten
