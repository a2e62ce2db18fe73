/* What drivers and sanitizers need of each other; loaded ahead of both. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

/* dlopen() without RTLD_DEEPBIND, which Intel's runtime passes and sanitizers refuse. */
void *dlopen(const char *file, int flags) {
  static void *(*next)(const char *, int);
  if (next == 0) next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  return next(file, flags & ~RTLD_DEEPBIND);
}

/* libubsan calls the function of this name in libasan, and then reports to stderr,
 * which tests capture. */
__attribute__((constructor)) static void set_report_path(void) {
  const char *path = getenv("TORCH_OPENCL_UBSAN_REPORTS");
  void *library = path == 0 ? 0 : dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == 0) return;
  void (*set)(const char *) =
      (void (*)(const char *))dlsym(library, "__sanitizer_set_report_path");
  if (set != 0) set(path);
}
