// Copies between FACTOR separate lines and one in which their elements take
// turns, on CPUs: what pixel_shuffle and pixel_unshuffle do. Dimension 0 counts
// the lines, dimension 1 runs along them. A work-item takes `chunk` groups of
// lines, LANES elements of each at a time.

#include "types.clh"
#include "lanes.clh"
#include "layouts.clh"

#ifndef FACTOR
#define FACTOR 2  // or 4
#endif

#define LOW(a, b) INTERLEAVE(a, b, s0, s1, s2, s3, s4, s5, s6, s7)
#define HIGH(a, b) INTERLEAVE(a, b, s8, s9, sa, sb, sc, sd, se, sf)
#define EVEN(a, b) (lanes_t)(a.even, b.even)
#define ODD(a, b) (lanes_t)(a.odd, b.odd)

inline void interleave(lanes_t *to, const lanes_t *from) {
#if FACTOR == 2
  to[0] = LOW(from[0], from[1]);
  to[1] = HIGH(from[0], from[1]);
#else
  const lanes_t a = LOW(from[0], from[2]);
  const lanes_t b = HIGH(from[0], from[2]);
  const lanes_t c = LOW(from[1], from[3]);
  const lanes_t d = HIGH(from[1], from[3]);
  to[0] = LOW(a, c);
  to[1] = HIGH(a, c);
  to[2] = LOW(b, d);
  to[3] = HIGH(b, d);
#endif
}

inline void separate(lanes_t *to, const lanes_t *from) {
#if FACTOR == 2
  to[0] = EVEN(from[0], from[1]);
  to[1] = ODD(from[0], from[1]);
#else
  const lanes_t a = EVEN(from[0], from[1]);
  const lanes_t b = EVEN(from[2], from[3]);
  const lanes_t c = ODD(from[0], from[1]);
  const lanes_t d = ODD(from[2], from[3]);
  to[0] = EVEN(a, b);
  to[1] = EVEN(c, d);
  to[2] = ODD(a, b);
  to[3] = ODD(c, d);
#endif
}

#define FOR_EACH_GROUP                                                     \
  const problem_t *p = &problem;                                           \
  const int first = (int)get_global_id(0) * p->chunk;                      \
  for (int group = first; group < min(first + p->chunk, groups); ++group)

inline int offset_of(const problem_t *p, const int *strides, int group) {
  int offset = 0;
  for (int d = 2; d < p->rank; ++d) {
    const int rest = group / p->sizes[d];
    offset += (group - rest * p->sizes[d]) * strides[d];
    group = rest;
  }
  return offset;
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void copy_interleaving(
    const problem_t problem,
    const int groups,
    TENSOR(out_t, out),
    CONST_TENSOR(storage_t, self)) {
  FOR_EACH_GROUP {
    const global storage_t *x = POINTER(self) + offset_of(p, p->self_strides, group);
    global out_t *y = POINTER(out) + offset_of(p, p->out_strides, group);
    const int pitch = p->self_strides[0];
    int i = 0;
    for (; i + LANES <= p->sizes[1]; i += LANES) {
      lanes_t lines[FACTOR];
      lanes_t turns[FACTOR];
      for (int j = 0; j < FACTOR; ++j)
        lines[j] = CONCAT(load_lanes_, DTYPE)(x + (j * pitch + i));
      interleave(turns, lines);
      for (int j = 0; j < FACTOR; ++j)
        stream_lanes(y, i * FACTOR + j * LANES, 1, LANES, turns[j]);
    }
    for (; i < p->sizes[1]; ++i)
      for (int j = 0; j < FACTOR; ++j)
        STORE_OUT(y, i * FACTOR + j, LOAD(x, j * pitch + i));
  }
}

kernel __attribute__((reqd_work_group_size(1, 1, 1))) void copy_separating(
    const problem_t problem,
    const int groups,
    TENSOR(out_t, out),
    CONST_TENSOR(storage_t, self)) {
  FOR_EACH_GROUP {
    const global storage_t *x = POINTER(self) + offset_of(p, p->self_strides, group);
    global out_t *y = POINTER(out) + offset_of(p, p->out_strides, group);
    const int pitch = p->out_strides[0];
    int i = 0;
    for (; i + LANES <= p->sizes[1]; i += LANES) {
      lanes_t lines[FACTOR];
      lanes_t turns[FACTOR];
      for (int j = 0; j < FACTOR; ++j)
        turns[j] = CONCAT(load_lanes_, DTYPE)(x + (i * FACTOR + j * LANES));
      separate(lines, turns);
      for (int j = 0; j < FACTOR; ++j)
        stream_lanes(y, j * pitch + i, 1, LANES, lines[j]);
    }
    for (; i < p->sizes[1]; ++i)
      for (int j = 0; j < FACTOR; ++j)
        STORE_OUT(y, j * pitch + i, LOAD(x, i * FACTOR + j));
  }
}
