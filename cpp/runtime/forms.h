// Forms: values computed from a range of device memory alone, such as a packed
// weight, kept until something may have written there. Whoever asks where an
// address lies forgets the forms of its range, unless it asks only to read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace torch_opencl::runtime {

// What tells the forms of one range apart.
using FormKey = std::vector<int64_t>;

struct FormUse {
  std::shared_ptr<void> form;  // null where none is kept
  // This form has been asked for before and nothing was written since.
  bool is_repeated = false;
};
// `begin` starts an allocation of `bytes`.
FormUse use_form(const void* begin, uint64_t bytes, const FormKey& key);
// Keeps a form that was found repeated, unless something was written meanwhile.
void keep_form(const void* begin,
               const FormKey& key,
               std::shared_ptr<void> form);

// Forgets the forms of the allocation around an address. Lock-free where there
// are none near it.
void forget_forms(const void* address) noexcept;
// Of a device. False where it has none.
bool forget_all_forms(int device_index) noexcept;

// The allocation at `begin` may be written unseen, by another library.
void never_keep_forms(const void* begin, uint64_t bytes);
// The allocation ends.
void end_forms(const void* begin) noexcept;

}  // namespace torch_opencl::runtime
