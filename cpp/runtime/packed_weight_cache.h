// The packed-weight cache: values computed from an allocation of device memory
// alone, such as a packed weight, kept until something is written there.
// Whoever writes invalidates after its command is enqueued, so that a reader of
// another thread cannot keep what it packed before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace torch_opencl::runtime {

// What tells the packed values of one allocation apart.
using PackedKey = std::vector<int64_t>;

struct PackedUse {
  std::shared_ptr<void> packed;  // null where none is kept
  // Asked for before, and nothing was written since.
  bool is_repeated = false;
  // Of the allocation's contents, for keep_packed.
  uint64_t generation = 0;
};
// `begin` starts an allocation of `bytes`.
PackedUse find_packed(const void* begin, uint64_t bytes, const PackedKey& key);
// Keeps what was found repeated, unless something was written meanwhile.
void keep_packed(const void* begin,
                 const PackedKey& key,
                 uint64_t generation,
                 std::shared_ptr<void> packed);

// A command that writes to the allocation around `address` was enqueued.
// Lock-free where nothing near it is kept; null is a no-op.
void invalidate_packed(const void* address) noexcept;
// Of a device. False where it has none.
bool invalidate_all_packed(int device_index);

// The allocation at `begin` may be written unseen, by another library.
void never_keep_packed(const void* begin, uint64_t bytes);
// The allocation ends.
void end_packed(const void* begin) noexcept;

}  // namespace torch_opencl::runtime
