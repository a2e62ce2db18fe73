// A directory whose files nobody else can have written: it and every file read
// from it belong to this user and are not writable by others. What is loaded
// from it becomes code of this process. Nothing here throws but bad_alloc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch_opencl::runtime {

class PrivateDirectory {
 public:
  enum class State { kUsable, kMissing, kRefused };

  // Opens `path`. A directory of this user that others can only read, as those
  // of earlier versions, becomes 0700; one that others can write to, or that is
  // another user's, is refused, with one warning a process.
  explicit PrivateDirectory(const std::string& path);
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;

  // Makes `path` and its parents, 0700.
  static void make(const std::string& path);

  State state() const { return state_; }

  enum class Found { kFile, kNothing, kUnusable };
  // The content of a regular file of up to `limit_bytes`, its time of access
  // set to now. Neither follows links nor waits. kUnusable: something else is
  // there, or a file that others can write to.
  Found read(const std::string& name,
             int64_t limit_bytes,
             std::vector<unsigned char>& content) const;
  // Writes `name`, 0600, as a whole or not at all: the file is made under a
  // name that did not exist, which ends in kTemporary, and renamed.
  bool write(const std::string& name, std::string_view content) const;
  static constexpr std::string_view kTemporary = ".tmp";
  void remove(const std::string& name) const;

  struct Entry {
    std::string name;
    int64_t bytes;
    int64_t used_at;  // nanoseconds since 1970
  };
  // Its regular files.
  std::vector<Entry> entries() const;

 private:
  int descriptor_ = -1;
  State state_ = State::kMissing;
};

}  // namespace torch_opencl::runtime
