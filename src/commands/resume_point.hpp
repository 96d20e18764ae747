// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// resume_point.hpp: where a run goes on from, by checkpoint.resume.
//   none   from the beginning, in a new folder
//   auto   from the newest complete checkpoint in run.dir, in that folder; where it holds none, from the beginning;
//          where all it holds are broken, refused
//   PATH   from a checkpoint, a run's newest, or a weights file; in its folder where that is run.dir, else in a new one
#pragma once
#include <string>
#include <vector>

#include <kozero/io/checkpoint.hpp>
#include <kozero/io/deck.hpp>

namespace kozero::commands {

struct ResumePoint {
  std::string folder;               ///< the run's folder to continue; "": a new one
  std::string source;               ///< the checkpoint or weights file; "": from the beginning
  std::string state_file;           ///< in it
  io::CheckpointRecord record;      ///< of a weights file: what it says, otherwise this run's
  std::vector<std::string> skipped; ///< broken checkpoints, by name with the reason
};

/// `mine` is this run's record, before its first step. Rank 0 looks for all. Collective. Throws Error, seen by all
/// ranks: where a named checkpoint or every checkpoint is broken, and where the deck disagrees with it, naming each
/// difference.
ResumePoint find_resume_point(const io::Deck& deck, const io::CheckpointRecord& mine, dist::Communicator& comm);

/// Both paths are there and name one folder, links followed.
bool same_folder(const std::string& a, const std::string& b);

}  // namespace kozero::commands
