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
  std::optional<std::invoke_result_t<Work>> result;
  int status = 0;
  std::string message;
  try {
    result.emplace(work());
  } catch (const Error& error) {
    status = error.exit_status();
    message = error.what();
  } catch (const std::exception& error) {
    status = static_cast<int>(Failure::internal);
    message = error.what();
  }
  agree(comm, status, message);
  return std::move(*result);
}

}  // namespace kozero::dist
