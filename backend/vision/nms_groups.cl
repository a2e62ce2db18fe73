// Greedy non-maximum suppression for GPUs, after `overlaps` of nms.cl: one work-group
// walks the boxes in descending order of their scores, 32 at a time, a word of
// `removed`. Which of the 32 stay, one work-item finds from their words about each
// other; then all items add the words of those that stay to the ones removed.

#include "types.clh"

#define WG_SIZE 256

kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void select_boxes_by_words(
    CONST_TENSOR(int, words), TENSOR(int, removed), TENSOR(uchar, kept), const int count) {
  local uint among[32];
  local uint stays;
  const int columns = (count + 31) / 32;
  const int item = get_local_id(0);
  for (int column = item; column < columns; column += WG_SIZE) POINTER(removed)[column] = 0;
  barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  for (int word = 0; word < columns; ++word) {
    const int first = word * 32;
    const int size = min(32, count - first);
    const global int *own = POINTER(words) + (size_t)first * columns;
    if (item < size) among[item] = as_uint(own[(size_t)item * columns + word]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
      uint gone = as_uint(POINTER(removed)[word]);
      for (int bit = 0; bit < size; ++bit)
        if (!(gone >> bit & 1u)) gone |= among[bit];
      stays = ~gone;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint chosen = stays;
    if (item < size) POINTER(kept)[first + item] = chosen >> item & 1u;
    for (int column = word + 1 + item; column < columns; column += WG_SIZE) {
      int gone = POINTER(removed)[column];
      for (int bit = 0; bit < size; ++bit)
        if (chosen >> bit & 1u) gone |= own[(size_t)bit * columns + column];
      POINTER(removed)[column] = gone;
    }
    barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  }
}
