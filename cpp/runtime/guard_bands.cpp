#include "guard_bands.h"

#include "caching_allocator.h"
#include "config.h"
#include "error.h"
#include "queue.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torch_opencl::runtime {

namespace {

constexpr uint64_t kBand = 4096;
// NaN read as float16, bfloat16, float32 or float64 at any even address that
// the dtype may have, and no byte of -1 alone.
constexpr std::array<unsigned char, 8> kPattern = {
    0xa5, 0xff, 0xa5, 0xff, 0xa5, 0xff, 0xff, 0xff};
constexpr size_t kShownBlocks = 8;
constexpr size_t kShownBytes = 16;
constexpr size_t kShownCommands = 32;

struct GuardedBlock {
  int device_index;
  std::vector<int64_t> stream_ids;  // the first is where it was allocated
  uint64_t bytes;
};

// Bytes of both bands.
using Bands = std::array<unsigned char, 2 * kBand>;

struct Guards {
  std::mutex mutex;
  std::map<uint64_t, GuardedBlock> blocks;  // by the address between the bands
  std::deque<std::string> commands;  // since the last check, latest first
  uint64_t command_count = 0;
  std::string found_at_free;
};

// Never destroyed: tensors may be freed after static destructors have run.
Guards& guards() {
  static auto* instance = new Guards;
  return *instance;
}

// The commands of guard mode itself go past Queue: they neither count nor wait
// for what is pending, and come while the allocator is locked.
DriverQueue::Handle handle_of(int device_index, int64_t stream_id) {
  return queue(device_index, stream_id).handle();
}

void read_bands(uint64_t address,
                const GuardedBlock& block,
                cl_bool blocking,
                Bands& bands) {
  const auto handle = handle_of(block.device_index, block.stream_ids.front());
  unsigned char* host = bands.data();
  for (const uint64_t band : {address - kBand, address + block.bytes}) {
    const Location place = locate(reinterpret_cast<void*>(band));
    OPENCL_CHECK(api().clEnqueueReadBuffer(handle,
                                           place.memory,
                                           blocking,
                                           place.byte_offset,
                                           kBand,
                                           host,
                                           0,
                                           nullptr,
                                           nullptr));
    host += kBand;
  }
}

void restore_band(uint64_t band, const GuardedBlock& block) {
  // A pattern's size divides the offset, and a block's end may be odd.
  std::vector<unsigned char> content(kBand);
  for (uint64_t i = 0; i < kBand; ++i) {
    content[i] = kPattern[(band + i) % kPattern.size()];
  }
  const Location place = locate(reinterpret_cast<void*>(band));
  OPENCL_CHECK(api().clEnqueueWriteBuffer(
      handle_of(block.device_index, block.stream_ids.front()),
      place.memory,
      CL_TRUE,
      place.byte_offset,
      kBand,
      content.data(),
      0,
      nullptr,
      nullptr));
}

std::string in_hexadecimal(const unsigned char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(count, kShownBytes); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), i == 0 ? "%02x" : " %02x", bytes[i]);
    text += digits;
  }
  return count > kShownBytes ? text + " ..." : text;
}

// Empty where the band is as it was filled.
std::string damage(const unsigned char* found,
                   bool is_behind,
                   uint64_t address,
                   const GuardedBlock& block) {
  const uint64_t band = is_behind ? address + block.bytes : address - kBand;
  uint64_t first = kBand;
  uint64_t last = 0;
  for (uint64_t i = 0; i < kBand; ++i) {
    if (found[i] != kPattern[(band + i) % kPattern.size()]) {
      first = std::min(first, i);
      last = i;
    }
  }
  if (first == kBand) {
    return "";
  }
  // As byte indices into the block.
  const auto start = static_cast<int64_t>(band - address);
  char text[256];
  std::snprintf(text,
                sizeof(text),
                "\n  %s a block of %llu bytes at 0x%llx on opencl:%d, stream "
                "%lld: %llu bytes, from byte %lld to %lld: ",
                is_behind ? "behind the end of" : "before",
                static_cast<unsigned long long>(block.bytes),
                static_cast<unsigned long long>(address),
                block.device_index,
                static_cast<long long>(block.stream_ids.front()),
                static_cast<unsigned long long>(last - first + 1),
                static_cast<long long>(start + static_cast<int64_t>(first)),
                static_cast<long long>(start + static_cast<int64_t>(last)));
  return text + in_hexadecimal(found + first, last - first + 1);
}

// Restores what is damaged, so that it is reported once.
std::string check_block(uint64_t address,
                        const GuardedBlock& block,
                        const Bands& bands) {
  std::string text;
  for (const bool is_behind : {false, true}) {
    const std::string found = damage(
        bands.data() + (is_behind ? kBand : 0), is_behind, address, block);
    if (!found.empty()) {
      restore_band(is_behind ? address + block.bytes : address - kBand, block);
      text += found;
    }
  }
  return text;
}

