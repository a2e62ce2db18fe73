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
#define type_float32 float
#define type_float64 double

typedef CONCAT(storage_, OUT_DTYPE) out_t;
typedef CONCAT(CONCAT(type_, OUT_DTYPE), LANES) out_lanes_t;
typedef CONCAT(CONCAT(type_, DTYPE), LANES) lanes_t;
#define CONVERT(type, value) CONCAT(CONCAT(convert_, type), LANES)(value)

static inline out_lanes_t converted(lanes_t value) {
#if FROM_BOOL
  value = min(value, (lanes_t)1);
#elif TO_BOOL
  return CONVERT(type_bool, -(value != (lanes_t)0));
#elif TRUNCATES
  // Through int64, as c10::convert does: -1.0 becomes 255 in uint8. Where int32 will
  // do, it is faster on Intel's driver.
  if (LANES < 16 || any((value >= 0x1p31f) | !(value > -0x1p31f))) {
    return CONVERT(CONCAT(type_, OUT_DTYPE), CONVERT(long, value));
  }
  return CONVERT(CONCAT(type_, OUT_DTYPE), CONVERT(int, value));
#endif
  return CONVERT(CONCAT(type_, OUT_DTYPE), value);
}

#if STREAM && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define STREAMS 1
#endif
#endif

kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void cast(TENSOR(out_t, out), CONST_TENSOR(storage_t, self), const ulong count,
          const ulong chunk) {
  const ulong begin = get_global_id(0) * chunk;
  const ulong end = min(count, begin + chunk);
  const global storage_t *x = POINTER(self);
  global out_t *y = POINTER(out);
  ulong i = begin;
#ifdef STREAMS
  if ((ulong)(y + begin) % sizeof(out_lanes_t) == 0) {
    for (; i + LANES <= end; i += LANES) {
      const lanes_t value = CONCAT(vload, LANES)(0, x + i);
      __builtin_nontemporal_store(converted(value), (global out_lanes_t *)(y + i));
    }
  }
#endif
  for (; i + LANES <= end; i += LANES) {
    const lanes_t value = CONCAT(vload, LANES)(0, x + i);
    CONCAT(vstore, LANES)(converted(value), 0, y + i);
  }
  for (; i < end; ++i) {
#if TO_BOOL
    y[i] = x[i] != 0;
#elif TRUNCATES
    y[i] = (out_t)(long)x[i];
#else
    y[i] = (out_t)LOAD(x, i);
#endif
  }
}
