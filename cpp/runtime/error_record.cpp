#include "error_record.h"

#include "command_graph.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace torch_opencl::runtime {

namespace {

// report_t of types.clh.
struct Report {
  int32_t op = 0;  // 0: nothing was reported
  int32_t kind = 0;
  int32_t dimension = 0;
  int32_t unused = 0;
  int64_t index = 0;
  int64_t size = 0;
};

}  // namespace

struct ReportCopy {
  Report report;
  int64_t number = 0;  // of its queue's copies
  int64_t raised = 0;  // reports before it was enqueued
};

// Of a queue: the first report since the last one that was raised.
class ErrorRecord {
 public:
  explicit ErrorRecord(Device& device) {
    Report nothing;
    cl_int code = CL_SUCCESS;
    memory_ = api().clCreateBuffer(device.context(),
                                   CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                   sizeof(nothing),
                                   &nothing,
                                   &code);
    if (code != CL_SUCCESS) {
      throw_opencl_error(code, "clCreateBuffer", __FILE__, __LINE__);
    }
  }

  ErrorRecord(const ErrorRecord&) = delete;
  ~ErrorRecord() {
    log_opencl_error(api().clReleaseMemObject(memory_), "clReleaseMemObject");
  }

  cl_mem memory() const { return memory_; }
  void open() { is_open_.store(true, std::memory_order_release); }
  Look look(Queue& queue, bool sees_all);
  Report take(Queue& queue, const Look& look);

 private:
  cl_mem memory_ = nullptr;
  std::atomic<bool> is_open_{false};  // a kernel may have reported
  std::mutex mutex_;
  // Copies are used again once they have arrived, which those have that were
  // enqueued before one that was waited for.
  std::vector<Look> copies_;
  int64_t enqueued_ = 0;
  int64_t arrived_ = 0;
  int64_t raised_ = 0;
};

namespace {

// Like queues, never destroyed.
std::atomic<ErrorRecord*>& slot_of(const Queue& queue) {
  using OfDevice = std::array<std::atomic<ErrorRecord*>, kStreamsPerPool + 1>;
  static auto* records = new std::array<OfDevice, kMaxDevices>();
  return records->at(queue.device().index()).at(queue.stream_id());
}

ErrorRecord& record_of(Queue& queue) {
  std::atomic<ErrorRecord*>& slot = slot_of(queue);
  if (ErrorRecord* ready = slot.load(std::memory_order_acquire)) [[likely]] {
    return *ready;
  }
  auto created = std::make_unique<ErrorRecord>(queue.device());
  ErrorRecord* other = nullptr;
  return slot.compare_exchange_strong(other, created.get()) ? *created.release()
                                                            : *other;
}

thread_local const char* outermost_op = nullptr;

std::atomic<ThrowIndexError> throw_index_error{nullptr};

// Names of ops by their number in reports, which begins with 1.
std::array<std::atomic<const char*>, 256> op_names{};

int32_t number_of(const char* op) {
  for (size_t i = 0; i < op_names.size(); ++i) {
    const char* name = op_names[i].load(std::memory_order_acquire);
    if (name == nullptr) {
      // Leaves in `name` what another thread was faster to put there.
      op_names[i].compare_exchange_strong(name, op);
    }
    if (name == nullptr || name == op) {
      return static_cast<int32_t>(i + 1);
    }
  }
  throw Error("too many ops report errors of kernels");
}

// Without the overload's name.
std::string name_of(int32_t number) {
  const auto i = static_cast<size_t>(number - 1);
  const char* name = i < op_names.size() ? op_names[i].load() : nullptr;
  const std::string full = name == nullptr ? "an op" : name;
  return full.substr(0, full.find('.'));
}

// REPORT_* of types.clh.
enum Kind : int32_t {
  kIndex = 1,
  kTarget = 2,
  kFirstOffset = 4,
  kLastOffset = 5,
  kNegativeRepeats = 6,
  kOutputSize = 7,
  kZeroDivision = 8,
  kRate = 9,
  kProbability = 10,
};

[[noreturn]] void throw_report(const Report& report) {
  const std::string op = name_of(report.op) + "(): ";
  const std::string index = std::to_string(report.index);
  const std::string size = std::to_string(report.size);
  if (report.kind == kNegativeRepeats) {
    throw Error(op + "repeats can not be negative");
  }
  if (report.kind == kOutputSize) {
    throw Error(op + "allocated size does not match required size");
  }
  if (report.kind == kZeroDivision) {
    throw Error(op + "ZeroDivisionError");
  }
  if (report.kind == kRate) {
    throw Error("invalid Poisson rate, expected rate to be non-negative");
  }
  if (report.kind == kProbability) {
    throw Error(std::string("all elements of ") +
                (report.index == 0 ? "input" : "target") +
                " should be between 0 and 1");
  }
  if (report.kind == kFirstOffset) {
    throw Error(op +
                "offsets[0] has to be 0, i.e., the first sequence in the "
                "mini-batch has to start from position 0. However, got " +
                index);
  }
  if (report.kind == kLastOffset) {
    throw Error(op + "offsets[-1] can not be greater than input's length " +
                size + " but got offsets[-1] of " + index);
  }
  const std::string text =
      report.kind == kTarget
          ? op + "Target " + index + " is out of bounds."
          : op + "index " + index + " is out of bounds for dimension " +
                std::to_string(report.dimension) + " with size " + size;
  if (const ThrowIndexError function = throw_index_error.load()) {
    function(text);
  }
  throw Error(text);
}

}  // namespace

