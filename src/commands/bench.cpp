// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench.cpp: the command `bench`, which runs only if the program with the benchmarks, kozero-bench, did not start.
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include <kozero/commands/commands.hpp>
#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>

namespace kozero::commands {

/// Throws Error(deck): hand_over() could not start kozero-bench.
void bench(const distributed::Environment& /*environment*/, const Arguments& /*arguments*/) {
  const std::filesystem::path path = program::bench_program();
  throw Error(Failure::deck,
              path.string() + ": " + std::strerror(access(path.c_str(), X_OK) == 0 ? ENOEXEC : errno) +
                  "; it has the benchmarks: build it by `./kozero.sh " + (kHostIsDevice ? "" : "--preset cuda ") +
                  "bench ...` or `cmake --build " + path.parent_path().string() + " --target kozero-bench`",
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::commands
