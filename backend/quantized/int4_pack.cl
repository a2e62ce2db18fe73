// Packs bytes of two values (lines, depth / 2), the first in the high bits, as
// int4_layout.clh describes. A work-item writes a word.

#include "types.clh"
#include "int4_layout.clh"

kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void int4_pack(CONST_TENSOR(uchar, in), TENSOR(uint, out), const int lines, const int depth,
               const ulong words) {
  const size_t index = get_global_id(0);
  if (index >= words) return;
  const int word = index % WORDS;
  const size_t tile = index / TILE;
  const int tiles = depth / DEPTH;
  const size_t line = tile / tiles * 8 + index / WORDS % 8;
  uint packed = 0;
  if (line < lines) {
    const global uchar *bytes = POINTER(in) + line * (depth / 2) + tile % tiles * (DEPTH / 2) +
                                word % HALF * 16 + word / HALF;
    for (int j = 0; j < 4; ++j) {
      const uint pair = bytes[j * 4];
      packed |= pair >> 4 << j * 4 | (pair & 15) << (j * 4 + 16);
    }
  }
  POINTER(out)[index] = packed;
}
