// Which tile of product_choice.h is wished for: what
// torch.backends.opencl.solver names, what was measured, or what is known of
// the device.
#pragma once

#include "product_gpu.h"

#include <functional>

namespace torch_opencl::ops {

// Whether anything may be wished for on the device of `on`.
bool has_wishes(const at::TensorBase& on);

// Whether torch.backends.opencl.solver names a tile.
bool settings_wish_tile();

// `run` runs a choice, which is measured where torch.backends.opencl.benchmark
// is on and the launch may run twice.
ProductWish wish_of(const at::TensorBase& on,
                    const ProductLaunch& launch,
                    const ProductSize& size,
                    const ProductDevice& device,
                    const std::function<void(const ProductChoice&)>& run);

}  // namespace torch_opencl::ops
