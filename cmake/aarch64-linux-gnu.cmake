# Toolchain: AArch64 Linux from another machine, with Debian's cross compiler, tests under qemu-user.
#
# In: aarch64-linux-gnu-g++ and qemu-aarch64 on the PATH; the arm64 packages the build needs,
# unpacked in build/neon-packages (`./do test --all` puts them there). The host's own libraries are
# never found: they are of the wrong machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(root /usr/aarch64-linux-gnu)  # where the cross compiler's C and C++ libraries live
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${root})
set(CMAKE_FIND_ROOT_PATH ${CMAKE_CURRENT_LIST_DIR}/../build/neon-packages ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
