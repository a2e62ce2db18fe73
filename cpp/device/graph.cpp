#include "graph.h"

#include "stream.h"

#include "../runtime/caching_allocator.h"
#include "../runtime/command_graph.h"
#include "../runtime/config.h"

#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

namespace torch_opencl::device {

namespace {

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& /*args*/) {}
  ~Graph() override {
    try {
      reset();
    } catch (const std::exception& error) {
      TORCH_WARN("opencl: releasing a graph failed: ", error.what());
    }
  }

  void capture_begin(at::MempoolId_t pool,
                     at::GraphCaptureMode /*mode*/) override {
    TORCH_CHECK(commands_ == nullptr,
                "This Graph instance already owns a captured graph. To capture "
                "a new graph, create a new instance.");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !runtime::config().guard,
        "opencl: in guard mode no graph is captured: its tensors share memory "
        "between replays");
    device_index_ = current_device();
    runtime::Queue& queue = current_queue(device_index_);
    if (pool == at::MempoolId_t{0, 0}) {
      pool.first = runtime::allocator(device_index_).new_pool();
    }
    commands_ = std::make_shared<runtime::CommandGraph>(
        queue, static_cast<int64_t>(pool.first));
    pool_ = pool;
    capturing_ = &queue;
  }

  void capture_end() override {
    TORCH_CHECK(capturing_ != nullptr,
                "capture_end() called without a capture_begin()");
    const bool is_same = &current_queue(device_index_) == capturing_;
    end_capture();
    if (!is_same) {
      reset();
    }
    TORCH_CHECK(is_same, "Capture must end on the same stream it began on.");
  }

  void instantiate() override { check_captured("instantiate"); }

  void replay() override {
    check_captured("replay");
    const std::lock_guard lock(mutex_);
    runtime::Queue& queue = current_queue(device_index_);
    queue.check_not_capturing();
    commands_->replay(queue);
  }

  void reset() override {
    if (capturing_ != nullptr) {
      end_capture();
    }
    commands_ = nullptr;
  }

  at::MempoolId_t pool() const override {
    TORCH_CHECK(commands_ != nullptr,
                "Called Graph::pool() without a preceding successful capture.");
    return pool_;
  }

  void enable_debug_mode() override {}

  void debug_dump(const std::string& path) override {
    check_captured("debug_dump");
    std::ofstream file(path);
    commands_->print(file);
    TORCH_CHECK(file.good(), "opencl: cannot write a graph to ", path);
  }

 private:
  void check_captured(const char* method) const {
    TORCH_CHECK(commands_ != nullptr && capturing_ == nullptr,
                "Called Graph::",
                method,
                " without a preceding successful capture.");
  }

  void end_capture() {
    capturing_ = nullptr;
    commands_->end();
  }

  int device_index_ = 0;
  at::MempoolId_t pool_{0, 0};
  std::shared_ptr<runtime::CommandGraph> commands_;
  runtime::Queue* capturing_ = nullptr;
  std::mutex mutex_;  // one replay at a time
};

}  // namespace

void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/false),
      [](const at::GraphImplArgs& args)
          -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<Graph>(args);
      });
}

}  // namespace torch_opencl::device
