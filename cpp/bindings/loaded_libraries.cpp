#include "loaded_libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace torch_opencl {

namespace {

struct Replacement {
  const char* symbol;
  void* function;
  const char* library;
  uintptr_t own_base;
  int entries = 0;
};

struct Table {
  const ElfW(Rela) * begin = nullptr;
  size_t bytes = 0;
};

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  Table functions;  // of calls
  Table others;     // of addresses: calls of libraries made with -fno-plt
};

Tables tables_of(const dl_phdr_info& library) {
  Tables tables;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type != PT_DYNAMIC) {
      continue;
    }
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(
        library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      // glibc stores addresses here, musl offsets.
      const uintptr_t value = entry->d_un.d_ptr;
      const uintptr_t address =
          value < library.dlpi_addr ? library.dlpi_addr + value : value;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_STRTAB:
          tables.strings = reinterpret_cast<const char*>(address);
          break;
        case DT_JMPREL:
          tables.functions.begin = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          tables.functions.bytes = entry->d_un.d_val;
          break;
        case DT_RELA:
          tables.others.begin = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELASZ:
          tables.others.bytes = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }
  return tables;
}

// Entries lie in pages that the loader makes read-only after it filled them,
// where a library was linked so.
bool is_read_only(const dl_phdr_info& library, uintptr_t address) {
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const auto& segment = library.dlpi_phdr[i];
    const uintptr_t begin = library.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_RELRO && address >= begin &&
        address < begin + segment.p_memsz) {
      return true;
    }
  }
  return false;
}

void write_entry(const dl_phdr_info& library, uintptr_t address, void* value) {
  const bool read_only = is_read_only(library, address);
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(address & ~(page_size - 1));
  if (read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    throw std::runtime_error("a library's imports cannot be written to");
  }
  // Other threads may be calling through it.
  __atomic_store_n(reinterpret_cast<void**>(address), value, __ATOMIC_RELEASE);
  if (read_only) {
    mprotect(page, page_size, PROT_READ);
  }
}

void replace_in(const dl_phdr_info& library,
                const Tables& tables,
                const Table& table,
                Replacement& replacement) {
  for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
    const ElfW(Rela)& entry = table.begin[i];
    const auto symbol = ELF64_R_SYM(entry.r_info);
    if (symbol == 0 ||
        std::strcmp(tables.strings + tables.symbols[symbol].st_name,
                    replacement.symbol) != 0) {
      continue;
    }
    write_entry(
        library, library.dlpi_addr + entry.r_offset, replacement.function);
    ++replacement.entries;
  }
}

int visit(dl_phdr_info* library, size_t, void* data) {
  auto& replacement = *static_cast<Replacement*>(data);
  const bool is_wanted =
      library->dlpi_name != nullptr &&
      std::strstr(library->dlpi_name, replacement.library) != nullptr;
  if (!is_wanted || library->dlpi_addr == replacement.own_base) {
    return 0;
  }
  const Tables tables = tables_of(*library);
  if (tables.symbols != nullptr && tables.strings != nullptr) {
    replace_in(*library, tables, tables.functions, replacement);
    replace_in(*library, tables, tables.others, replacement);
  }
  return 0;
}

}  // namespace

int replace_imported_function(const char* symbol,
                              void* function,
                              const char* library) {
  static_assert(sizeof(void*) == 8, "entries are those of 64-bit processors");
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&replace_imported_function), &own);
  Replacement replacement{
      symbol, function, library, reinterpret_cast<uintptr_t>(own.dli_fbase)};
  dl_iterate_phdr(&visit, &replacement);
  return replacement.entries;
}

}  // namespace torch_opencl
