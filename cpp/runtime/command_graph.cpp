#include "command_graph.h"

#include "error.h"
#include "error_record.h"
#include "queue_order.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace torch_opencl::runtime {

namespace {

// "OpenCL 3.0 ..." -> 30
int version_of(const DeviceInfo& info) {
  int major = 0, minor = 0;
  std::sscanf(info.version.c_str(), "OpenCL %d.%d", &major, &minor);
  return 10 * major + minor;
}

}  // namespace

CommandGraph::CommandGraph(Queue& queue, int64_t pool_id)
    : blocks_(allocator(queue.device().index())),
      pool_(blocks_, pool_id),
      packing_pool_(blocks_, blocks_.new_pool()) {
  const DeviceInfo& info = queue.device().info();
  if (api().clCloneKernel == nullptr || version_of(info) < 21) {
    throw Error("opencl: graphs need a driver of OpenCL 2.1 or later, and " +
                info.name + " has " + info.version);
  }
  add_queue(queue);
}

void CommandGraph::join(Queue& queue) {
  if (queue.capturing() == this) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (queues_.empty()) {
    throw Error("opencl: an event that was recorded in a capture ends with it");
  }
  add_queue(queue);
}

void CommandGraph::add_queue(Queue& queue) {
  queue.begin_capture(*this);
  queues_.push_back(&queue);
  blocks_.begin_pool(pool_.id(), queue.stream_id());
}

void CommandGraph::end() {
  std::vector<Queue*> queues;
  {
    const std::lock_guard lock(mutex_);
    queues.swap(queues_);
  }
  for (Queue* queue : queues) {
    queue->end_capture();
    blocks_.end_pool(queue->stream_id());
  }
}

CommandGraph::~CommandGraph() {
  for (const Command& command : commands_) {
    if (const auto* launch = std::get_if<Launch>(&command)) {
      log_opencl_error(api().clReleaseKernel(launch->kernel->handle),
                       "clReleaseKernel");
    }
  }
}

void CommandGraph::add(Command command) {
  const std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
}

void CommandGraph::add_launch(const Kernel& kernel, const NDRange& range) {
  cl_int code = CL_SUCCESS;
  auto clone = std::make_unique<Kernel>();
  clone->handle = api().clCloneKernel(kernel.handle, &code);
  if (code != CL_SUCCESS) {
    throw_opencl_error(code, "clCloneKernel", __FILE__, __LINE__);
  }
  clone->name = kernel.name;
  Launch launch{std::move(clone), range, kernel.handle};
  const std::lock_guard lock(mutex_);
  const auto report = reports_.find(kernel.handle);
  if (report != reports_.end()) {
    launch.report = report->second;
  }
  commands_.push_back(std::move(launch));
}

CommandGraph::Draw CommandGraph::draw(const void* key,
                                      const RandomSource& source,
                                      uint64_t count) {
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(sources_.begin(),
                            sources_.end(),
                            [&](const Source& s) { return s.key == key; });
  if (found == sources_.end()) {
    found = sources_.insert(found, Source{key, source});
  }
  const Draw drawn = {static_cast<int>(found - sources_.begin()), found->count};
  found->count += count;
  return drawn;
}

void CommandGraph::add_draw(cl_kernel kernel,
                            cl_uint index,
                            int source,
                            uint64_t calls) {
  const std::lock_guard lock(mutex_);
  for (auto command = commands_.rbegin();; ++command) {
    auto* launch = std::get_if<Launch>(&*command);
    if (launch != nullptr && launch->original == kernel) {
      launch->draws.push_back({index, source, calls});
      return;
    }
  }
}

void CommandGraph::add_copy(cl_mem source,
                            size_t source_offset,
                            cl_mem destination,
                            size_t destination_offset,
                            size_t bytes) {
  add(Copy{source, destination, source_offset, destination_offset, bytes});
}

void CommandGraph::add_fill(cl_mem memory,
                            const void* pattern,
                            size_t pattern_bytes,
                            size_t offset,
                            size_t bytes) {
  Fill fill{memory, {}, pattern_bytes, offset, bytes};
  std::memcpy(fill.pattern.data(), pattern, pattern_bytes);
  add(fill);
}

void CommandGraph::add_written(const void* address) {
  add(Written{address});
}

void CommandGraph::add_report(cl_kernel kernel, cl_uint index) {
  const std::lock_guard lock(mutex_);
  reports_[kernel] = index;
}

