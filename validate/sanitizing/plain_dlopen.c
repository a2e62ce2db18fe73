/* dlopen() without RTLD_DEEPBIND, which Intel's runtime passes and sanitizers refuse. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *file, int flags) {
  static void *(*next)(const char *, int);
  if (next == 0) next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  return next(file, flags & ~RTLD_DEEPBIND);
}
