// channel_shuffle where the channels of a pixel follow each other, on CPUs: each pixel
// is a matrix of groups that is transposed. A step moves 16 channels of each group, 16
// groups, or the whole of PIXELS pixels, permuted in registers; the last one overlaps
// the one before. A work-item takes `chunk` pixels. The host writes ahead of this text
// what PIXELS is and MOVE: loads, shuffles and stores of a step.

typedef CONCAT(storage_, DTYPE) bits_t;
typedef CONCAT(VECTOR, 16) vector_t;
// PoCL's vstore16 takes three times as long for elements of one or two bytes.
typedef vector_t __attribute__((aligned(sizeof(bits_t)))) unaligned_t;

#define LOAD_VECTOR(p) (*(const global unaligned_t *)(p))
#define STORE_VECTOR(value, p) *(global unaligned_t *)(p) = value
#if NON_TEMPORAL && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#undef STORE_VECTOR
#define STORE_VECTOR(value, p)                                  \
  if ((ulong)(p) % sizeof(vector_t) == 0)                       \
    __builtin_nontemporal_store(value, (global vector_t *)(p)); \
  else                                                          \
    *(global unaligned_t *)(p) = value
#endif
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void shuffle_channels(
    const int pixels, const int chunk, const int groups, const int group_size,
    const int count,  // of channels of a group, or groups, moved 16 a step
    const int self_step, const int out_step,
    TENSOR(bits_t, out), CONST_TENSOR(bits_t, self)) {
  const int first = (int)get_global_id(0) * chunk;
  const int end = get_global_id(0) + 1 == get_global_size(0) ? pixels : first + chunk;
  for (int next = first; next < end; next += PIXELS) {
    const long at = (long)min(next, end - PIXELS) * groups * group_size;
    for (int next_place = 0; next_place < count; next_place += 16) {
      const int place = min(next_place, count - 16);
      const global bits_t *x = POINTER(self) + at + place * self_step;
      global bits_t *y = POINTER(out) + at + place * out_step;
      MOVE
    }
  }
}
