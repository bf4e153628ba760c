# poise_embed(<target> <file> <symbol>): links a file's bytes into a target.
#
# The target gets a function `std::span<const std::byte> <symbol>()`, declared by whoever calls it.
# The bytes are placed by the assembler (.incbin), so a megabyte costs no compile time; they are
# read-only, aligned to 64 bytes, and lie in the program for as long as it runs. The object is made
# anew when the file changes. Works with g++ and clang on ELF and Mach-O. ccache knows .incbin and
# passes such a source on uncached.
function(poise_embed target file symbol)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    message(FATAL_ERROR "poise_embed: ${CMAKE_CXX_COMPILER_ID} is neither g++ nor clang")
  endif()
  get_filename_component(file ${file} ABSOLUTE)
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "poise_embed: ${file} does not exist")
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${symbol}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [=[
// The bytes of @file@, made by cmake/embed_file.cmake.
#include <cstddef>
#include <span>

#ifdef __APPLE__
#define POISE_SYMBOL(name) "_" name
#define POISE_SECTION ".const_data\n"
#define POISE_HIDE(name) ".private_extern " POISE_SYMBOL(name) "\n"
#define POISE_BACK ".text\n"
#else
#define POISE_SYMBOL(name) name
#define POISE_SECTION ".pushsection .rodata\n"
#define POISE_HIDE(name) ".hidden " POISE_SYMBOL(name) "\n"
#define POISE_BACK ".popsection\n"
#endif
#define POISE_LABEL(name) \
  ".globl " POISE_SYMBOL(name) "\n" POISE_HIDE(name) POISE_SYMBOL(name) ":\n"

asm(POISE_SECTION
    ".balign 64\n"
    POISE_LABEL("@symbol@_begin")
    ".incbin \"@file@\"\n"
    POISE_LABEL("@symbol@_end")
    ".byte 0\n"  // keeps the end symbol inside the section
    POISE_BACK);

extern "C" {
extern __attribute__((visibility("hidden"))) const std::byte @symbol@_begin[];
extern __attribute__((visibility("hidden"))) const std::byte @symbol@_end[];
}

std::span<const std::byte> @symbol@();
std::span<const std::byte> @symbol@() {
  return {@symbol@_begin, @symbol@_end};
}
]=])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(${target} PRIVATE ${source})
endfunction()
