// flip and roll: a copy whose source is walked backwards along flipped dimensions, and
// from the middle, then from the start, along rolled ones. Dimensions lie in the order
// of the result's memory, and one that continues its neighbour has been joined to it.

#include "types.clh"
#include "index.clh"

#ifndef DIRECTION
#define DIRECTION 1  // of a row of the source: -1 is backwards, 0 has gaps
#endif
#ifndef THREES
#define THREES 0  // pixels of three channels: DIRECTION is that of the pixels
#endif

#ifndef WG_SIZE
#define WG_SIZE 64  // of move_elements
#endif

#define RANK 8

// The host's FlipRollProblem.
typedef struct {
  long sizes[RANK];
  long turns[RANK];  // the place that reads the source's first element again
  long out_strides[RANK];
  long self_strides[RANK];
  long start;        // where the first place reads
  long rows;
  int rank;
  int segment;
  int chunk;
} problem_t;

#define element_uint8 uchar
#define element_uint16 ushort
#define element_uint32 uint
#define element_uint64 ulong
#define VECTOR(count) CONCAT(CONCAT(element_, DTYPE), count)
// PoCL's vstore16 takes three times as long for elements of one or two bytes.
typedef VECTOR(16) __attribute__((aligned(sizeof(storage_t)))) vector_16_t;
typedef VECTOR(8) __attribute__((aligned(sizeof(storage_t)))) vector_8_t;
typedef VECTOR(4) __attribute__((aligned(sizeof(storage_t)))) vector_4_t;

#define BACKWARDS_16 sfedcba9876543210
#define BACKWARDS_8 s76543210
#define BACKWARDS_4 s3210
#if DIRECTION < 0
#define LOAD_VECTOR(count, i) \
  (*(const global vector_##count##_t *)(x - (i) - (count - 1))).BACKWARDS_##count
#else
#define LOAD_VECTOR(count, i) (*(const global vector_##count##_t *)(x + (i)))
#endif
#define STORE_VECTOR(count, i, value) *(global vector_##count##_t *)(y + (i)) = value
#define MOVE_BY(count)                              \
  for (int next = 0; next < size; next += count) {  \
    const int i = min(next, size - count);          \
    STORE_VECTOR(count, i, LOAD_VECTOR(count, i));  \
  }

// Five pixels as a vector, whose sixteenth element is written again with the next.
#if DIRECTION < 0
#define FIVE_PIXELS(i) (*(const global vector_16_t *)(x - (i) - 13)).sdefabc7894561230
#define CHANNEL(i, c) x[(c) - (i)]
#else
#define FIVE_PIXELS(i) (*(const global vector_16_t *)(x + (i) - 2)).s210543876ba9edcf
#define CHANNEL(i, c) x[(i) - (c)]
#endif

inline void move_run(global storage_t *y, const global storage_t *x, int size, long stride) {
#if THREES
  int pixel = 0;
  for (; pixel + 18 <= size; pixel += 15) STORE_VECTOR(16, pixel, FIVE_PIXELS(pixel));
  for (; pixel < size; pixel += 3)
    for (int c = 0; c < 3; ++c) y[pixel + c] = CHANNEL(pixel, c);
#elif DIRECTION == 0
  for (int i = 0; i < size; ++i) y[i] = x[i * stride];
#else
  if (size >= 16)
    MOVE_BY(16)
  else if (size >= 8)
    MOVE_BY(8)
  else if (size >= 4)
    MOVE_BY(4)
  else
    for (int i = 0; i < size; ++i) y[i] = x[i * DIRECTION];
#endif
}

// On CPUs: a work-item writes a segment of `chunk` rows of dimension 0, by vectors; the
// last of a run overlaps the one before. Pixels of three channels of which either the
// pixels or the channels are flipped are a row of dimension 0 all the same.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void move_rows(
    const problem_t problem, TENSOR(storage_t, out), CONST_TENSOR(storage_t, self)) {
  const problem_t *p = &problem;
  const long begin = (long)get_global_id(0) * p->segment;
  const long end = min(begin + p->segment, p->sizes[0]);
  const long turn = clamp(p->turns[0], begin, end);
  const long stride = p->self_strides[0];
  const long first_row = (long)get_global_id(1) * p->chunk;
  const long end_row = min(first_row + p->chunk, p->rows);
  const global storage_t *x = POINTER(self) + p->start;
  global storage_t *y = POINTER(out);
  long places[RANK];
  long rest = first_row;
  for (int d = 1; d < p->rank; ++d) {
    const long place = rest % p->sizes[d];
    rest /= p->sizes[d];
    places[d] = place;
    x += (place < p->turns[d] ? place : place - p->sizes[d]) * p->self_strides[d];
    y += place * p->out_strides[d];
  }
  for (long row = first_row; row < end_row; ++row) {
    move_run(y + begin, x + begin * stride, (int)(turn - begin), stride);
    if (turn < end)
      move_run(y + turn, x + (turn - p->sizes[0]) * stride, (int)(end - turn), stride);
    for (int d = 1; d < p->rank; ++d) {
      x += p->self_strides[d];
      y += p->out_strides[d];
      if (++places[d] == p->turns[d]) x -= p->sizes[d] * p->self_strides[d];
      if (places[d] < p->sizes[d]) break;
      places[d] = 0;
      y -= p->sizes[d] * p->out_strides[d];
    }
  }
}

// On GPUs: a work-item moves one element.
kernel __attribute__((reqd_work_group_size(WG_SIZE, 1, 1))) void move_elements(
    const problem_t problem,
    TENSOR(storage_t, out),
    CONST_TENSOR(storage_t, self),
    const long elements) {
  const problem_t *p = &problem;
  if ((long)get_global_id(0) >= elements) return;
  index_t rest = get_global_id(0);
  long from = p->start, to = 0;
  // Unrolled: constant indices keep the problem out of private memory.
#pragma unroll
  for (int d = 0; d < RANK; ++d) {
    if (d >= p->rank) break;
    const index_t size = p->sizes[d];
    const index_t place = rest % size;
    rest /= size;
    from += (place < p->turns[d] ? place : place - size) * p->self_strides[d];
    to += place * p->out_strides[d];
  }
  POINTER(out)[to] = POINTER(self)[from];
}
