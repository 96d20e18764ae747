// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// agreed.hpp: work that every rank does and may fail at, with one outcome for all.
//   deck = agreed(comm, [&] { return io::read_deck(path, overrides); });
// Where any rank throws, every rank throws that of the lowest such rank, seen by all: nobody is left waiting.
#pragma once
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

template <class Work>
auto agreed(Communicator& comm, const Work& work) {
  using Result = std::invoke_result_t<Work>;
  constexpr bool kReturns = !std::is_void_v<Result>;
  std::optional<std::conditional_t<kReturns, Result, bool>> result;
  int status = 0;
  std::string message;
  try {
    if constexpr (kReturns) {
      result.emplace(work());
    } else {
      work();
    }
  } catch (const Error& error) {
    status = error.exit_status();
    message = error.what();
  } catch (const std::exception& error) {
    status = static_cast<int>(Failure::internal);
    message = error.what();
  }
  agree(comm, status, message);
  if constexpr (kReturns) return std::move(*result);
}

}  // namespace kozero::dist
