// Ops that the CPU runs by decision: decompositions and transforms that no
// network's inner loop needs. They are neither counted nor announced.
#pragma once

#include <string>
#include <vector>

namespace torch_opencl::aten {

// Names of op families, such as "aten::linalg_qr".
const std::vector<std::string>& cpu_on_purpose();

bool is_cpu_on_purpose(const std::string& family);

}  // namespace torch_opencl::aten
