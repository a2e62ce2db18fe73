// Stable merge sort of the rows of a matrix for GPUs: keys that are unsigned integers
// in the order of the values, each with the column it came from.
//
// sort_blocks: `span` work-items sort a block of span * ITEMS neighbouring elements of a
// row in local memory, several short rows a group: a work-item its ITEMS in registers,
// then runs of these merge in pairs. The first `kept` of a block are written side by
// side. FROM_KEYS: of what such a launch wrote.
// merge_blocks: sorted runs of `width` elements merge in pairs; a group makes TILE
// outputs. Its inputs, and those of a work-item within it, are found by bisecting the
// merge's diagonal (Odeh, Green, Mwassi, Shmueli, Birk, Merge Path, 2012). Nothing
// beyond the first `kept` of a run is read or written.

#include "types.clh"
#include "sort_key.clh"

#define WG_SIZE 128
#ifdef WIDE_KEY
#define ITEMS 4
#else
#define ITEMS 8
#endif
#define TILE (WG_SIZE * ITEMS)
#define PADDED(i) ((i) + (i) / 32)  // no two lanes of a wave in one bank

// How many of the first `diagonal` outputs come from the left run.
#define DEFINE_SPLIT(name, space, AT)                                             \
  inline int name(const space sort_key_t *left, int left_at, int left_size,       \
                  const space sort_key_t *right, int right_at, int right_size,    \
                  int diagonal) {                                                 \
    int low = max(0, diagonal - right_size);                                      \
    int high = min(diagonal, left_size);                                          \
    while (low < high) {                                                          \
      const int middle = (low + high) / 2;                                        \
      if (left[AT(left_at + middle)] <= right[AT(right_at + diagonal - 1 - middle)]) \
        low = middle + 1;                                                         \
      else                                                                        \
        high = middle;                                                            \
    }                                                                             \
    return low;                                                                   \
  }
#define PLAIN(i) (i)
DEFINE_SPLIT(split_of_tile, local, PADDED)
DEFINE_SPLIT(split_of_runs, global, PLAIN)

// `own_key` and `own_from` are arrays of the whole kernel that live over barriers: of
// others PoCL's work-items share one.
//
// Replaces the work-item's outputs, from `first` on of those of two runs in the tile,
// by a merge of them; what is beyond both is arbitrary.
#define MERGE_TILE(left, left_size, right, right_size, first, to)                 \
  {                                                                               \
    int i = split_of_tile(keys, left, left_size, keys, right, right_size,         \
                          min(first, (left_size) + (right_size)));                \
    int j = min(first, (left_size) + (right_size)) - i;                           \
    _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) {                           \
      const int l = PADDED(min((left) + i, TILE - 1));                            \
      const int n = PADDED(min((right) + j, TILE - 1));                           \
      const bool takes_left =                                                     \
          j >= (right_size) || (i < (left_size) && keys[l] <= keys[n]);           \
      own_key[k] = takes_left ? keys[l] : keys[n];                                \
      own_from[k] = takes_left ? from[l] : from[n];                               \
      i += takes_left;                                                            \
      j += !takes_left;                                                           \
    }                                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                 \
    _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) {                           \
      keys[PADDED((to) + k)] = own_key[k];                                        \
      from[PADDED((to) + k)] = own_from[k];                                       \
    }                                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                 \
  }

#ifdef DTYPE
// `pitch` elements a row of what is written, of `kept` a block.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void sort_blocks(
#if FROM_KEYS
    CONST_TENSOR(sort_key_t, self), CONST_TENSOR(int, self_order),
#else
    CONST_TENSOR(storage_t, self),
