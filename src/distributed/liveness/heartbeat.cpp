// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// heartbeat.cpp: beats to rank 0, the table of beats back to all ranks, and the detection of lost and stalled ranks.
#include <unistd.h>
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <kozero/core/error.hpp>
#include "src/distributed/group_communicator.hpp"
#include "src/distributed/liveness/heartbeat.hpp"
#include "src/distributed/liveness/watchdog.hpp"

namespace kozero::distributed {
namespace {

constexpr double kPeriod = 0.25;                         // seconds
constexpr std::chrono::milliseconds kPeriodAtTheEnd{1};  // no rank computes any more
constexpr int kTag = 0;
constexpr std::size_t kNameLength = 128;

bool all_end(const std::vector<Beat>& beats) {
  return std::all_of(beats.begin(), beats.end(), [](const Beat& beat) { return beat.ends != 0; });
}

}  // namespace

std::vector<Beat> beats_to_report(const std::vector<Beat>& table) {
  if (table.size() <= kMostReported) return table;
  std::vector<std::size_t> chosen = {0};
  const auto choose = [&](std::size_t rank) {
    if (chosen.size() < kMostReported && std::ranges::find(chosen, rank) == chosen.end()) chosen.push_back(rank);
  };
  for (std::size_t role = 0; role < kRoles; ++role) {
    int found = 0;
    for (std::size_t r = 0; r < table.size() && found < 2; ++r) {
      if (table[r].waits[role] != 0) continue;
      choose(r);
      ++found;
    }
  }
  const auto ending = std::ranges::find_if(table, [](const Beat& beat) { return beat.ends != 0; });
  if (ending != table.end()) choose(static_cast<std::size_t>(ending - table.begin()));
  std::vector<std::size_t> by_time(table.size());
  std::iota(by_time.begin(), by_time.end(), std::size_t{0});
  const auto unheard = [&](std::size_t r) { return table[r].ends != 0 ? 0.0 : table[r].unheard_s; };
  std::ranges::partial_sort(by_time, by_time.begin() + kMostReported, [&](std::size_t a, std::size_t b) {
    return std::pair(-unheard(a), a) < std::pair(-unheard(b), b);
  });
  for (std::size_t i = 0; i < kMostReported; ++i) choose(by_time[i]);
  std::vector<Beat> beats;
  for (const std::size_t rank : chosen) beats.push_back(table[rank]);
  return beats;
}

void take_report(const std::vector<Beat>& reported, std::vector<Beat>& table) {
  for (Beat& beat : table) {
    beat.unheard_s = 0.0;
    beat.waits.fill(1);
    beat.ends = reported.front().all_end;
  }
  for (const Beat& beat : reported) table.at(static_cast<std::size_t>(beat.rank)) = beat;
}

std::atomic<Heartbeat*>& Heartbeat::current() {
  static std::atomic<Heartbeat*> heartbeat = nullptr;
  return heartbeat;
}

Heartbeat::Heartbeat(MPI_Comm world) {
  {
    const BlockingCall call("MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  }
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  gather_names();
  if (rank_ > 0) peers_ = {0};
  for (int peer = 1; rank_ == 0 && peer < size_; ++peer) peers_.push_back(peer);
  const auto num_peers = peers_.size();
  table_.resize(static_cast<std::size_t>(size_));
  judged_.resize(table_.size());
  for (int r = 0; r < size_; ++r) table_[static_cast<std::size_t>(r)].rank = r;
  incoming_.assign(num_peers, Table(rank_ == 0 ? 1 : std::min(table_.size(), kMostReported)));
  expected_.assign(num_peers, MPI_REQUEST_NULL);
  outgoing_.resize(num_peers);
  for (std::size_t i = 0; i < num_peers; ++i) expect(static_cast<int>(i));
  current() = this;
  thread_ = std::thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  current() = nullptr;
  stopping_ = true;
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  // After end() no request is under way and the duplicate can be freed; otherwise it is leaked.
  if (!is_over()) return;
  const BlockingCall call("MPI_Comm_free");
  MPI_Comm_free(&comm_);
}

void Heartbeat::gather_names() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(host.data(), &length), "MPI_Get_processor_name");
  std::string mine = std::string(host.data()).substr(0, kNameLength - 32);
  mine = "on " + mine + " (process " + std::to_string(getpid()) + ")";
  mine.resize(kNameLength, '\0');
  std::string all(kNameLength * static_cast<std::size_t>(size_), '\0');
  {
    const BlockingCall call("MPI_Allgather");
    check_mpi(MPI_Allgather(mine.data(), kNameLength, MPI_CHAR, all.data(), kNameLength, MPI_CHAR, comm_),
              "MPI_Allgather");
  }
  for (int r = 0; r < size_; ++r) {
    names_.push_back("rank " + std::to_string(r) + " " + (all.data() + kNameLength * static_cast<std::size_t>(r)));
  }
}

void Heartbeat::run() {
  try {
    WaitClock clock;
    while (!stopping_) {
      round(clock.interval(comm_timeout()));
      if (is_over() || (ending_ && !unresponsive_.empty())) return;
      const double period = std::min(kPeriod, comm_timeout() / 8.0);
      std::unique_lock lock(sleep_mutex_);
      if (ending_) {
        wake_.wait_for(lock, kPeriodAtTheEnd);
      } else {
        wake_.wait_for(lock, std::chrono::duration<double>(period), [this] { return ending_ || stopping_; });
      }
    }
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    unresponsive_ = error.what();
    for (auto& role : in_vain_) role = true;
  }
}

void Heartbeat::round(double elapsed_s) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& beat : table_) beat.unheard_s += rank_ == 0 ? elapsed_s : 0.0;
    without_table_s_ += elapsed_s;
    unjudged_s_ += elapsed_s;
  }
  receive();
  {
    const std::lock_guard lock(mutex_);
    Beat& mine = table_[static_cast<std::size_t>(rank_)];
    mine = whereabouts().beat();
    mine.number = num_rounds_ + 1;
    mine.ends = ending_ ? 1 : 0;
    mine.rank = rank_;
    if (rank_ == 0) mine.all_end = all_end(table_) ? 1 : 0;
    judge();
    for (std::size_t role = 0; role < kRoles; ++role) mine.stalled[role] = stalled_[role].empty() ? 0 : 1;
  }
  send();
  ++num_rounds_;
}

