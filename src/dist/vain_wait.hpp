// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// vain_wait.hpp: the words for a wait in vain, the same whatever waited.
//   rank 1 waited 4.0 s in gather_control for rank 0 on a (process 12), which was silent for 4.1 s: it is lost, or ...
//   [rank 1] newest collectives here: 811 all_gather of shm for unit 3 (4096 bytes) in step 12, forward_backward; ...
//   [rank 1] rank 0 on a (process 12): step 12, forward_backward, unit 2, working after all_gather 810 of shm ...
#pragma once
#include <string>

namespace kozero::dist {

inline constexpr const char* kLostOrTooShort = ": it is lost, or comm.timeout_s is too short";
inline constexpr const char* kFarBehind = ": it is far behind, or comm.timeout_s is too short";
/// The name of the awaited rank where the waiting one cannot tell which rank is missing.
inline constexpr const char* kAnotherRank = "another rank: it is lost, or comm.timeout_s is too short";

/// "4.0"
std::string in_seconds(double seconds);

/// What is said of a rank that waited in `collective` for `whom` in vain; `whom` ends in why.
std::string waited_in_vain(int rank, double seconds, const char* collective, const std::string& whom);

/// "rank 2, on host b (process 17)" as far as it is known, and why.
std::string lost_rank(int rank);

/// The lines that follow, each behind a line break: this rank's newest collectives, and where each rank is.
std::string details(int rank);

}  // namespace kozero::dist
