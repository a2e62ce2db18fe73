// Commands that a queue takes down instead of running them, to be enqueued
// again and again: what CUDA calls a graph.
#pragma once

#include "caching_allocator.h"
#include "packed_weight_cache.h"
#include "queue.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <variant>
#include <vector>

namespace torch_opencl::runtime {

// Of a random number generator: the seed, and how many numbers came before.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// Threads may add to one graph, as they may enqueue in one queue; whoever
// replays it is alone.
class CommandGraph : public std::enable_shared_from_this<CommandGraph> {
 public:
  // Captures from `queue`, with memory of the pool `pool_id`, until end().
  // Throws where the driver copies no kernels (OpenCL 2.1's clCloneKernel).
  CommandGraph(Queue& queue, int64_t pool_id);
  ~CommandGraph();
  CommandGraph(const CommandGraph&) = delete;
  // Captures from `queue`, too: commands of all queues are replayed in the
  // order in which they were added. Throws once the capture has ended.
  void join(Queue& queue);
  void end();

  // With the kernel's arguments as they are bound.
  void add_launch(const Kernel& kernel, const NDRange& range);
  void add_copy(cl_mem source,
                size_t source_offset,
                cl_mem destination,
                size_t destination_offset,
                size_t bytes);
  void add_fill(cl_mem memory,
                const void* pattern,
                size_t pattern_bytes,
                size_t offset,
                size_t bytes);
  // What was added last writes at `address`.
  void add_written(const void* address);
  // Where random numbers come from: gives its state, and goes on by `count`, a
  // multiple of four.
  using RandomSource = std::function<PhiloxState(uint64_t count)>;
  // The place of `count` numbers after a replay's first ones from the source
  // that `key` stands for.
  struct Draw {
    int source;
    uint64_t offset;
  };
  Draw draw(const void* key, const RandomSource& source, uint64_t count);
  // The launch of `kernel` that was added last takes its random numbers, by
  // the arguments `index` and the next, `calls` of four after the first.
  void add_draw(cl_kernel kernel, cl_uint index, int source, uint64_t calls);
  // `kernel` takes its queue's error record by the argument `index`: its next
  // launch and all later ones.
  void add_report(cl_kernel kernel, cl_uint index);
  // What is added until keep_packed depends on the allocation of `bytes` at
  // `begin` alone, and a replay leaves it out while nothing was written there.
  // `packed`, which is kept with the graph, and what it takes to make it have
  // memory of their own, until end_packing. That is called after an error, too.
  void begin_packing(const Queue& queue,
                     const void* begin,
                     uint64_t bytes,
                     const PackedKey& key);
  void keep_packed(std::shared_ptr<void> packed);
  void end_packing(const Queue& queue);

  // `resource`, which a command uses, lives as long as the graph.
  void keep(std::shared_ptr<void> resource);

  // Enqueues all of it, behind the replay before, whatever the queue of that.
  void replay(Queue& queue);
  // A line a command.
  void print(std::ostream& to) const;

 private:
  struct LaunchDraw {
    cl_uint index;
    int source;
    uint64_t calls;
  };
  struct Launch {
    std::unique_ptr<Kernel> kernel;
    NDRange range;
    cl_kernel original;
    std::optional<cl_uint> report = {};
    std::vector<LaunchDraw> draws = {};
  };
  struct Source {
    const void* key;
    RandomSource next;
    uint64_t count = 0;  // of a replay's numbers
  };
  struct Copy {
    cl_mem source, destination;
    size_t source_offset, destination_offset, bytes;
  };
  struct Fill {
    cl_mem memory;
    std::array<std::byte, Queue::kMaxTakenBytes> pattern;
    size_t pattern_bytes, offset, bytes;
  };
  struct Written {
    const void* address;
  };
  struct Packing {
    const void* begin;
    uint64_t bytes;
    PackedKey key;
    size_t commands = 0;      // that follow and belong to it
    uint64_t generation = 0;  // of what was packed last; 0: of nothing
    std::shared_ptr<void> packed = nullptr;
  };
  using Command = std::variant<Launch, Copy, Fill, Written, Packing>;

  // Keeps its segments as long as it lives.
  class KeptPool {
   public:
    KeptPool(CachingAllocator& blocks, int64_t id) : blocks_(blocks), id_(id) {
      blocks_.keep_pool(id_);
    }
    ~KeptPool() { blocks_.release_pool(id_); }
    KeptPool(const KeptPool&) = delete;
    int64_t id() const { return id_; }

   private:
    CachingAllocator& blocks_;
    int64_t id_;
  };

  void add(Command command);
  void add_queue(Queue& queue);

  CachingAllocator& blocks_;
  KeptPool pool_;
  KeptPool packing_pool_;
  std::mutex mutex_;            // of what follows, during the capture
  std::vector<Queue*> queues_;  // that it captures from
  std::vector<Command> commands_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Source> sources_;
  size_t packing_ = 0;                    // the open one's place, plus one
  std::map<cl_kernel, cl_uint> reports_;  // the argument, by the original
  Queue* replayed_on_ = nullptr;          // by the last replay
};

}  // namespace torch_opencl::runtime
