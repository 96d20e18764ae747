// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <kozero/dist/agreed.hpp>
#include <kozero/dist/control_communicator.hpp>
#include <kozero/dist/wait_clock.hpp>
#include <kozero/io/checkpoint_folders.hpp>
#include <kozero/train/checkpoint_saver.hpp>
#include <kozero/train/runtime.hpp>

namespace kozero::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};  // the longest interval between two looks of a wait

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

CheckpointSaver::CheckpointSaver(Parts parts, Staging* staging, std::unique_ptr<dist::Communicator> comm)
    : parts_(parts), staging_(staging), comm_(std::move(comm)) {}

void CheckpointSaver::begin(const SaveOrder& order) {
  require(!under_way(), "CheckpointSaver: a save is under way");
  const auto start = Clock::now();
  step_ = order.record.step;
  if (staging_ == nullptr) {
    std::vector<HostSlices> slices;
    SaveReport report = write(order, contents_of(parts_, order.record, order.texts, slices));
    report.seconds = report.stall_s = seconds_since(start);
    std::promise<SaveReport> done;
    done.set_value(std::move(report));
    report_ = done.get_future();
    return;
  }
  staging_->capture();
  io::CheckpointContents contents{order.record, staging_->groups(), order.texts, ties_of(parts_.network)};
  const double stall_s = seconds_since(start);
  report_ = std::async(std::launch::async, [this, order, contents = std::move(contents), start, stall_s] {
    run_on_any_cpu();
    SaveReport report = write(order, contents);
    report.seconds = seconds_since(start);
    report.stall_s = stall_s;
    return report;
  });
}

SaveReport CheckpointSaver::write(const SaveOrder& order, const io::CheckpointContents& contents) const {
  SaveReport report{.step = order.record.step, .folder = io::checkpoint_folder(order.run_folder, order.record.step)};
  try {
    report.bytes = io::write_checkpoint(*comm_, report.folder, parts_.network.parameters(), contents);
    dist::agreed(*comm_, [&] {
      if (comm_->rank() != 0) return;
      const auto best = order.keep_best ? io::best_checkpoint(order.run_folder) : std::nullopt;
      report.is_best = best && best->folder == report.folder;
      io::prune_checkpoints(order.run_folder, order.keep, best ? best->folder : "");
    });
  } catch (const Error& problem) {
    report.problem = problem;
  } catch (const std::exception& problem) {
    report.problem = Error(Failure::internal, problem.what());
  }
  return report;
}

std::optional<SaveReport> CheckpointSaver::ended(dist::Communicator& comm) {
  if (!under_way()) return std::nullopt;
  const bool busy = report_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  const bool writes = busy && !dist::is_waiting(dist::Role::saver);
  const auto all = comm.gather_control({busy ? 1.0 : 0.0, writes ? 1.0 : 0.0});
  bool any_busy = false;
  slow_ranks_.clear();
  for (std::size_t i = 0; i < all.size(); i += 2) {
    any_busy = any_busy || all[i] != 0.0;
    if (all[i + 1] != 0.0) slow_ranks_ += (slow_ranks_.empty() ? "rank " : ", rank ") + std::to_string(i / 2);
  }
  if (any_busy) return std::nullopt;
  return report_.get();
}

std::optional<SaveReport> CheckpointSaver::wait(dist::Communicator& comm, double longest_s) {
  if (!under_way()) return std::nullopt;
  dist::WaitClock clock;
  while (report_.wait_for(kLook) != std::future_status::ready && clock.look() < longest_s) {
    dist::require_live_ranks("a save", clock.look());
  }
  return ended(comm);
}

std::optional<SaveReport> CheckpointSaver::wait() {
  if (!under_way()) return std::nullopt;
  return report_.get();
}

}  // namespace kozero::train