void Heartbeat::expect(int peer) {
  const auto i = static_cast<std::size_t>(peer);
  const auto bytes = static_cast<int>(incoming_[i].size() * sizeof(Beat));
  check_mpi(MPI_Irecv(incoming_[i].data(), bytes, MPI_BYTE, peers_[i], kTag, comm_, &expected_[i]), "MPI_Irecv");
}

void Heartbeat::receive() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    int came = 1;
    while (came != 0 && expected_[i] != MPI_REQUEST_NULL) {
      check_mpi(MPI_Test(&expected_[i], &came, MPI_STATUS_IGNORE), "MPI_Test");
      if (came != 0) take(static_cast<int>(i));
    }
  }
}

void Heartbeat::take(int peer) {
  const auto i = static_cast<std::size_t>(peer);
  {
    const std::lock_guard lock(mutex_);
    if (rank_ == 0) {
      Beat& beat = table_[static_cast<std::size_t>(peers_[i])];
      beat = incoming_[i].front();
      beat.unheard_s = 0.0;
      if (beat.ends != 0) return;  // the last beat
    } else {
      take_report(incoming_[i], table_);
      without_table_s_ = 0.0;
      if (do_all_end()) return;
    }
  }
  expect(peer);
}

void Heartbeat::send() {
  std::shared_ptr<const Table> table;
  if (rank_ == 0)
    table = std::make_shared<const Table>(beats_to_report(table_));
  else
    table = std::make_shared<const Table>(1, table_[static_cast<std::size_t>(rank_)]);
  for (std::size_t i = 0; i < peers_.size(); ++i) send_to(static_cast<int>(i), table);
}

void Heartbeat::send_to(int peer, const std::shared_ptr<const Table>& table) {
  Outgoing& mine = outgoing_[static_cast<std::size_t>(peer)];
  int sent = 1;
  check_mpi(MPI_Test(&mine.request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
  if (sent == 0) return;
  // A rank's last message reports that it ends; rank 0's last message reports that all ranks end.
  if (mine.table != nullptr && is_last(*mine.table)) return;
  mine.table = table;
  const auto bytes = static_cast<int>(table->size() * sizeof(Beat));
  check_mpi(
      MPI_Isend(table->data(), bytes, MPI_BYTE, peers_[static_cast<std::size_t>(peer)], kTag, comm_, &mine.request),
      "MPI_Isend");
}

/// Whether all ranks end, this rank has sent its last message to each peer, and no message is under way.
bool Heartbeat::is_over() const {
  const auto is_null = [](MPI_Request request) { return request == MPI_REQUEST_NULL; };
  const bool said = std::all_of(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& each) {
    return is_null(each.request) && each.table != nullptr && is_last(*each.table);
  });
  return ending_ && do_all_end() && said && std::all_of(expected_.begin(), expected_.end(), is_null);
}

double Heartbeat::unheard_time(int rank) const {
  if (rank == rank_) return 0.0;
  if (rank == 0) return without_table_s_;
  return table_[static_cast<std::size_t>(rank)].unheard_s;
}

std::string Heartbeat::unresponsive_rank() const {
  for (int r = 0; r < size_; ++r) {
    const Beat& beat = table_[static_cast<std::size_t>(r)];
    if ((r != 0 && beat.ends != 0) || unheard_time(r) < comm_timeout()) continue;
    return names_[static_cast<std::size_t>(r)] + ", which gave no sign of life for " + in_seconds(unheard_time(r)) +
           " s" + kLostOrTooShort;
  }
  return "";
}

bool Heartbeat::all_were_heard_again() const {
  for (std::size_t r = 0; r < table_.size(); ++r) {
    if (table_[r].ends == 0 && table_[r].number == judged_[r]) return false;
  }
  return true;
}

void Heartbeat::judge() {
  unresponsive_ = unresponsive_rank();
  if (rank_ == 0) judge_stalls();
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (table_.front().stalled[role] != 0) say_stalled(static_cast<Role>(role));
    in_vain_[role] = !unresponsive_.empty() || !stalled_[role].empty();
  }
}

