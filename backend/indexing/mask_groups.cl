// Positions of the true elements of a contiguous mask, in order, for GPUs. A work-group
// takes a block of BLOCK elements: count_groups counts, the host's scan of the counts
// says where each block's positions end, and write_groups writes them, a tile at a time.

#include "types.clh"
#include "group_scan.clh"

#define WG_SIZE 128
#define ITEMS 8
#define TILE (WG_SIZE * ITEMS)
#define ADD(a, b) ((a) + (b))

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void count_groups(CONST_TENSOR(storage_t, mask), TENSOR(long, counts), const long count) {
  local int shared[WG_SIZE];
  const int item = get_local_id(0);
  const long first = (long)get_group_id(0) * BLOCK;
  const int size = (int)min((long)BLOCK, count - first);
  int own = 0;
  for (int k = item; k < size; k += WG_SIZE) own += LOAD(POINTER(mask), first + k) != 0;
  shared[item] = own;
  for (int half_size = WG_SIZE / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_size) shared[item] += shared[item + half_size];
  }
  if (item == 0) POINTER(counts)[get_group_id(0)] = shared[0];
}

// `ends`: where each block's positions end.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void write_groups(CONST_TENSOR(storage_t, mask), CONST_TENSOR(long, ends),
                  TENSOR(long, positions), const long count) {
  local uchar flags[TILE];
  local ushort found[TILE];
  local int shared[2 * WG_SIZE];
  const int item = get_local_id(0);
  const size_t block = get_group_id(0);
  const long last = min(count, (long)(block + 1) * BLOCK);
  global long *out = POINTER(positions) + (block > 0 ? POINTER(ends)[block - 1] : 0);
  for (long first = (long)block * BLOCK; first < last; first += TILE) {
    for (int k = item; k < TILE; k += WG_SIZE)
      flags[k] = first + k < last && LOAD(POINTER(mask), first + k) != 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    int own = 0;
    for (int j = 0; j < ITEMS; ++j) own += flags[item * ITEMS + j];
    int rank = -own;
    GROUP_SCAN(shared, at, own, item, item, WG_SIZE, ADD)
    rank += own;
    for (int j = 0; j < ITEMS; ++j)
      if (flags[item * ITEMS + j]) found[rank++] = (ushort)(item * ITEMS + j);
    const int total = shared[at + WG_SIZE - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = item; k < total; k += WG_SIZE) out[k] = first + found[k];
    out += total;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// One coordinate of each position: that of a dimension of `size`, whose neighbours are
// `divisor` elements apart.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void coordinates(CONST_TENSOR(long, positions), TENSOR(long, out), const ulong count,
                 const long out_stride, const long divisor, const long size) {
  const size_t i = get_global_id(0);
  if (i < count) POINTER(out)[i * out_stride] = POINTER(positions)[i] / divisor % size;
}
