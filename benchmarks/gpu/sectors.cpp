// A plugin of oclgrind: useful sectors of global accesses, conflicts of banks.
//
// A wave's accesses by one instruction are one request. A request for global
// memory takes the 32-byte sectors that its addresses lie in; the bytes it
// wants would fit in fewer. Reads go through an L1 cache for each work-group,
// with LRU replacement; between barriers waves run one after the other. A
// request for local memory takes as many cycles as the fullest of 32 banks of
// 4-byte words; equal words are broadcast. $SECTORS_WAVE is the number of lanes
// of a wave (32), $SECTORS_CACHE the bytes of the cache (16384). A line of JSON
// for each kernel's end goes to $SECTORS_FILE.
#include "Context.h"
#include "Kernel.h"
#include "KernelInvocation.h"
#include "Memory.h"
#include "Plugin.h"
#include "WorkGroup.h"
#include "WorkItem.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t kSector = 32;
constexpr size_t kWord = 4;
constexpr size_t kBanks = 32;

struct Access {
  size_t address, size;
};

// Requests of a kernel in one direction.
struct Totals {
  size_t requests = 0;
  size_t taken = 0;   // sectors, or cycles of the banks
  size_t least = 0;   // that the bytes would need
  size_t missed = 0;  // sectors that the cache does not have
};

size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::max(1, std::atoi(text)) : otherwise;
}

// The sectors used last.
class Cache {
 public:
  explicit Cache(size_t sectors) : sectors_(sectors) {}

  // Whether it had to be fetched.
  bool misses(size_t sector) {
    const auto found = places_.find(sector);
    if (found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return false;
    }
    if (order_.size() == sectors_) {
      places_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(sector);
    places_[sector] = order_.begin();
    return true;
  }
  void clear() {
    order_.clear();
    places_.clear();
  }

 private:
  size_t sectors_;
  std::list<size_t> order_;
  std::unordered_map<size_t, std::list<size_t>::iterator> places_;
};

// What a wave asks for at once.
struct Request {
  size_t number = 0;  // in the order of their beginnings
  size_t kind = 0;    // of Totals
  std::vector<Access> accesses;
};

class Sectors : public oclgrind::Plugin {
 public:
  explicit Sectors(const oclgrind::Context* context)
      : Plugin(context),
        wave_(setting("SECTORS_WAVE", 32)),
        cache_(setting("SECTORS_CACHE", 16384) / kSector) {
    const char* path = std::getenv("SECTORS_FILE");
    file_ = path != nullptr ? std::fopen(path, "a") : nullptr;
  }
  ~Sectors() override {
    if (file_ != nullptr) {
      std::fclose(file_);
    }
  }

  bool isThreadSafe() const override { return false; }

  void memoryLoad(const oclgrind::Memory* memory,
                  const oclgrind::WorkItem* item,
                  size_t address,
                  size_t size) override {
    add(memory, item, address, size, false);
  }
  void memoryStore(const oclgrind::Memory* memory,
                   const oclgrind::WorkItem* item,
                   size_t address,
                   size_t size,
                   const uint8_t*) override {
    add(memory, item, address, size, true);
  }

  void kernelEnd(const oclgrind::KernelInvocation* invocation) override {
    finish_group();
    group_ = nullptr;
    if (file_ != nullptr) {
      std::fprintf(file_,
                   "{\"kernel\": \"%s\"",
                   invocation->getKernel()->getName().c_str());
      const char* names[] = {
          "global reads", "global writes", "local reads", "local writes"};
      for (size_t i = 0; i < 4; ++i) {
        std::fprintf(file_,
                     ", \"%s\": [%zu, %zu, %zu, %zu]",
                     names[i],
                     totals_[i].requests,
                     totals_[i].taken,
                     totals_[i].least,
                     totals_[i].missed);
        totals_[i] = {};
      }
      std::fprintf(file_, "}\n");
      std::fflush(file_);
    }
  }

 private:
  // Instruction, wave, how often the item was here before.
  using Key = std::tuple<const void*, size_t, size_t>;

  void add(const oclgrind::Memory* memory,
           const oclgrind::WorkItem* item,
           size_t address,
           size_t size,
           bool is_write) {
    const unsigned space = memory->getAddressSpace();
    const bool is_local = space == oclgrind::AddrSpaceLocal;
    if (!is_local && space != oclgrind::AddrSpaceGlobal) {
      return;
    }
    if (item->getWorkGroup() != group_) {
      finish_group();
      group_ = item->getWorkGroup();
    }
    const oclgrind::Size3 id = item->getLocalID();
    const oclgrind::Size3 sizes = group_->getGroupSize();
    const size_t lane = id.x + sizes.x * (id.y + sizes.y * id.z);
    const void* instruction = item->getCurrentInstruction();
    const size_t before = visits_[{instruction, lane}]++;
    const Key key{instruction, lane / wave_, before};
    Request& request =
        requests_.try_emplace(key, Request{requests_.size()}).first->second;
    request.kind = size_t{is_local} * 2 + size_t{is_write};
    request.accesses.push_back({address, size});
  }

  void finish_group() {
    std::vector<const Request*> requests(requests_.size());
    for (const auto& [key, request] : requests_) {
      requests[request.number] = &request;
    }
    for (const Request* request : requests) {
      count(*request);
    }
    requests_.clear();
    visits_.clear();
    cache_.clear();
  }

  void count(const Request& request) {
    std::set<size_t> words;
    std::set<size_t> sectors;
    for (const Access& access : request.accesses) {
      const size_t last = access.address + access.size - 1;
      for (size_t w = access.address / kWord; w <= last / kWord; ++w) {
        words.insert(w);
      }
      for (size_t s = access.address / kSector; s <= last / kSector; ++s) {
        sectors.insert(s);
      }
    }
    Totals& totals = totals_[request.kind];
    ++totals.requests;
    if (request.kind < 2) {
      totals.taken += sectors.size();
      totals.least += (words.size() * kWord + kSector - 1) / kSector;
      const bool is_write = request.kind == 1;
      for (const size_t sector : sectors) {
        totals.missed += is_write || cache_.misses(sector);
      }
      return;
    }
    size_t banks[kBanks] = {};
    for (const size_t word : words) {
      ++banks[word % kBanks];
    }
    totals.taken += *std::max_element(banks, banks + kBanks);
    totals.least += (words.size() + kBanks - 1) / kBanks;
  }

  size_t wave_;
  Cache cache_;
  FILE* file_;
  const oclgrind::WorkGroup* group_ = nullptr;
  std::map<Key, Request> requests_;
  std::map<std::pair<const void*, size_t>, size_t> visits_;
  Totals totals_[4];
};

Sectors* plugin = nullptr;

}  // namespace

extern "C" __attribute__((visibility("default"))) void initializePlugins(
    oclgrind::Context* context) {
  plugin = new Sectors(context);
  context->registerPlugin(plugin);
}

extern "C" __attribute__((visibility("default"))) void releasePlugins(
    oclgrind::Context* context) {
  context->unregisterPlugin(plugin);
  delete plugin;
}
