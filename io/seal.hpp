// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// seal.hpp: the first 4 KiB of a weights file, HDF5's user block: its description, and hashes that vouch for its bytes,
// so that libhdf5 reads none that were not written. A checkpoint's state has its manifest instead.
//   KoZeRO weights 1, sealed HASH  XXH3-128 of the other bytes of the block
//   bytes N                        of the whole file
//   xxh3_128 HASH                  XXH3-128 of the hashes (hexadecimal, joined) of the 16 MiB blocks of bytes 4096 to N
//   step S
//   tokens T
//   model JSON
//   zeros
// It guards against accidents; it is no signature.
#pragma once
#include <cstdint>
#include <string>

#include <kozero/dist/communicator.hpp>
#include <kozero/io/weights_description.hpp>

namespace kozero::io {

inline constexpr std::int64_t kSealBytes = 4096;

/// Hashes the file and fills its first kSealBytes; the file is on the disk afterwards. Collective. Throws Error(write
/// or input), and Error(internal) where the description is too long.
void seal_file(dist::Communicator& comm, const std::string& path, const WeightsDescription& description);

/// On this process alone, without a look at the file's other bytes. Throws Error(input) naming file and reason.
WeightsDescription read_seal(const std::string& path);

/// Rank 0's, on every rank. Collective. Throws Error(input), seen by all ranks.
WeightsDescription read_seal(dist::Communicator& comm, const std::string& path);

/// Compares every byte of the file with its seal; all ranks must find rank 0's seal. Collective. Throws Error(input),
/// seen by all ranks.
void verify_seal(dist::Communicator& comm, const std::string& path);

}  // namespace kozero::io
