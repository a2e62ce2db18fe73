// Copies between FACTOR separate lines and one in which their elements take
// turns, on CPUs: what pixel_shuffle and pixel_unshuffle do. Dimension 0 counts
// the lines, dimension 1 runs along them. A work-item takes `chunk` groups of
// lines, LANES elements of each at a time.

#include "types.clh"
#include "lanes.clh"
#include "transpose_vectors.clh"
#include "layouts.clh"

#ifndef FACTOR
#define FACTOR 2  // or 4
#endif
#ifndef INTERLEAVES
#define INTERLEAVES 1  // 0: `self` has the turns, `out` the lines
#endif

// Offsets of vector, or element, j of those that hold elements [i, i + count)
// of each line.
#define IN_LINES(strides, j, i, count) ((j) * (strides)[0] + (i))
#define IN_TURNS(strides, j, i, count) ((i) * FACTOR + (j) * (count))

#if INTERLEAVES
#define SELF_OFFSET(j, i, count) IN_LINES(p->self_strides, j, i, count)
#define OUT_OFFSET(j, i, count) IN_TURNS(p->out_strides, j, i, count)
#define SHUFFLE(to, from) interleave(to, from, FACTOR)
#else
#define SELF_OFFSET(j, i, count) IN_TURNS(p->self_strides, j, i, count)
#define OUT_OFFSET(j, i, count) IN_LINES(p->out_strides, j, i, count)
#define SHUFFLE(to, from) separate(to, from, FACTOR)
#endif

inline int offset_of(const problem_t *p, const int *strides, int group) {
  int offset = 0;
  for (int d = 2; d < p->rank; ++d) {
    const int rest = group / p->sizes[d];
    offset += (group - rest * p->sizes[d]) * strides[d];
    group = rest;
  }
  return offset;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void copy_interleaved(
    const problem_t problem,
    const int groups,
    TENSOR(out_t, out),
    CONST_TENSOR(storage_t, self)) {
  const problem_t *p = &problem;
  const int first = (int)get_global_id(0) * p->chunk;
  for (int group = first; group < min(first + p->chunk, groups); ++group) {
    const global storage_t *x = POINTER(self) + offset_of(p, p->self_strides, group);
    global out_t *y = POINTER(out) + offset_of(p, p->out_strides, group);
    int i = 0;
    for (; i + LANES <= p->sizes[1]; i += LANES) {
      lanes_t vectors[FACTOR];
      lanes_t shuffled[FACTOR];
      for (int j = 0; j < FACTOR; ++j)
        vectors[j] = CONCAT(load_lanes_, DTYPE)(x + SELF_OFFSET(j, i, LANES));
      SHUFFLE(shuffled, vectors);
      if (FACTOR == 4) SHUFFLE(vectors, shuffled);
      const lanes_t *result = FACTOR == 4 ? vectors : shuffled;
      for (int j = 0; j < FACTOR; ++j)
        stream_lanes(y, OUT_OFFSET(j, i, LANES), 1, LANES, result[j]);
    }
    for (; i < p->sizes[1]; ++i)
      for (int j = 0; j < FACTOR; ++j)
        STORE_OUT(y, OUT_OFFSET(j, i, 1), LOAD(x, SELF_OFFSET(j, i, 1)));
  }
}
