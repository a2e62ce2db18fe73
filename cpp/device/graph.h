// torch.accelerator.Graph on this device.
#pragma once

namespace torch_opencl::device {

// Once the device has its name.
void register_graphs();

}  // namespace torch_opencl::device
