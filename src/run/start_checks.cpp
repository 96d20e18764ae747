// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// start_checks.cpp: checks of the ranks, of run.dir, of memory and disk space, and notes on the settings.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include <kozero/core/device.hpp>
#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/core/host.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/plan/memory_plan.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/engine_on_ranks.hpp>
#include <kozero/run/start_checks.hpp>
#include <kozero/train/engine.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/posix/file.hpp"
#include "io/posix/system_resources.hpp"
#include "io/run/run_folder.hpp"
#include "kernels/matmul/matmul.hpp"
#include "src/run/rank_placement.hpp"
#include "src/run/saving.hpp"

namespace kozero::run {
namespace {

namespace fs = std::filesystem;

const char* environment_variable(const char* name) { return std::getenv(name); }

/// "ranks 0 and 3", with " (hosts a and b)" if these differ.
std::string ranks_0_and_mine(const distributed::Communicator& comm, const std::string& first_host) {
  const std::string ranks = "ranks 0 and " + std::to_string(comm.rank());
  const std::string host = host_name();
  return host == first_host ? ranks : fmt::format("{} (hosts {} and {})", ranks, first_host, host);
}

/// Throws `refusal`(rank 0's text, ranks_0_and_mine()) if this rank's text differs from rank 0's.
void require_rank_0s(distributed::Communicator& comm, const std::string& mine,
                     const std::function<std::string(const std::string& first, const std::string& ranks)>& refusal) {
  const std::string first = comm.broadcast_control(mine);
  const std::string first_host = comm.broadcast_control(host_name());
  distributed::agreed(comm, [&] {
    if (first != mine) throw Error(Failure::deck, refusal(first, ranks_0_and_mine(comm, first_host)));
  });
}

/// Throws Error(write) unless the run's folder, or the folder of a new run, can be written.
void require_writable_paths(const io::Deck& deck) {
  const std::string dir = io::without_trailing_slash(deck.run.dir);
  io::require_no_dangling_link(dir);
  try {
    if (deck.checkpoint.resume == "none" || !io::is_folder(dir)) {
      io::require_writable(fs::absolute(dir).parent_path().string());
    } else {
      io::require_writable(dir);
    }
  } catch (const Error& problem) {
    throw Error(Failure::write, fmt::format("run.dir = \"{}\": {}; give a folder that this user can make or write",
                                            deck.run.dir, problem.what()));
  }
}

/// Bytes of the run's first save: a checkpoint, or the weights file at its end.
std::int64_t bytes_of_save(const io::Deck& deck, std::int64_t vocab) {
  const plan::PlannedEngine engine(train::settings_of(deck, 1, vocab, 0));
  io::CheckpointContents contents;
  contents.groups.resize(deck.checkpoint.every > 0 ? 1 + engine->optimizer_states().size() : 1);
  return io::checkpoint_bytes(engine->parameters(), contents);
}

/// Returns a warning if checkpoint.on_error = "continue", else throws. Checks only this process.
std::string require_disk(const io::Deck& deck, std::int64_t vocab) {
  const std::int64_t needed = bytes_of_save(deck, vocab);
  const std::int64_t free = io::free_disk_bytes(deck.run.dir);
  if (free >= needed) return "";
  const bool saves = deck.checkpoint.every > 0;
  const std::string text = fmt::format(
      "run.dir = \"{}\": {} {}; make room, or give a folder on a larger file system", deck.run.dir,
      saves ? "a checkpoint" : io::kWeightsFile + std::string(", written at the end,"), io::space_text(needed, free));
  if (saves && deck.checkpoint.on_error == "continue") return text;
  throw Error(Failure::write, text);
}

/// What the order of additions and the processor cost, or give up: lines for the log.
std::vector<std::string> notes_on_sums(const train::Settings& settings, const io::Deck& deck, int ranks) {
  std::vector<std::string> notes;
  if (kernels::lacks_fused_multiply_add()) {
    notes.emplace_back(
        "note         this processor has no fused multiply-add: its bits differ from those of other processors");
  }
  const io::WordOrNumber& group = deck.zero.shard_group;
  if (group == "node" && ranks > 1 && settings.ranks_per_group == 1) {
    notes.emplace_back("note         zero.shard_group = \"node\": a node has one rank, which holds all of the state");
  } else if (group.is_number() && group.number() > ranks) {
    notes.push_back(fmt::format("note         zero.shard_group = {}: these are {} rank{}, one group", group.number(),
                                ranks, ranks == 1 ? "" : "s"));
  }
  if (deck.zero.accumulation == "local" && ranks > 1) {
    notes.emplace_back(
        "note         zero.accumulation = \"local\": the bits are those of this number of ranks alone; "
        "ordered gives the same on any");
  }
  return notes;
}

/// "" if all ranks have work in each micro-step of a step of so many sequences.
std::string note_on_idle_ranks(std::int64_t sequences, std::int64_t micro_batch, int ranks) {
  const auto granules = [&](std::int64_t size) { return data::Granules({0, sequences}, size).count(); };
  const std::int64_t rest = granules(micro_batch) % ranks;
  if (rest == 0) return "";
  std::int64_t even = 0;  // the nearest that gives all ranks work
  for (std::int64_t off = 1; even == 0 && off < sequences; ++off) {
    for (const std::int64_t other : {micro_batch - off, micro_batch + off}) {
      if (even == 0 && other > 0 && other <= sequences && granules(other) % ranks == 0) even = other;
    }
  }
  return fmt::format(
      "note         {} of {} ranks {} no work in the last micro-step of each step: {} sequences make {} granules of "
      "train.micro_batch = {}; {}",
      ranks - rest, ranks, ranks - rest == 1 ? "has" : "have", sequences, granules(micro_batch), micro_batch,
      even > 0 ? fmt::format("train.micro_batch={} gives all ranks work", even)
               : "the batch has too few sequences for all ranks");
}

/// "train.global_batch = 500", or the keys that it is derived from.
std::string batch_text(const io::Deck& deck, std::int64_t global_batch) {
  const std::string key = deck.train.accumulate > 0            ? "train.micro_batch x train.accumulate x ranks"
                          : deck.train.batch_scaling != "none" ? "train.global_batch, scaled by train.batch_scaling,"
                                                               : "train.global_batch";
  return fmt::format("{} = {}", key, global_batch);
}

/// Which steps have fewer sequences than the deck's batch, among the run's; "" if none has.
std::string note_on_small_steps(const train::Settings& settings, const io::Deck& deck, const data::Sampler& sampler,
                                int ranks) {
  const std::int64_t batch = settings.batch.global_batch, whole = sampler.sequences_of_step();
  if (whole < batch) {
    return fmt::format(
        "note         {}: the data have {} sequences of {} tokens, so each step has these {} and is an epoch; accepted "
        "without this note: at most {}, more data, or a source with weight, which goes on from pass to pass",
        batch_text(deck, batch), whole, settings.step.seq, whole, whole);
  }
  const std::int64_t last = sampler.sequences_of_last_step(), steps = sampler.steps_per_epoch();
  if (last == batch || settings.steps - settings.samples.steps_before < steps) return "";
  const std::int64_t granules = data::Granules({0, last}, settings.batch.micro_batch).count();
  return fmt::format(
      "note         of the {} steps of an epoch of {} sequences the last one has {} in place of {}, at the same "
      "rate{}; a "
      "source with weight has no smaller steps",
      steps, sampler.num_samples(), last, batch,
      granules < ranks ? fmt::format(", on {} of {} ranks", granules, ranks) : "");
}

/// A lesson whose steps have fewer tokens than the deck gives it; "" for others.
std::string note_on_lesson(const train::Settings& settings, const io::Deck& deck, const data::Sampler& sampler) {
  if (deck.whole == nullptr || sampler.mixture() != nullptr) return "";
  const std::int64_t given = deck.run.curriculum[deck.lesson].tokens;
  const auto sequences =
      std::llround(sampler.epochs_after(settings.steps) * static_cast<double>(sampler.num_samples()));
  const std::int64_t tokens = sequences * settings.step.seq;
  if (given <= tokens) return "";
  return fmt::format(
      "note         curriculum: lesson {} was given {} tokens and has {} in its {} steps, of which some have fewer "
      "sequences than {}",
      deck.lesson + 1, given, tokens, settings.steps - settings.samples.steps_before,
      batch_text(deck, settings.batch.global_batch));
}

/// Keys that count steps up to more than the run has; "" if none does.
std::string note_on_rare_events(const train::Settings& settings, const io::Deck& deck) {
  if (deck.whole != nullptr || deck.data.grow) return "";  // each part is saved and validated at its end
  std::string text;
  for (const auto& [key, every] :
       {std::pair("checkpoint.every", deck.checkpoint.every), std::pair("train.eval_every", deck.train.eval_every)}) {
    if (!deck.is_set(key) || every <= settings.steps) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, every);
  }
  if (text.empty()) return "";
  return fmt::format("note         {}: more than the run's {} steps, so it happens only at the end", text,
                     settings.steps);
}

/// The text of the lock's file in a run's folder; "" if this rank does not see the file.
std::string lock_in(const std::string& folder) {
  constexpr std::int64_t kMostBytes = 4096;
  try {
    return io::read_whole_file(folder + "/" + io::kLockFile, kMostBytes);
  } catch (const Error&) {
    return "";
  }
}

/// Whether this rank sees that text in the folder within some seconds, since a file server may show a new file late.
bool sees_lock(const std::string& folder, const std::string& text) {
  constexpr int kLooks = 50;
  constexpr std::chrono::milliseconds kPause{100};
  for (int look = 1; lock_in(folder) != text; ++look) {
    if (look == kLooks) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

void require_one_world(const distributed::Environment& environment) {
  const std::string others = environment.size() > 1 ? "" : distributed::launcher_world_size(environment_variable);
  if (others.empty()) return;
  const std::string name = others.substr(0, others.find(' '));
  throw Error(Failure::deck,
              fmt::format("{}, but MPI sees this process alone: it was built for another MPI than the launcher's; use "
                          "that MPI's mpiexec, or srun --mpi=TYPE (srun --mpi=list); for a job of one process unset {}",
                          others, name),
              Error::Seen::by_all_ranks);
}

void require_same_program(distributed::Communicator& comm) {
  if (comm.size() == 1) return;
  constexpr std::int64_t kMost = std::int64_t{8} << 30;
  const std::string mine =
      distributed::agreed(comm, [&] { return io::xxh3_128(io::read_whole_file("/proc/self/exe", kMost)); });
  require_rank_0s(comm, mine, [&](const std::string& first, const std::string& ranks) {
    return fmt::format("{} run different programs (XXH3-128 {}... and {}...): start the same build on all nodes", ranks,
                       first.substr(0, 8), mine.substr(0, 8));
  });
}

void require_same_deck(const io::Deck& deck, distributed::Communicator& comm) {
  io::Deck here = deck;
  here.run.device = device_of_this_program();  // auto may select another device on another node
  const std::string mine = io::fingerprint(here);
  require_rank_0s(comm, mine, [&](const std::string& first, const std::string& ranks) {
    return fmt::format("{} disagree on {}: give every rank the same deck and overrides", ranks,
                       io::first_difference(first, mine));
  });
}

void require_same_tokenizer(const io::Tokenizer& tokenizer, distributed::Communicator& comm) {
  const std::string mine = comm.size() == 1 ? "" : train::identity_of(&tokenizer);
  require_rank_0s(comm, mine, [&](const std::string& first, const std::string& ranks) {
    return fmt::format("{} read different tokenizers, {} and {}: give every rank the same file", ranks, first, mine);
  });
}

void require_one_folder(const std::string& folder, distributed::Communicator& comm) {
  if (comm.size() == 1) return;
  const std::string lock = comm.broadcast_control(comm.rank() == 0 ? lock_in(folder) : "");
  const std::string first_host = comm.broadcast_control(host_name());
  distributed::agreed(comm, [&] {
    if (comm.rank() == 0 || sees_lock(folder, lock)) return;
    throw Error(Failure::write,
                fmt::format("run.dir = \"{}\": rank {} on host {} does not see the folder of rank 0 on host {}; give a "
                            "folder on a file system that all hosts share, under the same path",
                            folder, comm.rank(), host_name(), first_host));
  });
}

std::vector<std::string> check_before_data(Session& session, std::int64_t vocab) {
  distributed::Communicator& comm = session.control();
  const io::Deck& deck = session.deck();
  distributed::agreed(comm, [&] {
    if (comm.rank() == 0) require_writable_paths(deck);
  });
  auto settings = distributed::agreed(comm, [&] { return train::settings_of(deck, comm.size(), vocab, 0); });
  settings.staged = settings.staged && can_save_beside(session.environment());
  const plan::MemoryPlan plan = require_room(session, settings, vocab);
  if (const std::int64_t files = plan.of(Memory::disk); files > 0) {
    const std::string& folder = settings.offload.folder;
    distributed::agreed(comm, [&] {
      const bool saves_there = io::nearest_folder(deck.run.dir) == io::nearest_folder(folder);
      const int ranks_here = std::clamp(session.environment().local_ranks(), 1, comm.size());
      DiskMemory::require(folder, files * ranks_here + (saves_there ? bytes_of_save(deck, vocab) : 0));
    });
  }
  std::vector<std::string> notes = notes_on_sums(settings, deck, comm.size());
  const std::string full =
      distributed::agreed(comm, [&] { return comm.rank() == 0 ? require_disk(deck, vocab) : std::string(); });
  if (!full.empty()) notes.push_back("warning      " + full);
  const int tasks = comm.size() == 1 ? distributed::unused_slurm_tasks(environment_variable) : 0;
  if (tasks > 0) {
    notes.push_back(
        fmt::format("note         SLURM_NTASKS = {0}, but this process runs alone; start it with srun or "
                    "mpiexec -n {0} to use them",
                    tasks));
  }
  for (const auto& note : notes_on_shared_cores(session.placements())) notes.push_back("note         " + note);
  const std::string messages = note_on_messages(session.placements(), environment_variable("UCX_TLS"));
  if (!messages.empty()) notes.push_back("note         " + messages);
  return notes;
}

std::vector<std::string> notes_on_steps(const train::Settings& settings, const io::Deck& deck,
                                        const data::Sampler& sampler, const distributed::Environment& environment) {
  const int ranks = environment.size();
  const std::int64_t sequences = sampler.sequences_of_step();
  const std::int64_t micro_batch = std::min(settings.batch.micro_batch, sequences);
  const int micro_steps = data::Granules({0, sequences}, micro_batch).micro_steps(ranks);
  std::vector<std::string> notes = {note_on_idle_ranks(sequences, micro_batch, ranks)};
  if (settings.zero.accumulation == zero::Accumulation::ordered && micro_steps > 1 &&
      environment.local_ranks() != ranks && deck.zero.stage <= 1) {
    notes.push_back(fmt::format(
        "note         {} micro-steps per step, added over the nodes each: {} times the parameters' bytes travel; with "
        "zero.accumulation = \"local\" it would be 2, and the bits those of this number of ranks alone",
        micro_steps, micro_steps + 1));
  }
  notes.push_back(note_on_small_steps(settings, deck, sampler, ranks));
  notes.push_back(note_on_lesson(settings, deck, sampler));
  notes.push_back(note_on_rare_events(settings, deck));
  std::erase(notes, "");
  return notes;
}

}  // namespace kozero::run
