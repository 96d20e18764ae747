// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// agreed.hpp: work that every rank does and may fail at, with one outcome for all.
//   deck = agreed(comm, [&] { return io::read_deck(path, overrides); });
// Where any rank throws, every rank throws that of the lowest such rank, seen by all: nobody is left waiting.
#pragma once
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

/// What came of this rank's work: a result, or the exit status and text of what it threw.
template <class Result>
struct Attempt {
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  int status = 0;
  std::string message;
};

template <class Work>
auto attempted(const Work& work) {
  using Result = std::invoke_result_t<Work>;
  Attempt<Result> attempt;
  try {
    if constexpr (std::is_void_v<Result>) {
      work();
    } else {
      attempt.result.emplace(work());
    }
  } catch (const Error& error) {
    attempt.status = error.exit_status();
    attempt.message = error.what();
  } catch (const std::exception& error) {
    attempt.status = static_cast<int>(Failure::internal);
    attempt.message = error.what();
  } catch (...) {
    attempt.status = static_cast<int>(Failure::internal);
    attempt.message = "an exception of unknown type";
  }
  return attempt;
}

/// The ranks agree on attempts made before they could talk.
template <class Result>
Result agreed(Communicator& comm, Attempt<Result> attempt) {
  agree(comm, attempt.status, attempt.message);
  if constexpr (!std::is_void_v<Result>) return std::move(*attempt.result);
}

template <class Work>
requires std::is_invocable_v<Work>
auto agreed(Communicator& comm, const Work& work) { return agreed(comm, attempted(work)); }

/// The text that rank 0's work returns, on every rank; where it throws, every rank throws that. What ranks must not see
/// differently (which file is the newest, what its header says) is looked at once.
template <class Work>
std::string from_first_rank(Communicator& comm, const Work& work) {
  const std::string mine = agreed(comm, [&] { return comm.rank() == 0 ? std::string(work()) : std::string(); });
  return comm.broadcast_control(mine);
}

}  // namespace kozero::dist
