// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// machine.cpp: the platform and SMPI's options, and the MPI calls that a simulation changes:
//   MPI_Iallgather, ...   complete at once: SMPI sends them to every rank in turn, other libraries as the blocking ones
//   MPI_Test, ...         SMPI leaves the flag of a request that is MPI_REQUEST_NULL as it was
//   MPI_Testall           ends at the first open request
//   MPI_Isend, MPI_Irecv  are counted
//   MPI_Comm_dup          communicators of all ranks are numbered, for links as queues
#include <mpi.h>

#include <smpi/smpi.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <kozero/distributed/wait_clock.hpp>

#include "machine.hpp"

extern "C" void smpi_init_options();  // declares SMPI's options before they are read; in no header

namespace kozero::scale {
namespace {

namespace sg = simgrid::s4u;

// A waiting rank looks once in each interval of the clock, all ranks at the same times: SimGrid's cost is per time.
constexpr double kLook = 1e-6;
constexpr int kLooksAtOnce = 200'000;            // 0.2 s; then it looks ever more rarely
constexpr int kMostLooks = kLooksAtOnce + 1500;  // 1.3 s: the ranks wait for each other
constexpr const char* kJob = "kozero";

Machine machine;
std::vector<Traffic> traffic_of;

}  // namespace

/// For the MPI calls below.
void begin_queues(const Machine& machine);

namespace {

/// As on the command line of smpirun: SMPI reads some options only once.
std::vector<std::string> options() {
  std::vector<std::string> all = {"kozero", "--log=xbt_cfg.thresh:warning", "--log=smpi_config.thresh:error",
                                  "--log=smpi_coll.thresh:warning"};
  for (const std::string option :
       {"smpi/simulate-computation:no", "smpi/privatization:no", "smpi/test:0", "smpi/display-timing:no",
        "smpi/bcast:binomial_tree", "smpi/allreduce:rdb", "smpi/allgather:bruck", "smpi/barrier:ompi_bruck",
        "network/TCP-gamma:0", "network/crosstraffic:no", "network/weight-S:0", "network/bandwidth-factor:1",
        "contexts/guard-size:0", "contexts/stack-size:512"}) {
    all.push_back("--cfg=" + option);
  }
  const bool has_flows = machine.links == Links::flows;
  all.push_back(has_flows ? "--cfg=network/model:CM02" : "--cfg=network/model:Constant");
  // The factor of CM02, but all seconds of a message in the model Constant.
  all.push_back("--cfg=network/latency-factor:" + std::to_string(has_flows ? 1.0 : machine.latency_s));
  for (const std::string overhead : {"os", "ois", "or"}) {
    all.push_back("--cfg=smpi/" + overhead + ":0:" + std::to_string(machine.message_s) + ":0");
  }
  return all;
}

sg::FatTreeParams tree_of(unsigned nodes) {
  constexpr unsigned kLeaf = 16;
  if (nodes <= kLeaf) return {1, {nodes}, {1}, {1}};
  return {2, {kLeaf, nodes / kLeaf}, {1, kLeaf}, {1, 1}};
}

/// The hosts alone: the model Constant has no links.
std::vector<sg::Host*> build_unconnected_hosts() {
  sg::NetZone* const zone = sg::create_empty_zone("cluster");
  std::vector<sg::Host*> hosts;
  for (int node = 0; node < machine.nodes(); ++node) {
    hosts.push_back(zone->create_host("node-" + std::to_string(node), 1e9)->seal());
  }
  zone->seal();
  return hosts;
}

std::vector<sg::Host*> build_fat_tree() {
  const double bytes_per_s = machine.gbit * 1e9 / 8.0;
  const bool has_spines = machine.nodes() > 16;
  const double per_link = machine.latency_s / (has_spines ? 4.0 : 2.0);
  std::vector<sg::Host*> hosts(static_cast<std::size_t>(machine.nodes()));
  const auto host = [&hosts](sg::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
    sg::Host* const made = zone->create_host("node-" + std::to_string(id), 1e9);
    made->seal();
    hosts[id] = made;
    return std::make_pair(made->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
  };
  const auto loopback = [](sg::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
    sg::Link* const link = zone->create_link("memory-" + std::to_string(id), machine.memory);
    return link->set_latency(1e-7)->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
  };
  const sg::ClusterCallbacks callbacks(host, loopback, {});
  sg::create_fatTree_zone("cluster", nullptr, tree_of(static_cast<unsigned>(machine.nodes())), callbacks, bytes_per_s,
                          per_link, sg::Link::SharingPolicy::SPLITDUPLEX)
      ->seal();
  return hosts;
}

void run_rank(const std::function<void()>& rank) {
  try {
    rank();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d after %.6f s: %s\n", simulated_rank(), simulated_seconds(), error.what());
    std::fflush(nullptr);
    _exit(1);
  }
}

}  // namespace

void simulate(const Machine& wanted, const std::function<void()>& rank) {
  machine = wanted;
  traffic_of.assign(static_cast<std::size_t>(machine.ranks), {});
  smpi_init_options();
  std::vector<std::string> texts = options();
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  auto count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  sg::Engine engine(&count, arguments.data());
  SMPI_init();
  begin_queues(machine);
  const auto hosts = machine.links == Links::flows ? build_fat_tree() : build_unconnected_hosts();
  // In the model Constant a rounded message ends only when the clock moves on.
  const auto tick = [] {
    for (;;) pass(kLook);
  };
  if (machine.links == Links::queues) sg::Actor::create("clock", hosts.front(), tick)->daemonize();
  SMPI_app_instance_register(kJob, nullptr, machine.ranks);
  for (int r = 0; r < machine.ranks; ++r) {
    auto actor =
        sg::Actor::init("rank-" + std::to_string(r), hosts[static_cast<std::size_t>(r / machine.ranks_per_node)]);
    actor->set_property("instance_id", kJob);
    actor->set_property("rank", std::to_string(r));
    actor->start([&rank] { run_rank(rank); });
  }
  engine.run();
  SMPI_finalize();
}

void pass(double seconds) {
  if (seconds > 0.0) sg::this_actor::sleep_for(seconds);
}

void pass_bytes(std::int64_t bytes) { pass(static_cast<double>(bytes) / machine.memory); }

int simulated_rank() {
  const int before = machine.links == Links::queues ? 2 : 1;  // other actors
  return std::max(-1, static_cast<int>(sg::this_actor::get_pid()) - before);
}

double simulated_seconds() { return sg::Engine::get_clock(); }

Traffic& traffic() { return traffic_of.at(static_cast<std::size_t>(simulated_rank())); }

void look_again(int looks) {
  const int late = looks - kLooksAtOnce;
  const double seconds = late < 0 ? 0.0 : kLook * late;
  if (looks > kMostLooks) throw std::runtime_error("waits for another rank: a deadlock");
  const double now = simulated_seconds() / kLook;
  pass(std::max(seconds, (std::floor(now + 1.1) - now) * kLook));
}

}  // namespace kozero::scale

using kozero::scale::traffic;

namespace {

int count_control(std::int64_t bytes, int code, MPI_Request* request) {
  ++traffic().control_calls;
  traffic().control_bytes += bytes;
  if (request != nullptr) *request = MPI_REQUEST_NULL;
  return code;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

int count_message(int count, MPI_Datatype type, bool sends) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  ++traffic().requests;
  if (sends) traffic().bytes_sent += std::int64_t{bytes} * count;
  return bytes;
}

/// A request of Links::queues, which SMPI does not see.
struct Open {
  int from = -1;  // of a message to receive
  std::uint64_t key = 0;
  double left_s = 0.0;  // of a message to send: when the node's link has sent it

