#include "disk_cache.h"

#include "config.h"
#include "private_directory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace torch_opencl::runtime {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'O', 'C', 'L', 'B', 'I', 'N', '1'};

constexpr std::string_view kExtension = ".bin";

// FNV-1a: names files and detects damage; keys are compared whole.
uint64_t hash(const void* data, size_t size, uint64_t seed) {
  uint64_t value = seed;
  for (size_t i = 0; i < size; ++i) {
    value =
        (value ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ull;
  }
  return value;
}

constexpr uint64_t kSeed = 0xcbf29ce484222325ull;

struct Header {
  std::array<char, 8> magic;
  uint64_t key_size;
  uint64_t payload_size;
  uint64_t checksum;
};

}  // namespace

DiskCache::DiskCache(std::string directory, int64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string DiskCache::name_of(const std::string& key) {
  char name[40];
  std::snprintf(
      name,
      sizeof(name),
      "%016llx%016llx",
      static_cast<unsigned long long>(hash(key.data(), key.size(), kSeed)),
      static_cast<unsigned long long>(hash(key.data(), key.size(), ~kSeed)));
  return name + std::string(kExtension);
}

std::optional<std::vector<unsigned char>> DiskCache::load(
    const std::string& key, bool* damaged) noexcept {
  *damaged = false;
  if (limit_bytes_ <= 0 || directory_.empty()) {
    return std::nullopt;
  }
  try {
    const PrivateDirectory directory(directory_);
    if (directory.state() != PrivateDirectory::State::kUsable) {
      return std::nullopt;
    }
    std::vector<unsigned char> bytes;
    const auto found = directory.read(name_of(key), limit_bytes_, bytes);
    if (found == PrivateDirectory::Found::kNothing) {
      return std::nullopt;
    }
    Header header{};
    *damaged = true;
    if (found != PrivateDirectory::Found::kFile ||
        bytes.size() < sizeof(header)) {
      return std::nullopt;
    }
    std::memcpy(&header, bytes.data(), sizeof(header));
    const size_t body = bytes.size() - sizeof(header);
    const unsigned char* start = bytes.data() + sizeof(header);
    if (header.magic != kMagic || header.key_size > body ||
        header.payload_size != body - header.key_size ||
        header.checksum != hash(start, body, kSeed)) {
      return std::nullopt;
    }
    *damaged = false;
    if (header.key_size != key.size() ||
        std::memcmp(start, key.data(), key.size()) != 0) {
      return std::nullopt;
    }
    return std::vector<unsigned char>(start + key.size(), start + body);
  } catch (...) {
    return std::nullopt;
  }
}

void DiskCache::store(const std::string& key,
                      const std::vector<unsigned char>& payload) noexcept {
  if (limit_bytes_ <= 0 || directory_.empty()) {
    return;
  }
  try {
    PrivateDirectory::make(directory_);
    const PrivateDirectory directory(directory_);
    if (directory.state() != PrivateDirectory::State::kUsable) {
      return;
    }
    std::string body = key;
    body.append(reinterpret_cast<const char*>(payload.data()), payload.size());
    const Header header{kMagic,
                        key.size(),
                        payload.size(),
                        hash(body.data(), body.size(), kSeed)};
    body.insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
    if (directory.write(name_of(key), body)) {
      keep_limit(directory, static_cast<int64_t>(body.size()));
    }
  } catch (...) {
    // Not stored: the next process builds it again.
  }
}

void DiskCache::remove(const std::string& key) noexcept {
  try {
    const PrivateDirectory directory(directory_);
    if (directory.state() == PrivateDirectory::State::kUsable) {
      directory.remove(name_of(key));
    }
  } catch (...) {
    // It stays, and is damaged again next time.
  }
}

void DiskCache::keep_limit(const PrivateDirectory& directory, int64_t added) {
  // Other processes store, too, so the total is read again now and then.
  constexpr int kStoresAScan = 256;
  const std::lock_guard lock(total_mutex_);
  total_bytes_ += added;
  if (stores_to_scan_ > 0 && total_bytes_ <= limit_bytes_) {
    --stores_to_scan_;
    return;
  }
  stores_to_scan_ = kStoresAScan;
  total_bytes_ = evict(directory);
}

int64_t DiskCache::evict(const PrivateDirectory& directory) const {
  // A store takes milliseconds: what is left of one after so long was
  // abandoned.
  constexpr int64_t kAbandonedSeconds = 600;
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  std::vector<PrivateDirectory::Entry> entries;
  int64_t total = 0;
  for (PrivateDirectory::Entry& entry : directory.entries()) {
    const bool is_temporary =
        entry.name.ends_with(PrivateDirectory::kTemporary);
    if (is_temporary &&
        now - entry.used_at > kAbandonedSeconds * 1'000'000'000) {
      directory.remove(entry.name);
      continue;
    }
    if (is_temporary || entry.name.ends_with(kExtension)) {
      total += entry.bytes;
    }
    if (entry.name.ends_with(kExtension)) {
      entries.push_back(std::move(entry));
    }
  }
  if (total <= limit_bytes_) {
    return total;
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.used_at < b.used_at;
  });
  // With some room, so that the next store does not come here again.
  const int64_t target = limit_bytes_ - limit_bytes_ / 8;
  for (const PrivateDirectory::Entry& entry : entries) {
    if (total <= target) {
      break;
    }
    directory.remove(entry.name);
    total -= entry.bytes;
  }
  return total;
}

std::string default_cache_directory() {
  if (const std::string chosen = config().cache_dir; !chosen.empty()) {
    return chosen;
  }
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) {
    return xdg + "/torch_opencl";
  }
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/torch_opencl";
}

}  // namespace torch_opencl::runtime
