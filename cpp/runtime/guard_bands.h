// Guard mode (TORCH_OPENCL_GUARD=1): every block of a caching allocator lies
// between two bands of a pattern, which are compared at each wait and when the
// block is freed. New blocks are filled with the pattern, too, which is NaN in
// every floating dtype, so that reads of what nobody has written show.
// Off, each function is a look at config().
#pragma once

#include <cstdint>

namespace torch_opencl::runtime {

// Of a band; 0 without guard mode. Keeps the alignment of blocks.
uint64_t guard_band_bytes();

// Fills a new block, which has two bands more than `bytes`, on its stream.
// Returns the address between the bands.
void* add_guards(int device_index,
                 int64_t stream_id,
                 uint64_t block_address,
                 uint64_t bytes);
// The block between whose bands `address` is.
const void* guarded_block(const void* address);
// From now on another stream uses the block.
void add_guarded_stream(const void* address, int64_t stream_id);
// Waits for the block's streams and checks its bands before it is freed. What
// is found goes to stderr and is thrown by the next check_guards().
void remove_guards(const void* address) noexcept;

// For the text of an error.
void note_command(const char* name);  // only in guard mode
// Compares the bands of all blocks, if there were commands since the last time.
// Throws Error with the blocks around which something was written.
void check_guards();

}  // namespace torch_opencl::runtime
