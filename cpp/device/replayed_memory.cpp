#include "replayed_memory.h"

#include "allocator.h"
#include "guard.h"
#include "stream.h"

#include "../runtime/caching_allocator.h"
#include "../runtime/pending_launch.h"
#include "../runtime/queue_order.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <utility>

namespace torch_opencl::device {

std::vector<size_t> kept_results(const std::vector<at::Tensor>& results,
                                 const std::vector<size_t>& uses) {
  TORCH_CHECK(results.size() == uses.size(),
              "opencl: a number of uses is needed for each of ",
              results.size(),
              " results, got ",
              uses.size());
  std::vector<size_t> kept;
  for (size_t i = 0; i < results.size(); ++i) {
    const c10::Storage& storage = results[i].storage();
    if (storage.use_count() > uses[i]) {
      kept.push_back(i);
    } else if (storage.data() != nullptr) {
      const int device_index = storage.device().index();
      runtime::allocator(device_index)
          .wait_for_recorded(storage.data_ptr().get_context(),
                             current_queue(device_index));
    }
  }
  return kept;
}

namespace {

std::vector<at::Tensor> take_group(const std::vector<at::Tensor>& results) {
  const c10::Storage& storage = results.at(0).storage();
  c10::DataPtr own = allocator()->allocate(storage.nbytes());
  allocator()->copy_data(own.mutable_get(), storage.data(), storage.nbytes());
  const c10::Storage taken(c10::Storage::use_byte_size_t{},
                           storage.nbytes(),
                           storage.set_data_ptr(std::move(own)),
                           storage_allocator(storage.device().index()),
                           /*resizable=*/true);
  std::vector<at::Tensor> moved;
  for (const at::Tensor& result : results) {
    moved.push_back(at::empty({0}, result.options())
                        .set_(taken,
                              result.storage_offset(),
                              result.sizes(),
                              result.strides()));
  }
  return moved;
}

}  // namespace

Groups take_memory(const Groups& groups) {
  const c10::Device device = groups.at(0).at(0).device();
  const c10::DeviceGuard guard(device);
  runtime::Queue& queue = current_queue(device.index());
  // A pending launch knows the memory by its place.
  runtime::flush_pending(device.index());
  runtime::wait_for_others(queue);
  Groups moved;
  for (const auto& group : groups) {
    moved.push_back(take_group(group));
  }
  runtime::let_others_wait(queue);
  return moved;
}

int64_t follow_stream(int64_t last) {
  const int device_index = current_device();
  runtime::Queue& queue = current_queue(device_index);
  if (last >= 0 && last != queue.stream_id()) {
    runtime::wait_for(queue, runtime::queue(device_index, last));
  }
  return queue.stream_id();
}

}  // namespace torch_opencl::device
