#include "bounded.h"

#include "launch.h"

#include "../device/stream.h"

#include <memory>
#include <utility>

namespace torch_opencl::aten {
namespace {

// A thread that enqueues what waits may have another current stream.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream)
      : previous_(device::exchange_stream(stream)) {}
  OnStream(const OnStream&) = delete;
  ~OnStream() { device::exchange_stream(previous_); }

 private:
  c10::Stream previous_;
};

class BoundedWrite : public runtime::Deferred {
 public:
  BoundedWrite(const at::Tensor& out, std::function<void(const Bounds&)> write)
      : out_(out),
        stream_(device::current_stream(out.device().index())),
        write_(std::move(write)) {}

  bool join(const at::TensorBase& out, const Bounds& bounds) {
    if (!out.is_same(out_)) {
      return false;
    }
    bounds_ = bounds;
    return true;
  }

  void enqueue(runtime::Queue&) override {
    const OnStream on(stream_);
    write_(bounds_);
  }

 private:
  at::Tensor out_;
  c10::Stream stream_;
  std::function<void(const Bounds&)> write_;
  Bounds bounds_;
};

}  // namespace

void write_bounded(const at::Tensor& out,
                   std::function<void(const Bounds&)> write) {
  runtime::Queue& queue = queue_of(out);
  // Others would be rounded twice.
  if (!queue.can_defer() ||
      compute_type(out.scalar_type()) != out.scalar_type()) {
    write({});
    return;
  }
  queue.defer([&](runtime::Deferred*) {
    return std::make_unique<BoundedWrite>(out, std::move(write));
  });
}

bool join_clamp(const at::TensorBase& out, const Bounds& bounds) {
  runtime::Queue& queue = queue_of(out);
  if (!queue.has_deferred()) {
    return false;
  }
  bool joined = false;
  queue.defer([&](runtime::Deferred* waiting) {
    auto* write = dynamic_cast<BoundedWrite*>(waiting);
    joined = write != nullptr && write->join(out, bounds);
    return std::unique_ptr<runtime::Deferred>();
  });
  if (joined) {
    queue.enqueue_deferred();
  }
  return joined;
}

}  // namespace torch_opencl::aten
