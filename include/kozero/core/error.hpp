// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// error.hpp: the one exception type, and the exit status each kind of failure ends in.
//   throw Error(Failure::deck, "model.heads = 0: accepted are 1 and more")
// Whoever detects a failure throws; src/main.cpp alone catches, prints `[rank r] ...` once and returns the status.
// An error that every rank meets with the same text is `shared`:
// main ends it in good order instead of aborting the job.
#pragma once
#include <stdexcept>
#include <string>

namespace kozero {

/// Kinds of failure; the value is the process's exit status.
enum class Failure : int {
  internal = 1,       ///< a broken invariant: a bug in KoZeRO
  deck = 2,           ///< the user's deck, command line or usage
  input = 3,          ///< a missing, truncated or malformed input file
  write = 4,          ///< an output could not be written
  communication = 5,  ///< a rank or a collective was lost
  non_finite = 6,     ///< a loss, gradient or weight is not finite
  preempted = 75,     ///< stopped on request; run again to go on
};

/// An error with one line of text for the user: who, what, which values are accepted, what to do.
class Error : public std::runtime_error {
 public:
  enum class Seen { by_this_rank, by_all_ranks };

  Error(Failure failure, const std::string& what, Seen seen = Seen::by_this_rank)
      : std::runtime_error(what), failure_(failure), seen_(seen) {}

  [[nodiscard]] int exit_status() const { return static_cast<int>(failure_); }
  [[nodiscard]] Failure failure() const { return failure_; }
  [[nodiscard]] bool seen_by_all_ranks() const { return seen_ == Seen::by_all_ranks; }

 private:
  Failure failure_;
  Seen seen_;
};

/// Throws Error(internal, text) where an invariant does not hold. No side effects belong in `holds`.
inline void require(bool holds, const std::string& text) {
  if (!holds) throw Error(Failure::internal, text);
}

/// The name among `accepted` nearest to `given` by edit distance, or "" where none is near.
std::string nearest_name(const std::string& given, const std::string* first, const std::string* last);

}  // namespace kozero
