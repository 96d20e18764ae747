// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// agreement.hpp: values that ranks exchange, and work that may fail on one rank with one outcome for all.
//   deck = agreed(comm, [&] { return io::read_deck(path, overrides); });
// If any rank's work throws, every rank throws the error of the lowest such rank, seen by all ranks, so that no rank is
// left waiting. Every function is collective and uses control traffic alone. The header includes no Kokkos.
#pragma once
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator.hpp>

namespace kozero::distributed {

/// Every rank's values, in rank order. All ranks pass the same number of values. T: a number, or a struct of numbers.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> from_all_ranks(Communicator& comm, const std::vector<T>& mine) {
  const std::vector<std::byte> bytes = comm.gather_control(std::as_bytes(std::span(mine)));
  std::vector<T> all(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}
/// The same for one value per rank.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> from_all_ranks(Communicator& comm, const T& mine) {
  return from_all_ranks(comm, std::vector<T>{mine});
}

/// Rank 0's value on every rank; the others' argument is ignored.
template <class T>
requires std::is_trivially_copyable_v<T> T broadcast_value(Communicator& comm, const T& value) {
  const std::string bytes = comm.broadcast_control(std::string(reinterpret_cast<const char*>(&value), sizeof(T)));
  require(bytes.size() == sizeof(T), "broadcast_value: rank 0 sent a value of another size");
  T first = value;
  std::memcpy(&first, bytes.data(), sizeof(T));
  return first;
}

/// Every rank's text, in rank order.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text);

/// Whether `mine` is true on every rank. The cost per rank grows with the logarithm of their number.
bool on_all_ranks(Communicator& comm, bool mine);

/// If any rank's status is not 0, throws on every rank the status and message of the lowest such rank.
void agree(Communicator& comm, int status, const std::string& message);

/// The outcome of this rank's work: a result, or the exit status and text of the exception.
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

/// The ranks agree on attempts that they made before they had a communicator.
template <class Result>
Result agreed(Communicator& comm, Attempt<Result> attempt) {
  agree(comm, attempt.status, attempt.message);
  if constexpr (!std::is_void_v<Result>) return std::move(*attempt.result);
}

template <class Work>
requires std::is_invocable_v<Work>
auto agreed(Communicator& comm, const Work& work) { return agreed(comm, attempted(work)); }

/// work(i) -> a number or a struct of numbers, for i in [0, items). Rank i mod n does item i, and every rank gets all
/// results in order, independent of the number of ranks. Throws what any rank's work throws, seen by all ranks.
template <class Work>
auto map_over_ranks(Communicator& comm, std::size_t items, const Work& work) {
  using Result = std::invoke_result_t<Work, std::size_t>;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::size_t rounds = (items + ranks - 1) / ranks;
  const auto mine = agreed(comm, [&] {
    std::vector<Result> results(rounds);
    for (std::size_t i = static_cast<std::size_t>(comm.rank()); i < items; i += ranks) results[i / ranks] = work(i);
    return results;
  });
  const std::vector<Result> all = from_all_ranks(comm, mine);
  std::vector<Result> in_order;
  for (std::size_t i = 0; i < items; ++i) in_order.push_back(all[i % ranks * rounds + i / ranks]);
  return in_order;
}

/// The text that rank 0's work returns, on every rank; if the work throws, every rank throws the same error. Used for
/// facts on which ranks must not differ (which file is the newest, what its header says): only rank 0 looks them up.
template <class Work>
std::string from_first_rank(Communicator& comm, const Work& work) {
  const std::string mine = agreed(comm, [&] { return comm.rank() == 0 ? std::string(work()) : std::string(); });
  return comm.broadcast_control(mine);
}

}  // namespace kozero::distributed
