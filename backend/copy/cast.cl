// Casts of elements that follow each other, on CPUs: a work-item takes `chunk` of them
// by vectors of LANES, of which results larger than the caches are written past them.

#include "types.clh"

#define type_bool uchar
#define type_uint8 uchar
#define type_int8 char
#define type_uint16 ushort
#define type_int16 short
#define type_uint32 uint
#define type_int32 int
#define type_uint64 ulong
#define type_int64 long
#define type_float16 float
#define type_bfloat16 float
#define type_float32 float
#define type_float64 double

typedef CONCAT(storage_, OUT_DTYPE) out_t;
typedef CONCAT(CONCAT(type_, DTYPE), LANES) lanes_t;
typedef CONCAT(CONCAT(type_, OUT_DTYPE), LANES) values_t;
#if TO_FLOAT16 || TO_BFLOAT16
typedef CONCAT(ushort, LANES) out_lanes_t;
#else
typedef values_t out_lanes_t;
#endif
// PoCL's vstore takes elements of one or two bytes one by one.
typedef out_lanes_t __attribute__((aligned(sizeof(out_t)))) unaligned_lanes_t;
#define CONVERT(type, value) CONCAT(CONCAT(convert_, type), LANES)(value)
#define CONVERT_OUT(value) CONVERT(CONCAT(type_, OUT_DTYPE), value)

static inline lanes_t loaded(const global storage_t *p) {
#if FROM_FLOAT16
  // Halves may lie anywhere, see lanes.clh.
  const CONCAT(ushort, LANES) bits = CONCAT(vload, LANES)(0, p);
  return CONCAT(vload_half, LANES)(0, (const half *)&bits);
#elif FROM_BFLOAT16
  return CONCAT(as_float, LANES)(CONVERT(uint, CONCAT(vload, LANES)(0, p)) << 16);
#else
  return CONCAT(vload, LANES)(0, p);
#endif
}

static inline values_t converted(lanes_t value) {
#if FROM_BOOL
  value = min(value, (lanes_t)1);
#elif TO_BOOL
  return CONVERT(type_bool, -(value != (lanes_t)0));
#elif TRUNCATES
  // Through int64, as c10::convert does: -1.0 becomes 255 in uint8. Without
  // instructions for its vectors int32 is faster, where it will do.
#ifndef __AVX512DQ__
  if (all(fabs(value) < 0x1p31f)) return CONVERT_OUT(CONVERT(int, value));
#endif
  return CONVERT_OUT(CONVERT(long, value));
#elif INT64_TO_FLOAT && !defined(__AVX512DQ__)
  const CONCAT(int, LANES) narrow = CONVERT(int, value);
  if (all(CONVERT(long, narrow) == value)) return CONVERT_OUT(narrow);
#endif
  return CONVERT_OUT(value);
}

// As store_float16 and store_bfloat16 of types.clh.
static inline out_lanes_t rounded(values_t value) {
#if TO_FLOAT16
  ushort16 bits;
  vstore_half16_rte(value, 0, (half *)&bits);
  return bits;
#elif TO_BFLOAT16
  const uint16 bits = as_uint16(value);
  const uint16 upper = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return convert_ushort16(select(upper, (uint16)0x7fc0, isnan(value)));
#else
  return value;
#endif
}

#include "non_temporal.clh"

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void cast(TENSOR(out_t, out), CONST_TENSOR(storage_t, self), const ulong count,
          const ulong chunk) {
  const ulong begin = get_global_id(0) * chunk;
  const ulong end = min(count, begin + chunk);
  const global storage_t *x = POINTER(self);
  global out_t *y = POINTER(out);
  ulong i = begin;
#ifdef HAS_NON_TEMPORAL
  if ((ulong)(y + begin) % sizeof(out_lanes_t) == 0) {
    for (; i + LANES <= end; i += LANES) {
      __builtin_nontemporal_store(rounded(converted(loaded(x + i))),
                                  (global out_lanes_t *)(y + i));
    }
  }
#endif
  for (; i + LANES <= end; i += LANES) {
    *(global unaligned_lanes_t *)(y + i) = rounded(converted(loaded(x + i)));
  }
  for (; i < end; ++i) {
#if TO_BOOL
    y[i] = LOAD(x, i) != 0;
#elif TRUNCATES
    y[i] = (out_t)(long)LOAD(x, i);
#else
    CONCAT(store_, OUT_DTYPE)(y, i, LOAD(x, i));
#endif
  }
}