/// Accumulates the time in which every rank waits and no wait begins or ends. Checks only once every rank has sent a
/// new beat since the last check, so that no old message causes a stall.
void Heartbeat::judge_stalls() {
  if (!all_were_heard_again()) return;
  for (std::size_t role = 0; role < kRoles; ++role) {
    std::uint64_t progress = 0;
    bool all_wait = !all_end(table_);
    for (const auto& beat : table_) {
      progress += beat.waits_begun[role];
      all_wait = all_wait && (beat.ends != 0 || beat.waits[role] != 0);
    }
    stalled_s_[role] = all_wait && progress == progress_[role] ? stalled_s_[role] + unjudged_s_ : 0.0;
    progress_[role] = progress;
    if (stalled_s_[role] >= comm_timeout()) say_stalled(static_cast<Role>(role));
  }
  std::transform(table_.begin(), table_.end(), judged_.begin(), [](const Beat& beat) { return beat.number; });
  unjudged_s_ = 0.0;
}

void Heartbeat::say_stalled(Role role) {
  std::string& text = stalled_[static_cast<std::size_t>(role)];
  if (!text.empty()) return;
  const auto ended = std::find_if(table_.begin(), table_.end(), [](const Beat& beat) { return beat.ends != 0; });
  text = ended == table_.end() ? "another rank, while every rank waits (for comm.timeout_s)"
                               : names_[static_cast<std::size_t>(ended - table_.begin())] + ", which is at its end";
}

std::string Heartbeat::vain(Role role) const {
  const auto i = static_cast<std::size_t>(role);
  if (!in_vain_[i]) return "";
  const std::lock_guard lock(mutex_);
  return unresponsive_.empty() ? stalled_[i] : unresponsive_;
}

std::string Heartbeat::working_rank(Role role) const {
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || table_[static_cast<std::size_t>(r)].waits[static_cast<std::size_t>(role)] != 0) continue;
    return names_[static_cast<std::size_t>(r)];
  }
  return kAnotherRank;
}

std::string Heartbeat::awaited(Role role) const {
  const std::string working = working_rank(role);
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    if (unheard_time(r) < comm_timeout() / 2.0) continue;
    return names_[static_cast<std::size_t>(r)] + ", which gave no sign of life for " + in_seconds(unheard_time(r)) +
           " s" + kLostOrTooShort;
  }
  return working == kAnotherRank ? working : working + ", which lives and does not wait" + kFarBehind;
}

std::string Heartbeat::name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

std::vector<std::string> Heartbeat::positions_of_ranks(std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return unheard_time(a) > unheard_time(b); });
  std::vector<std::string> lines;
  for (const int r : ranks) {
    if (lines.size() == most) {
      lines.push_back("and " + std::to_string(ranks.size() - most) + " other ranks");
      break;
    }
    const std::string& name = names_[static_cast<std::size_t>(r)];
    const Beat& heard = table_[static_cast<std::size_t>(r)];
    if (r == rank_) {
      lines.push_back(name + ": " + position_text(whereabouts().beat()));
    } else if (heard.number == 0) {
      lines.push_back(name + ": not heard of since it started");
    } else {
      lines.push_back(name + ": " + position_text(heard) + ", heard of " + in_seconds(unheard_time(r)) + " s ago");
    }
  }
  return lines;
}

std::string Heartbeat::end() {
  ending_ = true;
  wake_.notify_all();
  thread_.join();
  const std::lock_guard lock(mutex_);
  return is_over() ? "" : unresponsive_;
}

}  // namespace kozero::distributed