Look ErrorRecord::look(Queue& queue, bool sees_all) {
  if (!is_open_.load(std::memory_order_acquire)) [[likely]] {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (sees_all) {
    is_open_.store(false, std::memory_order_release);
  }
  const auto unused =
      std::find_if(copies_.begin(), copies_.end(), [&](const Look& copy) {
        return copy.use_count() == 1 && copy->number <= arrived_;
      });
  const Look copy = unused != copies_.end()
                        ? *unused
                        : copies_.emplace_back(std::make_shared<ReportCopy>());
  *copy = {{}, ++enqueued_, raised_};
  try {
    queue.read(memory_, 0, &copy->report, sizeof(Report), /*blocking=*/false);
  } catch (...) {
    open();
    throw;
  }
  return copy;
}

// What is to be raised; the record is clear then.
Report ErrorRecord::take(Queue& queue, const Look& look) {
  // Locked until the record is cleared: who looks next sees the next report.
  const std::lock_guard lock(mutex_);
  arrived_ = std::max(arrived_, look->number);
  const Report report = look->report;
  if (report.op == 0 || look->raised != raised_) {
    return {};
  }
  ++raised_;
  // `op` alone says that there is none. Past a graph that captures: its replays
  // would clear what is not raised yet.
  queue.touch(memory_);
  return report;
}

void bind_record(Queue& queue, cl_kernel kernel, cl_uint index) {
  ErrorRecord& record = record_of(queue);
  const cl_mem memory = record.memory();
  record.open();
  bind_bytes(kernel, index, &memory, sizeof(memory));
}

void note_reports(Queue& queue) {
  record_of(queue).open();
}

ReportArgument::ReportArgument(Queue& queue, const char* op)
    : record_(record_of(queue)),
      graph_(queue.capturing()),
      memory_(record_.memory()),
      op_(number_of(outermost_op == nullptr ? op : outermost_op)) {}

// Not before: what is launched for other arguments may wait, and look.
void ReportArgument::open(cl_kernel kernel, cl_uint index) const {
  if (graph_ != nullptr) [[unlikely]] {
    graph_->add_report(kernel, index);
  }
  record_.open();
}

ReportArgument::~ReportArgument() {
  // Again: another thread may have looked before the launch.
  record_.open();
}

ReportAs::ReportAs(const char* op) : outer_(outermost_op) {
  if (outer_ == nullptr) {
    outermost_op = op;
  }
}

ReportAs::~ReportAs() {
  outermost_op = outer_;
}

Look look_at_reports(Queue& queue, bool sees_all) {
  ErrorRecord* record = slot_of(queue).load(std::memory_order_acquire);
  return record == nullptr ? nullptr : record->look(queue, sees_all);
}

void raise_reported(Queue& queue, const Look& look) {
  if (look == nullptr) [[likely]] {
    return;
  }
  const Report report = record_of(queue).take(queue, look);
  if (report.op != 0) {
    throw_report(report);
  }
}

ReportsOfWait::ReportsOfWait(Queue& queue)
    : queue_(queue), look_(look_at_reports(queue, /*sees_all=*/true)) {}

ReportsOfWait::~ReportsOfWait() {
  if (look_ != nullptr) {
    note_reports(queue_);
  }
}

void ReportsOfWait::raise() {
  const Look look = std::exchange(look_, nullptr);
  raise_reported(queue_, look);
}

void set_throw_index_error(ThrowIndexError function) {
  throw_index_error = function;
}

}  // namespace torch_opencl::runtime
