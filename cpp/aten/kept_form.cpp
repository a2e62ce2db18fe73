#include "kept_form.h"

#include "../device/stream.h"

namespace torch_opencl::aten {

at::Tensor kept_form(const at::Tensor& weight,
                     const KernelSource& maker,
                     std::initializer_list<int64_t> variant,
                     const std::function<at::Tensor()>& make) {
  // A form is used on the stream that makes it, so nobody has to wait for it.
  runtime::FormKey key{device::current_stream_id(weight.device().index()),
                       reinterpret_cast<intptr_t>(&maker),
                       static_cast<int64_t>(weight.scalar_type()),
                       weight.storage_offset()};
  key.insert(key.end(), variant.begin(), variant.end());
  key.insert(key.end(), weight.sizes().begin(), weight.sizes().end());
  key.insert(key.end(), weight.strides().begin(), weight.strides().end());
  const void* begin = weight.storage().data();
  const runtime::FormUse use =
      runtime::use_form(begin, weight.storage().nbytes(), key);
  if (use.form != nullptr) {
    return *std::static_pointer_cast<at::Tensor>(use.form);
  }
  at::Tensor form = make();
  if (use.is_repeated) {
    runtime::keep_form(begin, key, std::make_shared<at::Tensor>(form));
  }
  return form;
}

}  // namespace torch_opencl::aten
