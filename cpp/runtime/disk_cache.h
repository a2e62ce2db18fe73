// Program binaries on disk: one file an entry, written by atomic rename, so
// any number of processes of a user may share the directory. Nothing here
// throws: a directory that is read-only, full, missing or writable by others
// (private_directory.h) only means building again, and a damaged entry is
// dropped.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace torch_opencl::runtime {

class PrivateDirectory;

class DiskCache {
 public:
  DiskCache(std::string directory, int64_t limit_bytes);

  // The payload stored under `key`, or nothing. The whole key is stored in
  // the entry and compared, so a hash collision is a miss. `damaged` tells
  // that something was there that is no entry, or failed its checksum.
  std::optional<std::vector<unsigned char>> load(const std::string& key,
                                                 bool* damaged) noexcept;
  void store(const std::string& key,
             const std::vector<unsigned char>& payload) noexcept;
  void remove(const std::string& key) noexcept;

  const std::string& directory() const { return directory_; }

 private:
  static std::string name_of(const std::string& key);
  // After a store of `added` bytes.
  void keep_limit(const PrivateDirectory& directory, int64_t added);
  // Removes abandoned temporaries and, over the limit, entries by oldest
  // access. The bytes that are left.
  int64_t evict(const PrivateDirectory& directory) const;

  std::string directory_;
  int64_t limit_bytes_;
  std::mutex total_mutex_;
  int64_t total_bytes_ = 0;  // since the last scan of the directory
  int stores_to_scan_ = 0;
};

// TORCH_OPENCL_CACHE_DIR, else $XDG_CACHE_HOME/torch_opencl, else
// ~/.cache/torch_opencl.
std::string default_cache_directory();

}  // namespace torch_opencl::runtime
