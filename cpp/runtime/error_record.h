// Bad indices, which kernels report into memory of their
// queue (backend/common/types.clh) and the host raises when it waits anyway.
#pragma once

#include "kernel.h"

#include <cstdint>
#include <memory>
#include <string>

namespace torch_opencl::runtime {

class CommandGraph;
class ErrorRecord;

// A kernel's parameters `global report_t *record, const int op`, for one launch
// on `queue` of the op `op`, a literal. To be kept until after the launch.
class ReportArgument {
 public:
  ReportArgument(Queue& queue, const char* op);
  ReportArgument(const ReportArgument&) = delete;
  ~ReportArgument();

  friend void bind_argument(cl_kernel kernel,
                            cl_uint& index,
                            const ReportArgument& argument) {
    argument.open(kernel, index);
    bind_bytes(kernel, index, &argument.memory_, sizeof(argument.memory_));
    bind_bytes(kernel, index, &argument.op_, sizeof(argument.op_));
  }

 private:
  void open(cl_kernel kernel, cl_uint index) const;

  ErrorRecord& record_;
  CommandGraph* graph_;  // that captures the launch
  cl_mem memory_;
  int32_t op_;
};

// While one lives, what this thread launches reports as `op`, of ops that are
// made of others. The outermost counts. `op` is a literal.
class ReportAs {
 public:
  explicit ReportAs(const char* op);
  ReportAs(const ReportAs&) = delete;
  ~ReportAs();

 private:
  const char* outer_;
};

// The record of `queue` for a kernel that was bound with another queue's, ahead
// of its launch.
void bind_record(Queue& queue, cl_kernel kernel, cl_uint index);
// Commands that may report were enqueued again.
void note_reports(Queue& queue);

// What a queue's record holds when a later command of it has completed; null
// where no kernel can have reported.
struct ReportCopy;
using Look = std::shared_ptr<ReportCopy>;
// To be called ahead of what is waited for. `sees_all`: the caller waits for
// certain, so later waits need not look unless a kernel that may report is
// launched again.
Look look_at_reports(Queue& queue, bool sees_all);
// After the wait: raises what was reported, once, and clears the record.
void raise_reported(Queue& queue, const Look& look);

// Around a wait for all that was enqueued. What a wait that is interrupted or
// fails has not raised is left to the next one.
class ReportsOfWait {
 public:
  explicit ReportsOfWait(Queue& queue);
  ReportsOfWait(const ReportsOfWait&) = delete;
  ~ReportsOfWait();
  // After the wait.
  void raise();

 private:
  Queue& queue_;
  Look look_;
};

// Throws torch's IndexError, which cpp/device knows.
using ThrowIndexError = void (*)(const std::string& text);
void set_throw_index_error(ThrowIndexError function);

}  // namespace torch_opencl::runtime
