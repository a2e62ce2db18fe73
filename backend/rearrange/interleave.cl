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

// Offsets of vector j of those that hold elements [i, i + LANES) of each line.
#define IN_LINES(strides, j, i) ((j) * (strides)[0] + (i))
#define IN_TURNS(j, i) ((i) * FACTOR + (j) * LANES)

#if INTERLEAVES
#define SELF_OFFSET(j, i) IN_LINES(p->self_strides, j, i)
#define OUT_OFFSET(j, i) IN_TURNS(j, i)
#define SHUFFLE(a, b)                          \
  {                                            \
    const lanes_t low = INTERLEAVED_LOW(a, b); \
    b = INTERLEAVED_HIGH(a, b);                \
    a = low;                                   \
  }
// Each of the four squares of 4 x 4 elements that the vectors hold is transposed, then
// the square of 4 x 4 quarters: shuffles that stay within quarters, or move whole
// ones, cost less than those of single elements.
#define SHUFFLE_FOUR(a, b, c, d) TRANSPOSE_SQUARES(a, b, c, d) TRANSPOSE_QUARTERS(a, b, c, d)
#define SQUARES_LOW(a, b)                                                            \
  ((lanes_t)(a.s0, b.s0, a.s1, b.s1, a.s4, b.s4, a.s5, b.s5, a.s8, b.s8, a.s9, b.s9, \
             a.sc, b.sc, a.sd, b.sd))
#define SQUARES_HIGH(a, b)                                                           \
  ((lanes_t)(a.s2, b.s2, a.s3, b.s3, a.s6, b.s6, a.s7, b.s7, a.sa, b.sa, a.sb, b.sb, \
             a.se, b.se, a.sf, b.sf))
#define TRANSPOSE_SQUARES(a, b, c, d)                                       \
  {                                                                         \
    const lanes_t ab_low = SQUARES_LOW(a, b), ab_high = SQUARES_HIGH(a, b); \
    const lanes_t cd_low = SQUARES_LOW(c, d), cd_high = SQUARES_HIGH(c, d); \
    a = PAIRS_LOW(ab_low, cd_low);                                          \
    b = PAIRS_HIGH(ab_low, cd_low);                                         \
    c = PAIRS_LOW(ab_high, cd_high);                                        \
    d = PAIRS_HIGH(ab_high, cd_high);                                       \
  }
#define PAIRS_LOW(a, b) \
  ((lanes_t)(a.s01, b.s01, a.s45, b.s45, a.s89, b.s89, a.scd, b.scd))
#define PAIRS_HIGH(a, b) \
  ((lanes_t)(a.s23, b.s23, a.s67, b.s67, a.sab, b.sab, a.sef, b.sef))
#define TRANSPOSE_QUARTERS(a, b, c, d)                                        \
  {                                                                           \
    const lanes_t ab_even = EVEN_QUARTERS(a, b), ab_odd = ODD_QUARTERS(a, b); \
    const lanes_t cd_even = EVEN_QUARTERS(c, d), cd_odd = ODD_QUARTERS(c, d); \
    a = EVEN_QUARTERS(ab_even, cd_even);                                      \
    b = EVEN_QUARTERS(ab_odd, cd_odd);                                        \
    c = ODD_QUARTERS(ab_even, cd_even);                                       \
    d = ODD_QUARTERS(ab_odd, cd_odd);                                         \
  }
#define EVEN_QUARTERS(a, b) ((lanes_t)(a.s0123, a.s89ab, b.s0123, b.s89ab))
#define ODD_QUARTERS(a, b) ((lanes_t)(a.s4567, a.scdef, b.s4567, b.scdef))
#else
#define SELF_OFFSET(j, i) IN_TURNS(j, i)
#define OUT_OFFSET(j, i) IN_LINES(p->out_strides, j, i)
#define SHUFFLE(a, b)                              \
  {                                                \
    const lanes_t low = (lanes_t)(a.even, b.even); \
    b = (lanes_t)(a.odd, b.odd);                   \
    a = low;                                       \
  }
#define SHUFFLE_FOUR(a, b, c, d) SHUFFLE(a, b) SHUFFLE(c, d) SHUFFLE(a, c) SHUFFLE(b, d)
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
    for (int next = 0; next < p->sizes[1]; next += LANES) {
      // The last vector overlaps its neighbour.
      const int i = min(next, p->sizes[1] - LANES);
#define LOAD_VECTOR(j) CONCAT(load_lanes_, DTYPE)(x + SELF_OFFSET(j, i))
#define STORE_VECTOR(j, value) store_full_lanes_nt(y + OUT_OFFSET(j, i), value)
#if FACTOR == 2
      lanes_t a = LOAD_VECTOR(0), b = LOAD_VECTOR(1);
      SHUFFLE(a, b)
      STORE_VECTOR(0, a);
      STORE_VECTOR(1, b);
#else
      lanes_t a = LOAD_VECTOR(0), b = LOAD_VECTOR(1), c = LOAD_VECTOR(2), d = LOAD_VECTOR(3);
      SHUFFLE_FOUR(a, b, c, d)
      STORE_VECTOR(0, a);
      STORE_VECTOR(1, b);
      STORE_VECTOR(2, c);
      STORE_VECTOR(3, d);
#endif
    }
  }
}
