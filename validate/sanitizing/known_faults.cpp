// One fault of each kind that a sanitizer is to report; run_sanitizers.py calls
// them.
#include <thread>

namespace {
int shared = 0;
}  // namespace

// Reports name the first frame in a folder of the sources.
#line 1 "known/cpp/faults.cpp"
extern "C" int heap_overflow(int size) {
  int* values = new int[size];
  const int behind = static_cast<volatile int*>(values)[size];
  delete[] values;
  return behind;
}

extern "C" int signed_overflow(int size) {
  return size + 0x7fffffff;
}

extern "C" int race(int size) {
  const auto add = [size] {
    for (int i = 0; i < size; ++i) {
      static_cast<volatile int&>(shared) = shared + 1;
    }
  };
  std::thread other(add);
  add();
  other.join();
  return shared;
}
