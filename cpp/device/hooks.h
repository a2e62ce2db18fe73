// Whether PyTorch's one out-of-tree device is ours.
#pragma once

namespace torch_opencl::device {

// False where another PrivateUse1 backend was loaded first.
bool hooks_registered();

}  // namespace torch_opencl::device
