#include "packed_weight.h"

#include "../device/allocator.h"
#include "../device/stream.h"
#include "../runtime/command_graph.h"

#include <c10/util/ScopeExit.h>

namespace torch_opencl::aten {

at::Tensor packed_weight(const at::Tensor& weight,
                         const KernelSource& packer,
                         std::initializer_list<int64_t> variant,
                         const std::function<at::Tensor()>& pack) {
  // What is pending may write to the weight.
  runtime::Queue& queue = queue_of(weight);
  queue.flush_pending();
  if (!device::owns_block(weight.storage())) {
    return pack();  // may be written through a storage that begins elsewhere
  }
  // It is used on the stream that packs it, so nobody has to wait for it.
  runtime::PackedKey key{device::current_stream_id(weight.device().index()),
                         reinterpret_cast<intptr_t>(&packer),
                         static_cast<int64_t>(weight.scalar_type()),
                         weight.storage_offset()};
  key.insert(key.end(), variant.begin(), variant.end());
  key.insert(key.end(), weight.sizes().begin(), weight.sizes().end());
  key.insert(key.end(), weight.strides().begin(), weight.strides().end());
  const void* begin = weight.storage().data();
  if (runtime::CommandGraph* graph = queue.capturing()) {
    graph->begin_packing(queue, begin, weight.storage().nbytes(), key);
    const auto end = c10::make_scope_exit([&] { graph->end_packing(queue); });
    at::Tensor packed = pack();
    queue.flush_pending();
    graph->keep_packed(std::make_shared<at::Tensor>(packed));
    return packed;
  }
  const runtime::PackedUse use =
      runtime::find_packed(begin, weight.storage().nbytes(), key);
  if (use.packed != nullptr) {
    return *std::static_pointer_cast<at::Tensor>(use.packed);
  }
  at::Tensor packed = pack();
  if (use.is_repeated) {
    runtime::keep_packed(
        begin, key, use.generation, std::make_shared<at::Tensor>(packed));
  }
  return packed;
}

}  // namespace torch_opencl::aten