#endif
    TENSOR(sort_key_t, sorted), TENSOR(int, order), const long rows, const int columns,
    const int span, const int kept, const int pitch) {
  local sort_key_t keys[PADDED(TILE)];
  local int from[PADDED(TILE)];
  sort_key_t own_key[ITEMS];
  int own_from[ITEMS];
  const int item = get_local_id(0);
  const int width = span * ITEMS;  // of a block, a power of two
  const int shift = 31 - clz(width);
  const int block = get_group_id(0) * width;
  const long first_row = get_group_id(1) * (long)(WG_SIZE / span);
  const int rows_here = (int)min(rows - first_row, (long)(WG_SIZE / span));

  for (int s = item; s < TILE; s += WG_SIZE) {
    const int row = s >> shift;
    const int column = s & (width - 1);
    sort_key_t key = ~(sort_key_t)0;  // behind the row, where it stays
    if (row < rows_here && column < columns - block) {
      const size_t at = (size_t)(first_row + row) * columns + block + column;
#if FROM_KEYS
      key = POINTER(self)[at];
#else
      key = ascending_key(LOAD(POINTER(self), at));
      if (DESCENDING) key = ~key;
#endif
    }
    keys[PADDED(s)] = key;
    from[PADDED(s)] = column;
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const int own = item * ITEMS;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    own_key[k] = keys[PADDED(own + k)];
    own_from[k] = from[PADDED(own + k)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  // Neighbours in turn, so that equal ones keep their order.
#pragma unroll
  for (int round = 0; round < ITEMS; ++round) {
#pragma unroll
    for (int k = round & 1; k + 1 < ITEMS; k += 2) {
      const bool swaps = own_key[k + 1] < own_key[k];
      const sort_key_t less = swaps ? own_key[k + 1] : own_key[k];
      const int less_from = swaps ? own_from[k + 1] : own_from[k];
      own_key[k + 1] = swaps ? own_key[k] : own_key[k + 1];
      own_from[k + 1] = swaps ? own_from[k] : own_from[k + 1];
      own_key[k] = less;
      own_from[k] = less_from;
    }
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    keys[PADDED(own + k)] = own_key[k];
    from[PADDED(own + k)] = own_from[k];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int run = ITEMS; run < width; run *= 2) {
    const int pair = own & ~(2 * run - 1);
    MERGE_TILE(pair, run, pair + run, run, own - pair, own)
  }

  for (int s = item; s < TILE; s += WG_SIZE) {
    const int row = s >> shift;
    const int column = s & (width - 1);
    if (row < rows_here && column < min(kept, columns - block)) {
      const size_t at = (size_t)(first_row + row) * pitch +
                        (size_t)get_group_id(0) * min(kept, width) + column;
      const int place = from[PADDED(s)];
      POINTER(sorted)[at] = keys[PADDED(s)];
#if FROM_KEYS
      POINTER(order)[at] = POINTER(self_order)[(size_t)(first_row + row) * columns + block + place];
#else
      POINTER(order)[at] = block + place;
#endif
    }
  }
}
#else

// `tiles` of a pair's outputs are a group each.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void merge_blocks(
    CONST_TENSOR(sort_key_t, sorted), CONST_TENSOR(int, order),
    TENSOR(sort_key_t, merged), TENSOR(int, merged_order), const int columns,
    const int width, const int tiles, const int kept) {
  local sort_key_t keys[PADDED(TILE)];
  local int from[PADDED(TILE)];
  local int splits[2];
  sort_key_t own_key[ITEMS];
  int own_from[ITEMS];
  const int item = get_local_id(0);
  const long pair = (long)(get_group_id(0) / tiles) * 2 * width;
  const int left_size = (int)min(min((long)width, columns - pair), (long)kept);
  const int right_size =
      (int)min(clamp(columns - pair - width, 0L, (long)width), (long)kept);
  const int outputs = min(left_size + right_size, kept);
  const int begin = min((int)(get_group_id(0) % tiles) * TILE, outputs);
  const int end = min(begin + TILE, outputs);
  const size_t start = (size_t)get_group_id(1) * columns + pair;
  const global sort_key_t *left = POINTER(sorted) + start;
  const global sort_key_t *right = left + width;
  if (item < 2)
    splits[item] = split_of_runs(left, 0, left_size, right, 0, right_size,
                                 item == 0 ? begin : end);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int left_begin = splits[0];
  const int left_count = splits[1] - left_begin;
  const int right_begin = begin - left_begin;
  const int right_count = end - begin - left_count;
  for (int s = item; s < end - begin; s += WG_SIZE) {
    const size_t at = s < left_count ? (size_t)(left_begin + s)
                                     : (size_t)width + right_begin + s - left_count;
    keys[PADDED(s)] = left[at];
    from[PADDED(s)] = POINTER(order)[start + at];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  MERGE_TILE(0, left_count, left_count, right_count, item * ITEMS, item * ITEMS)
  for (int s = item; s < end - begin; s += WG_SIZE) {
    POINTER(merged)[start + begin + s] = keys[PADDED(s)];
    POINTER(merged_order)[start + begin + s] = from[PADDED(s)];
  }
}
#endif
