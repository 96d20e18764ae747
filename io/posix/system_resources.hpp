// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// system_resources.hpp: memory and disk space that this process uses or can still get.
// Memory is physical memory as the kernel counts it. Disk space is that of a folder's file system.
#pragma once
#include <cstdint>
#include <string>

namespace kozero::io {

/// Physical memory of this process.
struct ResidentMemory {
  std::int64_t current = 0;  ///< bytes; 0 if the system does not report it
  std::int64_t peak = 0;     ///< the largest since the process began
};

ResidentMemory resident_memory();

/// Other processes' shares of the pages that this process and others have mapped. Without these shares, the bytes of
/// all processes add up to their total. Reads the page tables, in milliseconds. 0 if the system does not report them.
std::int64_t shares_of_others();

/// Bytes of this node available to new allocations of all processes, within the limits of this process's control groups
/// if any are set; 0 if the system does not report them.
std::int64_t available_memory();

/// Bytes that this process may still map (`ulimit -v`), at least 1; the largest number if there is no limit.
std::int64_t address_space_left();

/// The error of a failed allocation, with this host's name and what to do.
std::string memory_exhausted();

/// The folder, or its nearest existing parent; absolute.
std::string nearest_folder(const std::string& folder);

/// Bytes of a file that this user can still write to a folder, or to its nearest existing parent: the free space, or
/// the size limit of a file if that is less or the free space unknown. Throws Error(write).
std::int64_t free_disk_bytes(const std::string& folder);

/// Throws Error(write) if this user cannot make a file in a folder, or in its nearest existing parent. Makes and
/// removes a file.
void require_writable(const std::string& folder);

/// "takes 1.5 GiB (1612185600 bytes) and 12.0 GiB (12884901888 bytes) are free". `free`: free_disk_bytes().
std::string space_text(std::int64_t needed, std::int64_t free);

}  // namespace kozero::io
