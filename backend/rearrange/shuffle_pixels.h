// pixel_shuffle and pixel_unshuffle of channels_last images on CPUs.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::ops {

// Copies between `packed`, whose pixels hold factor * factor pixels of `rows`,
// and `rows`; false where the generic copy has to do it.
bool shuffle_pixels(const at::Tensor& packed,
                    const at::Tensor& rows,
                    int64_t factor,
                    bool to_rows);

}  // namespace torch_opencl::ops
