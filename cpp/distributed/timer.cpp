// Device times of DDP's logging data (Logger.get_ddp_logging_data).
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <array>

namespace torch_opencl::distributed {

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

class DeviceTimer final : public c10d::Timer {
 public:
  explicit DeviceTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    at(event).record(c10::impl::VirtualGuardImpl(kDevice).getStream(device_));
  }

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    c10::Event& from = at(start);
    c10::Event& to = at(end);
    if (!from.was_marked_for_recording() || !to.was_marked_for_recording()) {
      return std::nullopt;
    }
    from.synchronize();
    to.synchronize();
    const double milliseconds = from.elapsedTime(to);
    // An end that this iteration did not record is an earlier one's.
    return milliseconds < 0
               ? std::nullopt
               : std::optional(static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  c10::Event& at(Event event) { return events_[static_cast<size_t>(event)]; }

  static c10::Event timed() {
    return c10::Event(kDevice, c10::EventFlag::BACKEND_DEFAULT);
  }

  c10::Device device_;
  std::array<c10::Event, 5> events_{
      timed(), timed(), timed(), timed(), timed()};
};

}  // namespace

}  // namespace torch_opencl::distributed

namespace c10d {

using torch_opencl::distributed::DeviceTimer;
C10_REGISTER_TYPED_CLASS(TimerRegistry,
                         c10::DeviceType::PrivateUse1,
                         DeviceTimer)

}  // namespace c10d
