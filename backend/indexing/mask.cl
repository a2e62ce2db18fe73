// Positions of the true elements of a contiguous mask, in order. Blocks count,
// one work-item turns counts into starts, blocks write.

#include "types.clh"

#ifndef BLOCK
#define BLOCK 1024  // elements of a block, one work-item each
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void count_blocks(CONST_TENSOR(storage_t, mask), TENSOR(long, starts), const long count) {
  const size_t block = get_global_id(0);
  const global storage_t *in = POINTER(mask);
  const long end = min(count, (long)(block + 1) * BLOCK);
  long sum = 0;
  for (long i = block * BLOCK; i < end; ++i) {
    sum += LOAD(in, i) != 0;
  }
  POINTER(starts)[block] = sum;
}

// The total goes behind the last start.
kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void scan_blocks(TENSOR(long, starts), const long blocks) {
  global long *start = POINTER(starts);
  long sum = 0;
  for (long i = 0; i < blocks; ++i) {
    const long count = start[i];
    start[i] = sum;
    sum += count;
  }
  start[blocks] = sum;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void write_blocks(CONST_TENSOR(storage_t, mask), CONST_TENSOR(long, starts),
                  TENSOR(long, positions), const long count) {
  const size_t block = get_global_id(0);
  const global storage_t *in = POINTER(mask);
  const long end = min(count, (long)(block + 1) * BLOCK);
  global long *out = POINTER(positions) + POINTER(starts)[block];
  for (long i = block * BLOCK; i < end; ++i) {
    if (LOAD(in, i) != 0) {
      *out++ = i;
    }
  }
}
