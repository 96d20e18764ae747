// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// simulate.cpp: starts, trains and saves on a simulated cluster, and writes what the ranks did beside what `plan` says.
//   simulated_ranks PLAN RANKS RANKS_PER_NODE GBIT MEMORY flows|queues      PLAN: a file of write_plan
// Writes a line per number: "KEY SIMULATED PLANNED", or "KEY SIMULATED -". Exit status 1: memory, calls or bytes differ
// from the plan, or the time of a step by more than 15 %.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <Kokkos_Core.hpp>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <kozero/core/ledger.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/environment.hpp>
#include <kozero/distributed/make_communicator.hpp>

#include "machine.hpp"
#include "stand_in.hpp"

using namespace kozero;

namespace {

constexpr int kSteps = 1;             // after one that is not measured
constexpr double kTolerance = 0.15;   // of a step's time
constexpr int kStartAgreements = 25;  // those of a run on a deck without data files (run/session.cpp, run_start.cpp)
constexpr std::int64_t kHashBytes = 16;

struct Plan {
  ParameterTable table;
  std::map<std::string, double> numbers;

  [[nodiscard]] double at(const std::string& key) const { return numbers.at(key); }
  [[nodiscard]] std::int64_t whole(const std::string& key) const { return std::llround(at(key)); }
};

Plan read_plan(const std::string& path) {
  std::ifstream file(path);
  Plan plan;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "unit") {
      int slot = 0;
      std::string name;
      words >> slot >> name;
      plan.table.add_unit(name, slot);
    } else if (key == "row") {
      Parameter row;
      std::int64_t extent = 0;
      words >> extent >> row.overwritten >> row.name;
      row.shape = {extent};
      plan.table.add(row);
    } else {
      words >> plan.numbers[key];
    }
  }
  return plan;
}

/// What all ranks have measured; every rank writes its own.
struct Measured {
  std::map<std::string, double> seconds;  // largest of any rank
  std::map<std::string, double> of_fullest;
  double calls = 0.0;
  double bytes = 0.0;  // of all ranks
  double requests = 0.0;
};

class Phases {
 public:
  explicit Phases(Measured& all) : all_(all), begin_(scale::simulated_seconds()), before_(scale::traffic()) {}

  void end(const std::string& name) {
    const double now = scale::simulated_seconds();
    const scale::Traffic& traffic = scale::traffic();
    keep(name + "_s", now - begin_);
    keep(name + "_calls", static_cast<double>(traffic.control_calls - before_.control_calls));
    keep(name + "_bytes", static_cast<double>(traffic.control_bytes - before_.control_bytes));
    begin_ = now;
    before_ = traffic;
  }

 private:
  void keep(const std::string& key, double value) { all_.seconds[key] = std::max(all_.seconds[key], value); }

  Measured& all_;
  double begin_;
  scale::Traffic before_;
};

/// The agreements of io::write_checkpoint and CheckpointSaver for `blocks` hashed blocks of the state, without a disk.
void agree_on_save(distributed::Communicator& comm, std::size_t blocks) {
  struct Hash {
    std::uint64_t words[kHashBytes / 8];
  };
  const auto agree = [&](int times) {
    for (int i = 0; i < times; ++i) distributed::agree(comm, 0, "");
  };
  agree(1);  // the folder
  const std::uint64_t elements = 1;
  for (int group = 0; group < 3; ++group) comm.sum_control({&elements, 1});  // parameters and two moments
  agree(1);                                                                  // the layout
  for (int group = 0; group < 3; ++group) comm.broadcast_control("offsets");
  agree(1);                               // written
  for (int pass = 0; pass < 2; ++pass) {  // hashes of blocks, then of datasets
    agree(1);
    distributed::map_over_ranks(comm, blocks, [](std::size_t) { return Hash{}; });
  }
  agree(3);  // the manifest, the rename, older checkpoints
  distributed::on_all_ranks(comm, true);
}

void compare_memory(const MemoryLedger& ledger, Measured& all) {
  for (const Memory category : {Memory::parameters, Memory::gradients, Memory::gathered, Memory::communication}) {
    double& most = all.of_fullest["memory_" + std::string(kMemoryNames[static_cast<std::size_t>(category)])];
    most = std::max(most, static_cast<double>(ledger.bytes(category)));
  }
}

