// A plugin of oclgrind: useful sectors of global accesses, conflicts of banks.
//
// A wave's accesses by one instruction are one request. A request for global
// memory takes the 32-byte sectors that its addresses lie in; the bytes it
// wants would fit in fewer. A request for local memory takes as many cycles as
// the fullest of 32 banks of 4-byte words; equal words are broadcast. Caches
// are not modelled. $SECTORS_WAVE is the number of lanes of a wave (32). A line
// of JSON for each kernel's end goes to $SECTORS_FILE.
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
#include <map>
#include <set>
#include <string>
#include <tuple>
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
  size_t taken = 0;  // sectors, or cycles of the banks
  size_t least = 0;  // that the bytes would need
};

class Sectors : public oclgrind::Plugin {
 public:
  explicit Sectors(const oclgrind::Context* context)
      : Plugin(context), wave_(32) {
    if (const char* wave = std::getenv("SECTORS_WAVE")) {
      wave_ = std::max(1, std::atoi(wave));
    }
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
                     ", \"%s\": [%zu, %zu, %zu]",
                     names[i],
                     totals_[i].requests,
                     totals_[i].taken,
                     totals_[i].least);
        totals_[i] = {};
      }
      std::fprintf(file_, "}\n");
      std::fflush(file_);
    }
  }

 private:
  // Instruction, wave, how often the item was here before.
  using Request = std::tuple<const void*, size_t, size_t>;

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
    auto& request = requests_[{instruction, lane / wave_, before}];
    request.first = size_t{is_local} * 2 + size_t{is_write};
    request.second.push_back({address, size});
  }

  void finish_group() {
    for (const auto& [key, request] : requests_) {
      std::set<size_t> words;
      std::set<size_t> sectors;
      for (const Access& access : request.second) {
        const size_t last = access.address + access.size - 1;
        for (size_t w = access.address / kWord; w <= last / kWord; ++w) {
          words.insert(w);
        }
        for (size_t s = access.address / kSector; s <= last / kSector; ++s) {
          sectors.insert(s);
        }
      }
      Totals& totals = totals_[request.first];
      ++totals.requests;
      if (request.first < 2) {
        totals.taken += sectors.size();
        totals.least += (words.size() * kWord + kSector - 1) / kSector;
        continue;
      }
      size_t banks[kBanks] = {};
      for (const size_t word : words) {
        ++banks[word % kBanks];
      }
      totals.taken += *std::max_element(banks, banks + kBanks);
      totals.least += (words.size() + kBanks - 1) / kBanks;
    }
    requests_.clear();
    visits_.clear();
  }

  size_t wave_;
  FILE* file_;
  const oclgrind::WorkGroup* group_ = nullptr;
  std::map<Request, std::pair<size_t, std::vector<Access>>> requests_;
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
