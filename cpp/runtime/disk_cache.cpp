#include "disk_cache.h"

#include "config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace torch_opencl::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'T', 'O', 'C', 'L', 'B', 'I', 'N', '1'};

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

std::string DiskCache::path_of(const std::string& key) const {
  char name[40];
  std::snprintf(
      name,
      sizeof(name),
      "%016llx%016llx",
      static_cast<unsigned long long>(hash(key.data(), key.size(), kSeed)),
      static_cast<unsigned long long>(hash(key.data(), key.size(), ~kSeed)));
  return directory_ + "/" + name + ".bin";
}

std::optional<std::vector<unsigned char>> DiskCache::load(
    const std::string& key, bool* damaged) noexcept {
  *damaged = false;
  if (limit_bytes_ <= 0 || directory_.empty()) {
    return std::nullopt;
  }
  try {
    const std::string path = path_of(key);
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      return std::nullopt;
    }
    std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)),
                                     std::istreambuf_iterator<char>());
    Header header{};
    *damaged = true;
    if (bytes.size() < sizeof(header)) {
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
    std::error_code error;
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);
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
    std::error_code error;
    if (fs::create_directories(directory_, error)) {
      fs::permissions(directory_, fs::perms::owner_all, error);
    }
    static std::atomic<uint64_t> serial{0};
    const std::string path = path_of(key);
    const std::string temporary = path + "." + std::to_string(getpid()) + "." +
                                  std::to_string(serial++) + ".tmp";
    std::string body = key;
    body.append(reinterpret_cast<const char*>(payload.data()), payload.size());
    const Header header{kMagic,
                        key.size(),
                        payload.size(),
                        hash(body.data(), body.size(), kSeed)};
    bool is_written = false;
    {
      std::ofstream file(temporary, std::ios::binary);
      file.write(reinterpret_cast<const char*>(&header), sizeof(header));
      file.write(body.data(), static_cast<std::streamsize>(body.size()));
      file.flush();
      is_written = file.good();
    }
    if (is_written) {
      fs::rename(temporary, path, error);
    }
    if (!is_written || error) {
      fs::remove(temporary, error);
      return;
    }
    evict();
  } catch (...) {
    // Not stored: the next process builds it again.
  }
}

void DiskCache::remove(const std::string& key) noexcept {
  try {
    std::error_code error;
    fs::remove(path_of(key), error);
  } catch (...) {
    // It stays, and is damaged again next time.
  }
}

void DiskCache::evict() noexcept {
  try {
    struct Entry {
      fs::path path;
      int64_t bytes;
      fs::file_time_type used;
    };
    std::vector<Entry> entries;
    int64_t total = 0;
    std::error_code error;
    for (const auto& item : fs::directory_iterator(directory_, error)) {
      if (item.path().extension() == ".bin") {
        const auto bytes = static_cast<int64_t>(item.file_size(error));
        if (error) {
          continue;  // another process has just removed it
        }
        entries.push_back({item.path(), bytes, item.last_write_time(error)});
        total += bytes;
      }
    }
    if (total <= limit_bytes_) {
      return;
    }
    std::sort(entries.begin(),
              entries.end(),
              [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (const Entry& entry : entries) {
      if (total <= limit_bytes_) {
        return;
      }
      fs::remove(entry.path, error);
      total -= entry.bytes;
    }
  } catch (...) {
    // The limit is kept by a later store.
  }
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
