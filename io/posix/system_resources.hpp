// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// system_resources.hpp: memory and disk space that this process uses or can still get.
// Memory is physical memory as the kernel counts it. Disk space is that of the file system that a folder lies on.
#pragma once
#include <cstdint>
#include <string>

namespace kozero::io {

// Physical memory, as the kernel counts it: what this process holds, and what can still be had.

struct ResidentMemory {
  std::int64_t current = 0;  ///< bytes; 0 where the system does not tell
  std::int64_t peak = 0;     ///< the largest since the process began
};

ResidentMemory resident_memory();

/// How much of the current bytes is other processes' share of pages that several have mapped: what is left of all
/// processes adds up to what they take together. Walks the page tables: milliseconds. 0 where the system does not tell.
std::int64_t shares_of_others();

/// Bytes that this node can still give to new allocations of all its processes, within the control group's limit
/// where one is set; 0 where the system does not tell.
std::int64_t available_memory();

// What is free where a file is about to be written, and whether one can be.

/// The folder, or its nearest parent that is there; absolute.
std::string nearest_folder(const std::string& folder);

/// Bytes of a file that this user can still write to a folder, which need not exist yet (its parents are asked): what
/// is free there, or the size limit of a file if that is less or the file system does not tell. Throws Error(write).
std::int64_t free_disk_bytes(const std::string& folder);

/// Throws Error(write) where this user cannot make a file in a folder, or where that is not there, in its nearest
/// parent that is. A file is made and removed.
void require_writable(const std::string& folder);

/// "takes 1.5 GiB (1612185600 bytes) and 12.0 GiB (12884901888 bytes) are free". `free`: free_disk_bytes().
std::string space_text(std::int64_t needed, std::int64_t free);

}  // namespace kozero::io
