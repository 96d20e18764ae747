// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include <kozero/core/error.hpp>
#include <kozero/dist/agreed.hpp>
#include <kozero/dist/launcher.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/io/checkpoint.hpp>
#include <kozero/io/disk_space.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/prepared_folder.hpp>
#include <kozero/io/run_folder.hpp>
#include <kozero/io/whole_file.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/train/assembly.hpp>
#include <kozero/train/checkpoint.hpp>

#include "device_handover.hpp"
#include "memory_room.hpp"
#include "saving.hpp"
#include "session.hpp"
#include "start_checks.hpp"

namespace kozero::commands {
namespace {

namespace fs = std::filesystem;

const char* environment_variable(const char* name) { return std::getenv(name); }

/// Throws `refusal`(rank 0's text) where this rank's text is another.
void require_rank_0s(dist::Communicator& comm, const std::string& mine,
                     const std::function<std::string(const std::string& first)>& refusal) {
  const std::string first = comm.broadcast_control(mine);
  dist::agreed(comm, [&] {
    if (first != mine) throw Error(Failure::deck, refusal(first));
  });
}

std::string ranks_0_and_mine(const dist::Communicator& comm) { return "ranks 0 and " + std::to_string(comm.rank()); }

/// Where the run's folder is, or will be made, and where the tokens of its text go.
void require_writable_places(const io::Deck& deck) {
  const std::string dir = io::without_trailing_slash(deck.run.dir);
  const std::string tokens = dir + "-tokens";
  try {
    if (deck.checkpoint.resume == "none" || !io::is_folder(dir)) {
      io::require_writable(fs::absolute(dir).parent_path().string());
    } else {
      io::require_writable(dir);
    }
    const bool makes_tokens = !deck.data.text.empty() && !io::is_there(tokens + "/" + io::kTokensDescription);
    if (makes_tokens) io::require_writable(fs::absolute(tokens).parent_path().string());
  } catch (const Error& problem) {
    throw Error(Failure::write, fmt::format("run.dir = \"{}\": {}; give a folder that this user can make or write",
                                            deck.run.dir, problem.what()));
  }
}

/// What the run's first save takes: a checkpoint, or the weights file at its end.
std::int64_t bytes_of_save(const io::Deck& deck, std::int64_t vocab) {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  const auto comm = dist::make_planned_communicator("self", 0, 1, ledger);
  train::Settings settings = train::settings_of(deck, 1, vocab, 0);
  settings.staged = false;
  train::Assembly assembly(settings, *comm, ledger);
  io::CheckpointContents contents;
  contents.groups.resize(deck.checkpoint.every > 0 ? 1 + assembly.parts().optimizer.states().size() : 1);
  return io::checkpoint_bytes(assembly.network().parameters(), contents);
}

/// Returns a warning where checkpoint.on_error = "continue". On this process alone.
std::string require_disk(const io::Deck& deck, std::int64_t vocab) {
  const std::int64_t needed = bytes_of_save(deck, vocab);
  const std::int64_t free = io::free_disk_bytes(deck.run.dir);
  if (free >= needed) return "";
  const bool saves = deck.checkpoint.every > 0;
  const std::string text =
      fmt::format("run.dir = \"{}\": {} {}; make room, or give a folder on a larger file system", deck.run.dir,
                  saves ? "a checkpoint" : "weights.h5, written at the end,", io::space_text(needed, free));
  if (saves && deck.checkpoint.on_error == "continue") return text;
  throw Error(Failure::write, text);
}

}  // namespace

void require_one_world(const dist::Environment& environment) {
  const std::string others = environment.size() > 1 ? "" : dist::launcher_world_size(environment_variable);
  if (others.empty()) return;
  const std::string name = others.substr(0, others.find(' '));
  throw Error(Failure::deck,
              fmt::format("{}, but MPI sees this process alone: it was built for another MPI than the launcher's; use "
                          "that MPI's mpiexec, or srun --mpi=TYPE (srun --mpi=list); for a job of one process unset {}",
                          others, name),
              Error::Seen::by_all_ranks);
}

void require_same_program(dist::Communicator& comm) {
  if (comm.size() == 1) return;
  constexpr std::int64_t kMost = std::int64_t{8} << 30;
  const std::string mine =
      dist::agreed(comm, [&] { return io::xxh3_128(io::read_whole_file("/proc/self/exe", kMost)); });
  require_rank_0s(comm, mine, [&](const std::string& first) {
    return fmt::format("{} run different programs (XXH3-128 {}... and {}...): start the same build on all nodes",
                       ranks_0_and_mine(comm), first.substr(0, 8), mine.substr(0, 8));
  });
}

void require_same_deck(const io::Deck& deck, dist::Communicator& comm) {
  io::Deck here = deck;
  here.run.device = device_of_this_program();  // auto may have come out differently on another node
  const std::string mine = io::fingerprint(here);
  require_rank_0s(comm, mine, [&](const std::string& first) {
    return fmt::format("{} disagree on {}: give every rank the same deck and overrides", ranks_0_and_mine(comm),
                       io::first_difference(first, mine));
  });
}

void require_same_tokenizer(const io::Tokenizer& tokenizer, dist::Communicator& comm) {
  const std::string mine = comm.size() == 1 ? "" : train::identity_of(&tokenizer);
  require_rank_0s(comm, mine, [&](const std::string& first) {
    return fmt::format("{} read different tokenizers, {} and {}: give every rank the same file", ranks_0_and_mine(comm),
                       first, mine);
  });
}

std::vector<std::string> check_before_data(Session& session, std::int64_t vocab) {
  dist::Communicator& comm = session.control();
  const io::Deck& deck = session.deck();
  dist::agreed(comm, [&] {
    if (comm.rank() == 0) require_writable_places(deck);
  });
  const std::string backend = session.backend();
  const auto plan = dist::agreed(comm, [&] {
    train::Settings settings = train::settings_of(deck, comm.size(), vocab, 0);
    settings.staged = settings.staged && can_save_beside(session.environment());
    return plan::memory_plan(settings, backend, comm.size());
  });
  require_room(plan, session, vocab);
  std::vector<std::string> notes;
  const std::string full =
      dist::agreed(comm, [&] { return comm.rank() == 0 ? require_disk(deck, vocab) : std::string(); });
  if (!full.empty()) notes.push_back("warning      " + full);
  const int tasks = comm.size() == 1 ? dist::unused_slurm_tasks(environment_variable) : 0;
  if (tasks > 0) {
    notes.push_back(
        fmt::format("note         SLURM_NTASKS = {0}, but this process runs alone; start it with srun or "
                    "mpiexec -n {0} to use them",
                    tasks));
  }
  const auto crowded = dist::gather_text(comm, session.runtime().crowding());
  const auto first =
      std::find_if(crowded.begin(), crowded.end(), [](const std::string& text) { return !text.empty(); });
  if (first != crowded.end()) notes.push_back(fmt::format("note         rank {}: {}", first - crowded.begin(), *first));
  return notes;
}

}  // namespace kozero::commands