void CommandGraph::begin_packing(const Queue& queue,
                                 const void* begin,
                                 uint64_t bytes,
                                 const PackedKey& key) {
  const std::lock_guard lock(mutex_);
  commands_.push_back(Packing{begin, bytes, key});
  packing_ = commands_.size();
  blocks_.begin_pool(packing_pool_.id(), queue.stream_id());
}

void CommandGraph::keep_packed(std::shared_ptr<void> packed) {
  const std::lock_guard lock(mutex_);
  auto& packing = std::get<Packing>(commands_[packing_ - 1]);
  packing.commands = commands_.size() - packing_;
  packing.packed = std::move(packed);
}

void CommandGraph::end_packing(const Queue& queue) {
  blocks_.begin_pool(pool_.id(), queue.stream_id());
}

void CommandGraph::keep(std::shared_ptr<void> resource) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(resource));
}

void CommandGraph::replay(Queue& queue) {
  queue.flush_pending();
  // Replays share the graph's memory.
  if (replayed_on_ != nullptr && replayed_on_ != &queue) {
    wait_for(queue, *replayed_on_);
  }
  replayed_on_ = &queue;
  std::vector<PhiloxState> states;
  for (const Source& source : sources_) {
    states.push_back(source.next(source.count));
  }
  // What is made on the way to one packed weight shares memory with later ones.
  bool packs = false;
  for (size_t i = 0; i < commands_.size(); ++i) {
    Command& command = commands_[i];
    if (const auto* launch = std::get_if<Launch>(&command)) {
      for (const LaunchDraw& draw : launch->draws) {
        const PhiloxState& state = states[draw.source];
        const uint64_t calls = state.offset / 4 + draw.calls;
        cl_uint index = draw.index;
        bind_argument(launch->kernel->handle, index, state.seed);
        bind_argument(launch->kernel->handle, index, calls);
      }
      if (launch->report.has_value()) {
        bind_record(queue, launch->kernel->handle, *launch->report);
      }
      queue.launch(*launch->kernel, launch->range);
    } else if (const auto* written = std::get_if<Written>(&command)) {
      queue.wrote(written->address);
    } else if (const auto* copy = std::get_if<Copy>(&command)) {
      queue.copy(copy->source,
                 copy->source_offset,
                 copy->destination,
                 copy->destination_offset,
                 copy->bytes);
    } else if (const auto* fill = std::get_if<Fill>(&command)) {
      queue.fill(fill->memory,
                 fill->pattern.data(),
                 fill->pattern_bytes,
                 fill->offset,
                 fill->bytes);
    } else {
      auto& packing = std::get<Packing>(command);
      // 0 of memory that may be written unseen.
      const uint64_t generation =
          find_packed(packing.begin, packing.bytes, packing.key).generation;
      packs |= generation == 0 || generation != packing.generation;
      packing.generation = generation;
      if (!packs) {
        i += packing.commands;
      }
    }
  }
}

void CommandGraph::print(std::ostream& to) const {
  for (const Command& command : commands_) {
    if (const auto* launch = std::get_if<Launch>(&command)) {
      const auto& global = launch->range.global;
      to << "launch " << launch->kernel->name << " (" << global[0] << ", "
         << global[1] << ", " << global[2] << ")\n";
    } else if (const auto* copy = std::get_if<Copy>(&command)) {
      to << "copy " << copy->bytes << " bytes\n";
    } else if (const auto* fill = std::get_if<Fill>(&command)) {
      to << "fill " << fill->bytes << " bytes\n";
    } else if (const auto* packing = std::get_if<Packing>(&command)) {
      to << "if the weight was written: the next " << packing->commands << "\n";
    }
  }
}

void Queue::begin_capture(CommandGraph& graph) {
  check_not_capturing();
  flush_pending();
  capturing_.store(&graph, std::memory_order_release);
}

void Queue::end_capture() {
  flush_pending();
  capturing_.store(nullptr, std::memory_order_release);
}

void Queue::check_not_capturing() const {
  if (capturing() != nullptr) [[unlikely]] {
    throw Error("opencl: operation not permitted when stream is capturing");
  }
}

void Queue::wrote(const void* address) {
  if (address == nullptr) {
    return;
  }
  if (CommandGraph* graph = capturing()) [[unlikely]] {
    graph->add_written(address);
  } else {
    invalidate_packed(address);
  }
}

}  // namespace torch_opencl::runtime
