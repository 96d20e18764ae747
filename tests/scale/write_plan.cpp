// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// write_plan.cpp: writes what `plan` says of a deck on a cluster, for simulated_ranks (simulate.cpp), which cannot link
// libraries that use another MPI.
//   write_plan DECK RANKS RANKS_PER_NODE GBIT MEMORY TERAFLOPS STAGE > PLAN
// PLAN has a line per unit, row of a unit, and number: "unit SLOT VOCABULARY NAME", "row EXTENT OVERWRITTEN NAME",
// "KEY VALUE". MEMORY: bytes per second of a rank, and TERAFLOPS: its products.
#include <cstdlib>
#include <iostream>
#include <Kokkos_Core.hpp>
#include <limits>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/plan/step_time.hpp>

using namespace kozero;

namespace {

void write_table(const ParameterTable& table) {
  for (int unit = 0; unit < table.num_units(); ++unit) {
    std::cout << "unit " << table.unit(unit).slot << " " << table.unit(unit).name << "\n";
    for (const Parameter& row : table.rows_of(unit)) {
      std::cout << "row " << row.extent() << " " << row.overwritten << " " << row.name << "\n";
    }
  }
}

void write_numbers(const train::Settings& settings, const plan::MemoryPlan& plan, const plan::StepTime& time) {
  const auto write = [](const std::string& key, auto value) { std::cout << key << " " << value << "\n"; };
  write("stage", settings.zero.stage);
  write("micro_steps", settings.batch.micro_steps);
  write("prefetch_units", settings.zero.prefetch_units);
  write("overlap", settings.zero.overlap);
  write("chunk_bytes", settings.comm.chunk_bytes);
  write("under_way", settings.comm.under_way);
  write("passes_s", time.products + time.streams);
  write("update_s", time.update);
  write("step_s", time.total());
  write("communication_s", time.communication);
  write("calls", plan.sent.calls);
  write("bytes_sent", plan.sent.all);
  for (const Memory category : {Memory::parameters, Memory::gradients, Memory::gathered, Memory::communication}) {
    write("memory_" + std::string(kMemoryNames[static_cast<std::size_t>(category)]), plan.of(category));
  }
}

void write_plan(char** arguments) {
  const int ranks = std::atoi(arguments[2]);
  const int ranks_per_node = std::atoi(arguments[3]);
  const double link = std::atof(arguments[4]) * 1e9 / 8.0 / ranks_per_node;
  const io::Deck deck = io::read_deck(
      arguments[1], {std::string("zero.stage=") + arguments[7], "train.global_batch=" + std::to_string(ranks)});
  train::Settings settings = train::settings_of(deck, ranks, 0, 0);
  settings.comm.ranks_per_node = ranks_per_node;
  const plan::MemoryPlan plan = plan::memory_plan(settings, "mpi", ranks);
  const plan::Rates rates = plan::with_given_rates(
      {}, {.products = 1e12 * std::atof(arguments[6]), .memory = std::atof(arguments[5]), .link = link});
  std::cout.precision(std::numeric_limits<double>::max_digits10);
  write_table(plan::PlannedEngine(settings)->parameters());
  write_numbers(settings, plan, plan::step_time(settings, plan, rates));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 8) {
    std::cerr << "usage: write_plan DECK RANKS RANKS_PER_NODE GBIT MEMORY TERAFLOPS STAGE\n";
    return 2;
  }
  const Kokkos::ScopeGuard kokkos;
  try {
    write_plan(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
