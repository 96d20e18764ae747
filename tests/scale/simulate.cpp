// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// simulate.cpp: starts, trains and saves on a simulated cluster, and writes what the ranks did beside what `plan` says.
//   simulated_ranks PLAN RANKS RANKS_PER_NODE GBIT MEMORY flows|queues      PLAN: a file of write_plan
// Writes a line per number: "KEY SIMULATED PLANNED", or "KEY SIMULATED -". Exit status 1: a planned number
// differs by more than its tolerance:
//   memory of parameters, gradients, gathered and communication    largest of any rank, relative difference 1e-9
//   calls, requests                                                largest of any rank, exactly
//   bytes sent                                                     mean over the ranks, 1e-3
//   time of a step                                                 15 %; its exposed communication 30 %
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
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

constexpr int kSteps = 1;            // after one that is not measured
constexpr double kTolerance = 0.15;  // of a step's time
constexpr double kExposedTolerance = 0.30;

/// A call of control traffic, with the bytes that a rank passes (a broadcast: rank 0).
struct ControlCall {
  std::string kind;  // "sum", "gather", "broadcast"
  std::size_t bytes = 0;
};

struct StartCall {
  const char* kind;
  std::size_t bytes;
  int times;
};
// All control calls of a start of model.toml up to the first published weights, without those that make_mesh and
// ShardedState make, which the simulation runs. Counted by start_calls.gdb in rank 0 of 4 ranks (2026-11-27, 2abb3dce).
// Texts of 2,457 bytes are the deck's, 173 bytes describe a rank's cores.
constexpr std::array<StartCall, 15> kStart = {{{"sum", 8, 27},
                                               {"gather", 8, 6},
                                               {"gather", 24, 2},
                                               {"gather", 2, 2},
                                               {"gather", 173, 1},
                                               {"gather", 19, 1},
                                               {"gather", 22, 1},
                                               {"gather", 3, 1},
                                               {"gather", 1, 1},
                                               {"broadcast", 2457, 2},
                                               {"broadcast", 2, 4},
                                               {"broadcast", 0, 2},
                                               {"broadcast", 32, 1},
                                               {"broadcast", 20, 1},
                                               {"broadcast", 57, 1}}};

struct Plan {
  ParameterTable table;
  std::vector<ControlCall> save;
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
    } else if (key == "save") {
      ControlCall& call = plan.save.emplace_back();
      words >> call.kind >> call.bytes;
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

void make(distributed::Communicator& comm, const ControlCall& call) {
  if (call.kind == "sum") {
    comm.sum_control(std::vector<std::uint64_t>(call.bytes / sizeof(std::uint64_t)));
  } else if (call.kind == "gather") {
    comm.gather_control(std::vector<std::byte>(call.bytes));
  } else {
    comm.broadcast_control(std::string(call.bytes, ' '));
  }
}

void make_start_calls(distributed::Communicator& comm) {
  for (const StartCall& call : kStart) {
    for (int i = 0; i < call.times; ++i) make(comm, {call.kind, call.bytes});
  }
}

/// The calls of io::write_checkpoint, and those that train/checkpoint.cpp adds: an agreement after removing older
/// checkpoints, and two bytes of each rank that tell that its save has ended.
void make_save_calls(distributed::Communicator& comm, const Plan& plan) {
  for (const ControlCall& call : plan.save) make(comm, call);
  make(comm, {"sum", 8});
  make(comm, {"gather", 2});
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
  make_start_calls(*control);
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
  double calls = 0.0;
  for (const auto& row : mesh.counts->rows()) {
    calls += static_cast<double>(row.calls) / kSteps;
    all.bytes += static_cast<double>(row.bytes) / kSteps;
  }
  all.calls = std::max(all.calls, calls);
  all.requests = std::max(all.requests, static_cast<double>(scale::traffic().requests - requests) / kSteps);

  mesh.all->barrier();
  phases.end("barrier");
  make_save_calls(*control, plan);
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
  bool agrees = true;
  for (const auto& [key, value] : all.of_fullest) agrees = compare(key, value, plan.at(key), 1e-9) && agrees;
  agrees = compare("calls", all.calls, plan.at("calls"), 0.0) && agrees;
  agrees = compare("requests", all.requests, plan.at("requests"), 0.0) && agrees;
  agrees = compare("bytes_sent", all.bytes / machine.ranks, plan.at("bytes_sent"), 1e-3) && agrees;
  const double step_s = all.seconds.at("steps_s") / kSteps;
  agrees = compare("step_s", step_s, plan.at("step_s"), kTolerance) && agrees;
  const double exposed_s = step_s - plan.at("passes_s") - plan.at("update_s");
  agrees = compare("exposed_s", exposed_s, plan.at("communication_s"), kExposedTolerance) && agrees;
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