std::string report(const std::string& damages, const Guards& all) {
  std::string text = "opencl: memory outside of blocks was written:" + damages +
                     "\n  commands since the last check, latest first: ";
  for (size_t i = 0; i < all.commands.size(); ++i) {
    text += (i == 0 ? "" : ", ") + all.commands[i];
  }
  if (all.command_count > all.commands.size()) {
    text += ", and " + std::to_string(all.command_count - all.commands.size()) +
            " more";
  }
  return config().sync ? text
                       : text + ". TORCH_OPENCL_SYNC=1 checks after each";
}

std::string check_all(Guards& all) {
  std::vector<Bands> found(all.blocks.size());
  std::set<Queue*> used;
  auto bands = found.begin();
  for (const auto& [address, block] : all.blocks) {
    read_bands(address, block, CL_FALSE, *bands++);
    used.insert(&queue(block.device_index, block.stream_ids.front()));
  }
  for (Queue* queue : used) {
    OPENCL_CHECK(api().clFinish(queue->handle()));
  }
  std::string damages;
  size_t count = 0;
  bands = found.begin();
  for (const auto& [address, block] : all.blocks) {
    const std::string text = check_block(address, block, *bands++);
    if (!text.empty() && ++count <= kShownBlocks) {
      damages += text;
    }
  }
  if (count > kShownBlocks) {
    damages += "\n  and " + std::to_string(count - kShownBlocks) + " more";
  }
  return damages.empty() ? "" : report(damages, all);
}

}  // namespace

uint64_t guard_band_bytes() {
  return config().guard ? kBand : 0;
}

const void* guarded_block(const void* address) {
  return static_cast<const char*>(address) - guard_band_bytes();
}

void* add_guards(int device_index,
                 int64_t stream_id,
                 uint64_t block_address,
                 uint64_t bytes) {
  if (!config().guard) [[likely]] {
    return reinterpret_cast<void*>(block_address);
  }
  const Location place = locate(reinterpret_cast<void*>(block_address));
  const uint64_t size = kPattern.size();
  OPENCL_CHECK(
      api().clEnqueueFillBuffer(handle_of(device_index, stream_id),
                                place.memory,
                                kPattern.data(),
                                size,
                                place.byte_offset,
                                (bytes + 2 * kBand + size - 1) / size * size,
                                0,
                                nullptr,
                                nullptr));
  const uint64_t address = block_address + kBand;
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  all.blocks[address] = {device_index, {stream_id}, bytes};
  return reinterpret_cast<void*>(address);
}

void add_guarded_stream(const void* address, int64_t stream_id) {
  if (!config().guard) [[likely]] {
    return;
  }
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(reinterpret_cast<uint64_t>(address));
  if (found != all.blocks.end()) {
    found->second.stream_ids.push_back(stream_id);
  }
}

void remove_guards(const void* address) noexcept {
  if (!config().guard) [[likely]] {
    return;
  }
  try {
    Guards& all = guards();
    const std::lock_guard lock(all.mutex);
    const auto found = all.blocks.find(reinterpret_cast<uint64_t>(address));
    if (found == all.blocks.end()) {
      return;
    }
    const auto [key, block] = *found;
    all.blocks.erase(found);
    for (const int64_t stream_id : block.stream_ids) {
      OPENCL_CHECK(api().clFinish(handle_of(block.device_index, stream_id)));
    }
    Bands bands;
    read_bands(key, block, CL_TRUE, bands);
    const std::string damages = check_block(key, block, bands);
    if (!damages.empty()) {
      const std::string text = report(damages, all) + "\n  (found at its free)";
      std::fprintf(stderr, "%s\n", text.c_str());
      if (all.found_at_free.empty()) {
        all.found_at_free = text;
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "opencl: guards not checked: %s\n", error.what());
  }
}

void note_command(const char* name) {
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  ++all.command_count;
  all.commands.emplace_front(name);
  if (all.commands.size() > kShownCommands) {
    all.commands.pop_back();
  }
}

void check_guards() {
  if (!config().guard) [[likely]] {
    return;
  }
  Guards& all = guards();
  const std::lock_guard lock(all.mutex);
  std::string text = std::exchange(all.found_at_free, "");
  if (all.command_count > 0) {
    const std::string found = check_all(all);
    text += (text.empty() || found.empty() ? "" : "\n") + found;
    all.commands.clear();
    all.command_count = 0;
  }
  if (!text.empty()) {
    throw Error(text);
  }
}

}  // namespace torch_opencl::runtime