void run_rank(const Plan& plan, Measured& all) {
  Phases phases(all);
  int count = 0;
  char** arguments = nullptr;
  const distributed::Environment environment(&count, &arguments);
  phases.end("environment");
  const auto control = distributed::make_control_communicator(environment.world(), 600.0);
  phases.end("control");
  for (int i = 0; i < kStartAgreements; ++i) distributed::agree(*control, 0, "");
  phases.end("agreements");
  distributed::CommunicatorOptions options;
  options.chunk_bytes = plan.whole("chunk_bytes");
  options.under_way = static_cast<std::uint64_t>(plan.whole("under_way"));
  options.shm_free_bytes = [] { return std::int64_t{1} << 50; };
  // Never freed: Kokkos keeps its own data in front of each array, and other ranks have overwritten those.
  auto& ledger = *new MemoryLedger;
  const auto& mesh =
      *new distributed::MeshCommunicators(distributed::make_mesh("mpi", environment.world(), 0, ledger, options));
  phases.end("mesh");
  const zero::Config config{.stage = static_cast<int>(plan.whole("stage")),
                            .micro_steps = static_cast<int>(plan.whole("micro_steps")),
                            .overlap = plan.whole("overlap") != 0,
                            .prefetch_units = static_cast<int>(plan.whole("prefetch_units"))};
  auto& state = *new zero::ShardedState<float>(plan.table, mesh.mesh(), config, ledger);
  phases.end("state");
  state.weights().publish();
  compare_memory(ledger, all);
  phases.end("publish");

  scale::StandIn model(plan.table, *mesh.all, state, {plan.at("passes_s"), plan.at("update_s"), config.micro_steps});
  model.step();
  mesh.all->barrier();
  mesh.counts->reset();
  const std::int64_t requests = scale::traffic().requests;
  phases.end("first_step");
  for (int step = 0; step < kSteps; ++step) model.step();
  phases.end("steps");
  for (const auto& row : mesh.counts->rows()) {
    all.calls = std::max(all.calls, static_cast<double>(row.calls) / (environment.rank() == 0 ? kSteps : 1e9));
    all.bytes += static_cast<double>(row.bytes) / kSteps;
  }
  double calls = 0.0;
  for (const auto& row : mesh.counts->rows()) calls += static_cast<double>(row.calls) / kSteps;
  all.calls = std::max(all.calls, calls);
  all.requests = std::max(all.requests, static_cast<double>(scale::traffic().requests - requests) / kSteps);

  mesh.all->barrier();
  phases.end("barrier");
  constexpr std::int64_t kBlock = std::int64_t{16} << 20;
  agree_on_save(*control, static_cast<std::size_t>(12 * plan.table.extent() / kBlock + 1));
  phases.end("save");
}

bool is_near(double value, double wanted, double tolerance) {
  return std::abs(value - wanted) <= tolerance * std::abs(wanted);
}

void write(const std::string& key, double value) { std::printf("%-22s %.9g -\n", key.c_str(), value); }

/// Writes a line, and returns whether the values agree.
bool compare(const std::string& key, double value, double planned, double tolerance) {
  const bool agrees = is_near(value, planned, tolerance);
  std::printf("%-22s %.9g %.9g%s\n", key.c_str(), value, planned, agrees ? "" : " DIFFERS");
  return agrees;
}

int report(const scale::Machine& machine, const Plan& plan, const Measured& all) {
  for (const auto& [key, value] : all.seconds) write(key, value);
  write("requests", all.requests);
  bool agrees = true;
  for (const auto& [key, value] : all.of_fullest) agrees = compare(key, value, plan.at(key), 1e-9) && agrees;
  agrees = compare("calls", all.calls, plan.at("calls"), 0.0) && agrees;
  agrees = compare("bytes_sent", all.bytes / machine.ranks, plan.at("bytes_sent"), 1e-3) && agrees;
  const double step_s = all.seconds.at("steps_s") / kSteps;
  agrees = compare("step_s", step_s, plan.at("step_s"), kTolerance) && agrees;
  write("exposed_s", step_s - plan.at("passes_s") - plan.at("update_s"));
  write("planned_exposed_s", plan.at("communication_s"));
  return agrees ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    std::fprintf(stderr, "usage: simulated_ranks PLAN RANKS RANKS_PER_NODE GBIT MEMORY flows|queues\n");
    return 2;
  }
  Kokkos::initialize(Kokkos::InitializationSettings().set_num_threads(1));
  const Plan plan = read_plan(arguments[1]);
  scale::Machine machine;
  machine.ranks = std::atoi(arguments[2]);
  machine.ranks_per_node = std::atoi(arguments[3]);
  machine.gbit = std::atof(arguments[4]);
  machine.memory = std::atof(arguments[5]);
  machine.links = std::string(arguments[6]) == "queues" ? scale::Links::queues : scale::Links::flows;
  Measured all;
  scale::simulate(machine, [&] { run_rank(plan, all); });
  const int status = report(machine, plan, all);
  std::fflush(nullptr);
  std::_Exit(status);
}
