// Greedy non-maximum suppression of boxes in descending order of their scores.
//
// overlaps: a work-item makes one word: which of 32 later boxes overlap a box by
// more than the threshold. select: one work-group walks the boxes in order; a
// box that no earlier one has removed stays, and its words are added to the
// removed ones, a work-item taking every WG_SIZE-th word.

#include "types.clh"

#ifndef WG_SIZE
#define WG_SIZE 64
#endif

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void overlaps(
    CONST_TENSOR(storage_t, boxes),
    CONST_TENSOR(long, order),
    TENSOR(int, words),
    const int count,
    const compute_t threshold) {
  const int columns = (count + 31) / 32;
  const int column = get_global_id(0);
  const int row = get_global_id(1);
  if (column >= columns) return;
  const size_t mine = POINTER(order)[row] * 4;
  const compute_t left = LOAD(POINTER(boxes), mine);
  const compute_t top = LOAD(POINTER(boxes), mine + 1);
  const compute_t right = LOAD(POINTER(boxes), mine + 2);
  const compute_t bottom = LOAD(POINTER(boxes), mine + 3);
  const compute_t area = (right - left) * (bottom - top);
  uint word = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const int other = column * 32 + bit;
    if (other <= row || other >= count) continue;
    const size_t theirs = POINTER(order)[other] * 4;
    const compute_t x1 = LOAD(POINTER(boxes), theirs);
    const compute_t y1 = LOAD(POINTER(boxes), theirs + 1);
    const compute_t x2 = LOAD(POINTER(boxes), theirs + 2);
    const compute_t y2 = LOAD(POINTER(boxes), theirs + 3);
    const compute_t width = fmax(fmin(right, x2) - fmax(left, x1), REAL(0.0));
    const compute_t height = fmax(fmin(bottom, y2) - fmax(top, y1), REAL(0.0));
    const compute_t common = width * height;
    const compute_t overlap = common / (area + (x2 - x1) * (y2 - y1) - common);
    if (overlap > threshold) word |= 1u << bit;
  }
  POINTER(words)[(size_t)row * columns + column] = as_int(word);
}

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void select_boxes(
    CONST_TENSOR(int, words), TENSOR(int, removed), TENSOR(uchar, kept), const int count) {
  const int columns = (count + 31) / 32;
  const int lane = get_local_id(0);
  for (int column = lane; column < columns; column += WG_SIZE) POINTER(removed)[column] = 0;
  for (int row = 0; row < count; ++row) {
    barrier(CLK_GLOBAL_MEM_FENCE);
    const int stays = !(as_uint(POINTER(removed)[row / 32]) >> (row % 32) & 1u);
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (lane == 0) POINTER(kept)[row] = stays;
    if (stays) {
      for (int column = row / 32 + lane; column < columns; column += WG_SIZE)
        POINTER(removed)[column] |= POINTER(words)[(size_t)row * columns + column];
    }
  }
}
