// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp: a run's state in and out of a checkpoint, under any placement and rank count.
//   parameters, then the optimizer's states by name ("optimizer/exp_avg"), each a group of tensors
// Written: every rank's own slices, of a replicated state too. Read: whatever the rank holds, whole units where its
// state is replicated. So nothing in the file tells who wrote it.
#pragma once
#include <string>
#include <vector>

#include <kozero/io/checkpoint.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/train/staging.hpp>
#include <kozero/train/trainer.hpp>

namespace kozero::train {

/// What this rank writes: its own slices of a replicated state too, so that every element has one writer.
std::vector<StateGroup> owned_state(const Parts& parts);

/// A tied embedding is the head's matrix too.
io::Ties ties_of(const model::Network& network);

/// What a checkpoint of the present state holds. `slices` keep the values on the host; on a host build they are the
/// state itself.
io::CheckpointContents contents_of(const Parts& parts, const io::CheckpointRecord& record,
                                   const std::map<std::string, std::string>& texts, std::vector<HostSlices>& slices);

/// Returns the bytes of the state's file. Collective. Throws Error(write), seen by all ranks.
std::int64_t save_checkpoint(const std::string& folder, const Parts& parts, const io::CheckpointRecord& record,
                             const std::map<std::string, std::string>& texts = {});

/// Fills weights and optimizer state from a checkpoint's state file or a weights file and publishes the weights.
/// Returns the optimizer states that the file lacks; where it lacks any, none is read and all stay as they are.
/// Collective; `control` carries the agreements, since reading may take long. Throws Error(input), seen by all ranks.
std::vector<std::string> load_state(const std::string& file, const Parts& parts, dist::Communicator& control);

/// "bpe:300 <hash of the tokens' bytes>", equal for tokenizers with the same tokens in the same order; "none".
std::string identity_of(const io::Tokenizer* tokenizer);

/// What makes a run unable to go on from a checkpoint: one text a difference, naming the key or the part of the model
/// with both values.
std::vector<std::string> disagreements(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine);

}  // namespace kozero::train
