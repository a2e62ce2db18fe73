// Sums, products and extremes along one dimension for GPUs.
//
// A work-group takes WG_SIZE / span neighbouring lines, and of each a tile of `span`
// work-items times ITEMS elements after the other. Tiles are read and written through
// local memory, so that neighbouring work-items touch neighbouring elements whichever
// dimension it is. Long lines are cut into chunks, one a group (dimension 1 of the
// range): scan_totals (TOTALS) scans all but the last for their totals only, and
// scan_groups begins with those ahead of its chunk. Nothing depends on which group
// comes first, so the same input gives the same bits.

#include "types.clh"
#include "scan_states.clh"
#include "group_scan.clh"

#define WG_SIZE 128
#define LOG_GROUP 7
#define ITEMS (1 << LOG_ITEMS)
#define TILE (WG_SIZE * ITEMS)
#define PADDED(i) ((i) + (i) / 32)  // no two lanes of a wave in one bank

#if TOTALS
#define KERNEL_NAME scan_totals
#else
#define KERNEL_NAME scan_groups
#endif

// Elements of a line lie `inner` apart. `totals` has `chunks` - 1 states a line, of 24
// bytes at most each.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1)))
void KERNEL_NAME(
#if !TOTALS
    TENSOR(storage_t, out),
#if OP_EXTREME
    TENSOR(long, indices),
#endif
#endif
    CONST_TENSOR(storage_t, self), TENSOR(long, totals), const long lines,
    const long length, const long inner, const long chunk, const int chunks,
    const int log_span) {
  local compute_t tile[PADDED(TILE)];
  local state_t shared[2 * WG_SIZE];
#if OP_EXTREME && !TOTALS
  local long places[PADDED(TILE)];
#endif
  const int item = get_local_id(0);
  const int span = 1 << log_span;
  const int log_width = log_span + LOG_ITEMS;
  const int width = 1 << log_width;  // of a tile
  const int rows = WG_SIZE >> log_span;
  const int log_rows = LOG_GROUP - log_span;
  const int row = item >> log_span;
  const int along = item & (span - 1);

  const bool is_row = inner == 1;
  const long group = get_group_id(0);
  const long across = is_row ? lines : inner;  // lines that lie side by side
  const long per_block = (across + rows - 1) / rows;
  const long block = is_row ? 0 : group / per_block;
  const long column = (group - block * per_block) * rows;
  const int count = (int)min((long)rows, across - column);
  const long row_pitch = is_row ? length : 1;
  const size_t base = block * length * inner + column * row_pitch;

  const int number = get_group_id(1);
  const long start = number * chunk;
  const long end = min(length, start + chunk);

  state_t carry = IDENTITY;
#if !TOTALS
  if (number > 0) {
    const global state_t *before = (const global state_t *)POINTER(totals) +
                                   (block * inner + column + row) * (chunks - 1);
    const int share = (number + span - 1) >> log_span;
    if (row < count)
      for (int i = along * share; i < min((along + 1) * share, number); ++i)
        carry = combined(carry, before[i]);
    GROUP_SCAN(shared, at, carry, item, along, span, combined)
    carry = shared[at + (item | (span - 1))];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#endif

// Where slot s of a tile lies: neighbouring slots are neighbours in memory.
#define SLOT(s)                                                              \
  const int r = is_row ? (s) >> log_width : (s) & (rows - 1);                     \
  const int c = is_row ? (s) & (width - 1) : (s) >> log_rows;                     \
  const bool is_inside = r < count && begin + c < end;                       \
  const size_t place = base + r * row_pitch + (begin + c) * inner;           \
  const int at_slot = PADDED(r * width + c);

  for (long begin = start; begin < end; begin += width) {
#pragma unroll 4
    for (int k = 0; k < ITEMS; ++k) {
      SLOT(k * WG_SIZE + item)
      if (is_inside) tile[at_slot] = LOAD(POINTER(self), place);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const long first = begin + along * ITEMS;
    const int own_count = row < count ? (int)clamp(end - first, 0L, (long)ITEMS) : 0;
    state_t own = IDENTITY;
#pragma unroll 1
    for (int j = 0; j < own_count; ++j) {
      const compute_t x = tile[PADDED(item * ITEMS + j)];
      own = combined(own, ELEMENT(x, first + j));
    }
    GROUP_SCAN(shared, at, own, item, along, span, combined)
#if !TOTALS
    state_t running = along > 0 ? combined(carry, shared[at + item - 1]) : carry;
#pragma unroll 1
    for (int j = 0; j < own_count; ++j) {
      const int in_tile = PADDED(item * ITEMS + j);
      const compute_t x = tile[in_tile];
      running = combined(running, ELEMENT(x, first + j));
      tile[in_tile] = RESULT(running);
#if OP_EXTREME
      places[in_tile] = running.at;
#endif
    }
#endif
    carry = combined(carry, shared[at + (item | (span - 1))]);
    barrier(CLK_LOCAL_MEM_FENCE);
#if !TOTALS
#pragma unroll 4
    for (int k = 0; k < ITEMS; ++k) {
      SLOT(k * WG_SIZE + item)
      if (is_inside) {
        STORE(POINTER(out), place, tile[at_slot]);
#if OP_EXTREME
        POINTER(indices)[place] = places[at_slot];
#endif
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
  }
#if TOTALS
  if (along == 0 && row < count)
    ((global state_t *)POINTER(totals))[(block * inner + column + row) * (chunks - 1) +
                                        number] = carry;
#endif
}
