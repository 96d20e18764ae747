// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// bench.cpp: the warm-up of a GPU, and the table of benchmarks by name. Their descriptions are rows of
// src/program/command.cpp.
#include <chrono>
#include <iostream>
#include <map>

#include <kozero/core/device.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/program/program.hpp>
#include "io/deck/schema.hpp"
#include "src/bench/bench.hpp"

namespace kozero::bench {
namespace {

const std::map<std::string, program::Run> kRuns = {
    {"checkpoint", bench_checkpoint}, {"kernels", bench_kernels}, {"step", bench_step},
    {"stages", bench_stages},         {"tune", bench_tune},       {"collectives", bench_collectives}};

/// "checkpoint", "kernels", ... in the order of the help text.
std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& one : program::benchmarks()) names.push_back(one.name.substr(one.name.find(' ') + 1));
  return names;
}

void print_help() {
  std::cout << "usage: kozero bench NAME ARGUMENT...   (its options: kozero bench NAME --help)\n\n";
  for (const auto& one : program::benchmarks()) {
    std::cout << "  " << one.name.substr(one.name.find(' ') + 1) << ": " << one.summary << "\n";
  }
  std::cout << "\n" << program::exit_statuses();
}

void add_one(const Vector<float>& x) {
  Kokkos::parallel_for(
      "kozero::bench::warm_up",
      Kokkos::RangePolicy<Device, Kokkos::IndexType<std::int64_t>>(0, static_cast<std::int64_t>(x.extent(0))),
      KOKKOS_LAMBDA(const std::int64_t i) { x(static_cast<std::size_t>(i)) += 1.0F; });
}

}  // namespace

void warm_up_device() {
  if constexpr (!kHostIsDevice) {
    constexpr std::chrono::seconds kDuration{2};
    constexpr std::int64_t kExtent = std::int64_t{1} << 24;
    const Kokkos::View<float*, DeviceMemory> memory("kozero::bench::warm_up", kExtent);
    const Vector<float> x(memory.data(), kExtent);
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < kDuration) {
      add_one(x);
      Device().fence("kozero::bench::warm_up");
    }
  }
}

void run(const distributed::Environment& environment, const Arguments& arguments) {
  auto rest = arguments.begin();
  if (rest != arguments.end() && *rest == "bench") ++rest;
  const std::string name = rest == arguments.end() ? "" : *rest++;
  if (const auto found = kRuns.find(name); found != kRuns.end()) {
    try {
      return found->second(environment, Arguments(rest, arguments.end()));
    } catch (const program::HelpAsked& help) {
      if (environment.rank() == 0) std::cout << help.text << std::flush;
      return;
    }
  }
  if (program::asks_for_help(name)) {
    if (environment.rank() == 0) print_help();
    return;
  }
  const std::vector<std::string> known = names();
  const std::string nearest = nearest_name(name, known.data(), known.data() + known.size());
  throw Error(Failure::deck,
              "bench \"" + name + "\": " + (nearest.empty() ? "" : "did you mean " + nearest + "? ") + "accepted are " +
                  io::joined(known),
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::bench