  [[nodiscard]] MPI_Request handle() { return reinterpret_cast<MPI_Request>(this); }
  static Open& of(MPI_Request request) { return *reinterpret_cast<Open*>(request); }
};

/// With Links::queues: when messages leave and arrive, which SimGrid does not compute then. They have no bytes.
///   a message leaves when the sender's node has sent those before it, and arrives when the receiver's node has
///   received those before it; between the ranks of a node it takes the latency alone
/// Messages are matched by sender, communicator and tag; the communicators have all ranks.
class Queues {
 public:
  void begin(const kozero::scale::Machine& machine) {
    machine_ = machine;
    sends_until_.assign(static_cast<std::size_t>(machine.nodes()), 0.0);
    receives_until_ = sends_until_;
    arrivals_.resize(static_cast<std::size_t>(machine.ranks));
    numbers_.resize(arrivals_.size());
    made_.assign(arrivals_.size(), 0);
  }
  [[nodiscard]] bool are_used() const { return machine_.links == kozero::scale::Links::queues; }

  /// Gives a duplicate of a communicator its number. All ranks make communicators of all ranks in one order.
  void number(MPI_Comm comm) {
    int rank = -1;
    PMPI_Comm_rank(comm, &rank);
    if (size_of(comm) != machine_.ranks || rank != kozero::scale::simulated_rank()) return;
    auto& numbers = numbers_[static_cast<std::size_t>(rank)];
    numbers[comm] = ++made_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::uint64_t number_of(MPI_Comm comm) const {
    const auto& numbers = numbers_[static_cast<std::size_t>(kozero::scale::simulated_rank())];
    const auto found = numbers.find(comm);
    if (found != numbers.end()) return found->second;
    throw std::runtime_error("links as queues: a message over a communicator that is no duplicate of all ranks'");
  }

  MPI_Request send(int to, int tag, MPI_Comm comm, std::int64_t bytes) {
    kozero::scale::pass(machine_.message_s);
    const int from = kozero::scale::simulated_rank();
    double& sends_until = sends_until_[node(from)];
    double& receives_until = receives_until_[node(to)];
    const double now = kozero::scale::simulated_seconds();
    const double seconds = static_cast<double>(bytes) / (machine_.gbit * 1e9 / 8.0);
    double arrives = now + machine_.latency_s;
    if (node(from) != node(to)) {
      const double begins = std::max(now, sends_until);
      sends_until = begins + seconds;
      receives_until = arrives = std::max(begins + machine_.latency_s, receives_until) + seconds;
    }
    arrivals_[static_cast<std::size_t>(to)][key(from, tag, comm)].push_back(arrives);
    return (new Open{.left_s = node(from) != node(to) ? sends_until : now})->handle();
  }
  [[nodiscard]] MPI_Request receive(int from, int tag, MPI_Comm comm) const {
    return (new Open{.from = from, .key = key(from, tag, comm)})->handle();
  }

  /// Whether the message of the request has left, or arrived.
  [[nodiscard]] bool is_done(MPI_Request request) const {
    const Open& open = Open::of(request);
    const double now = kozero::scale::simulated_seconds();
    if (open.from < 0) return now >= open.left_s;
    const auto messages = mine().find(open.key);
    return messages != mine().end() && now >= messages->second.front();
  }
  void end(MPI_Request request) {
    const Open& open = Open::of(request);
    if (open.from >= 0) {
      auto& all = arrivals_[static_cast<std::size_t>(kozero::scale::simulated_rank())];
      const auto messages = all.find(open.key);
      messages->second.erase(messages->second.begin());
      if (messages->second.empty()) all.erase(messages);
      kozero::scale::pass(machine_.message_s);
    }
    delete &open;
  }

 private:
  using Arrivals = std::unordered_map<std::uint64_t, std::vector<double>>;  // by key(), in order

  [[nodiscard]] const Arrivals& mine() const {
    return arrivals_[static_cast<std::size_t>(kozero::scale::simulated_rank())];
  }
  [[nodiscard]] std::size_t node(int rank) const { return static_cast<std::size_t>(rank / machine_.ranks_per_node); }
  [[nodiscard]] std::uint64_t key(int from, int tag, MPI_Comm comm) const {
    return static_cast<std::uint64_t>(from) << 24U | number_of(comm) << 8U | static_cast<std::uint64_t>(tag);
  }

  kozero::scale::Machine machine_;
  std::vector<double> sends_until_;  // by node
  std::vector<double> receives_until_;
  std::vector<Arrivals> arrivals_;                                    // by rank
  std::vector<std::unordered_map<MPI_Comm, std::uint64_t>> numbers_;  // by rank, of its communicators of all ranks
  std::vector<std::uint64_t> made_;                                   // by rank: the last number
};

Queues& queues() {
  static Queues all;
  return all;
}

}  // namespace

void kozero::scale::begin_queues(const Machine& machine) { queues().begin(machine); }

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const int code = PMPI_Comm_dup(comm, made);
  if (code == MPI_SUCCESS && queues().are_used()) queues().number(*made);
  return code;
}

int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const int bytes = count_message(count, type, true);
  if (!queues().are_used()) return PMPI_Isend(from, count, type, to, tag, comm, request);
  *request = queues().send(to, tag, comm, std::int64_t{bytes} * count);
  return MPI_SUCCESS;
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  count_message(count, type, false);
  if (!queues().are_used()) return PMPI_Irecv(to, count, type, from, tag, comm, request);
  *request = queues().receive(from, tag, comm);
  return MPI_SUCCESS;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  *done = 1;
  if (*request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  if (!queues().are_used()) return PMPI_Test(request, done, status);
  *done = queues().is_done(*request) ? 1 : 0;
  if (*done != 0) queues().end(std::exchange(*request, MPI_REQUEST_NULL));
  return MPI_SUCCESS;
}

int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* status) {
  *done = 1;
  if (request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  if (!queues().are_used()) return PMPI_Request_get_status(request, done, status);
  *done = queues().is_done(request) ? 1 : 0;
  return MPI_SUCCESS;
}

int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* /*statuses*/) {
  *done = 1;
  for (int i = 0; i < count && *done != 0; ++i) MPI_Test(&requests[i], done, MPI_STATUS_IGNORE);
  return MPI_SUCCESS;
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) { return count_control(0, PMPI_Barrier(comm), request); }

int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return count_control(count, PMPI_Bcast(bytes, count, type, root, comm), request);
}

int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                   MPI_Comm comm, MPI_Request* request) {
  return count_control(std::int64_t{count} * size_of(comm),
                       PMPI_Allgather(from, count, type, to, to_count, to_type, comm), request);
}

int MPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type,
                  MPI_Comm comm) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  return count_control(std::int64_t{count} * bytes * size_of(comm),
                       PMPI_Allgather(from, count, type, to, to_count, to_type, comm), nullptr);
}

int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation, MPI_Comm comm,
                   MPI_Request* request) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  return count_control(std::int64_t{count} * bytes, PMPI_Allreduce(from, to, count, type, operation, comm), request);
}
