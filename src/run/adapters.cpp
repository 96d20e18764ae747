// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// adapters.cpp: completes a deck from a PEFT folder, reads its adapters, and merges a run's adapters with their base.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/model/model.hpp>
#include <kozero/run/adapters.hpp>
#include <kozero/train/adapter_base.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/deck/check.hpp"

namespace kozero::run {
namespace {

using huggingface::AdapterDescription;
using Kind = WeightsSource::Kind;

/// Rank 0's description of a PEFT folder, on all ranks.
AdapterDescription description_of(const std::string& folder, distributed::Communicator& comm) {
  const std::string text = distributed::from_first_rank(comm, [&] {
    const auto [lora, base, note] = huggingface::read_adapter(folder);
    return nlohmann::json{{"rank", lora.rank},
                          {"alpha", lora.alpha},
                          {"dropout", lora.dropout},
                          {"targets", lora.targets},
                          {"rslora", lora.rslora},
                          {"base", base},
                          {"note", note}}
        .dump();
  });
  const auto json = nlohmann::json::parse(text);
  return {{json["rank"], json["alpha"], json["dropout"], json["targets"], json["rslora"]}, json["base"], json["note"]};
}

/// The double that a deck has for this float: the shortest decimal that rounds to it.
double as_key(float value) { return std::stod(fmt::format("{}", value)); }

/// Sets a key that the deck leaves out; throws if a given one is another, unless it `may_differ`.
template <class T>
void take(io::Deck& deck, const std::string& name, T& value, const T& theirs, bool may_differ = false) {
  const std::string key = "model.lora." + name;
  if (!deck.is_set(key)) {
    value = theirs;
    deck.origins[key] = "model.lora.init";
  } else if (value != theirs && !may_differ) {
    io::refuse_value(
        deck, key,
        fmt::format("the adapters of {} have {}; left out, it is read from there", deck.model.lora.init, theirs));
  }
}

void complete(io::Deck& deck, const model::Lora& theirs) {
  io::LoraKeys& keys = deck.model.lora;
  take(deck, "rank", keys.rank, theirs.rank);
  take(deck, "alpha", keys.alpha, as_key(theirs.alpha));
  take(deck, "rslora", keys.rslora, theirs.rslora);
  take(deck, "dropout", keys.dropout, as_key(theirs.dropout), /*may_differ=*/true);
  // Other names of the same modules are accepted: AdapterWeights compares the tensors.
  if (!deck.is_set("model.lora.targets")) {
    keys.targets = theirs.targets;
    deck.origins["model.lora.targets"] = "model.lora.init";
  }
}

/// The base's tensors, on one process.
huggingface::TensorReader base_tensors(const io::Deck& deck, const model::Config& config, const ParameterTable& table,
                                       distributed::Communicator& comm) {
  if (deck.model.init == train::kRandom) {
    throw Error(Failure::deck,
                "the adapters' base is random (model.init = \"random\"), so that nothing is there to merge with; "
                "accepted is a run with model.init = PATH");
  }
  const WeightsSource base = find_weights(deck.model.init, comm);
  require_same_network(base, config, "");
  if (base.kind == Kind::hugging_face) return huggingface::folder_tensors(base.path, config, table);
  return huggingface::file_tensors(io::verify(comm, base.path).state_file(), table);
}

}  // namespace

io::Deck with_initial_adapters(io::Deck deck, distributed::Communicator& comm) {
  if (deck.model.lora.init == kNoAdapters) return deck;
  const AdapterDescription theirs = description_of(deck.model.lora.init, comm);
  distributed::agreed(comm, [&] { complete(deck, theirs.lora); });
  if (!theirs.note.empty()) deck.notes.push_back(theirs.note);
  return deck;
}

void require_fitting_adapters(const io::Deck& deck, distributed::Communicator& comm) {
  if (deck.model.lora.init == kNoAdapters) return;
  distributed::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    const model::Config config = train::model_config(deck, 0);
    const auto network = model::make_model<float>(config);
    const huggingface::AdapterWeights fits(deck.model.lora.init, config, network->parameters());
  });
}

io::Deck with_adapters_of(const std::string& folder, const WeightsSource& base, io::Deck deck,
                          distributed::Communicator& comm) {
  if (!base.base.empty()) {
    throw Error(Failure::deck,
                "--adapter: " + base.path +
                    " has adapters of its own; accepted is a base without, such as one merged "
                    "from them by `kozero export --merge`",
                Error::Seen::by_all_ranks);
  }
  deck.model.init = base.path;
  deck.model.lora = {};
  deck.model.lora.init = folder;
  std::erase_if(deck.origins, [](const auto& each) { return each.first.starts_with("model.lora."); });
  return with_initial_adapters(std::move(deck), comm);
}

std::string base_of_initial_adapters(const io::Deck& deck, distributed::Communicator& comm) {
  return deck.model.lora.init == kNoAdapters ? "" : description_of(deck.model.lora.init, comm).base;
}

void load_initial_adapters(const io::Deck& deck, train::Evaluator& evaluator, distributed::Communicator& comm) {
  const std::string& path = deck.model.lora.init;
  const auto adapters = distributed::agreed(comm, [&] {
    return std::make_unique<huggingface::AdapterWeights>(path, evaluator.config(), evaluator.parameters());
  });
  const std::string mine = distributed::agreed(comm, [&] { return adapters->fingerprint(); });
  const bool is_same = comm.broadcast_control(mine) == mine;
  distributed::agreed(comm, [&] {
    if (!is_same) io::refuse_other_bytes(comm, path);
    train::HostRanges shards(train::shards_of(evaluator));
    for (const auto& shard : shards.named<float>()) adapters->read(shard);
    shards.store();
    train::fill_without_master(
        evaluator, [&](const io::RangeValues<float>& piece) { adapters->read(piece); }, train::Pieces::own);
    adapters->require_unchanged();
  });
  evaluator.publish();
}

huggingface::MergedWeights merged_weights(const WeightsSource& source, const std::string& state_file,
                                          const io::Deck& deck, distributed::Communicator& comm) {
  const auto config = train::model_config(deck, 0);
  const auto plain = without_adapters(config);
  // The readers refer to the tables.
  const auto with = std::make_shared<const ParameterTable>(model::make_model<float>(config)->parameters());
  const auto without = std::make_shared<const ParameterTable>(model::make_model<float>(plain)->parameters());
  io::WeightsDescription description = io::read_weights(*distributed::make_self_communicator(), state_file, *with, {});
  const auto base = base_tensors(deck, plain, *without, comm);
  const std::string identity = huggingface::base_identity(*with, base);
  if (identity != source.base) {
    throw Error(Failure::deck, fmt::format("model.init = \"{}\": its weights are not those below the adapters of {} "
                                           "(hash {}, not {}); accepted: the model with which their training began",
                                           deck.model.init, source.path, identity, source.base));
  }
  description.model = train::model_json(plain);
  description.base.clear();
  const auto merged =
      huggingface::merged_tensors(config, *with, base, huggingface::file_tensors(state_file, *with), source.path);
  return {[with, without, merged](std::size_t index, std::int64_t first, std::int64_t count, float* to) {
            merged(index, first, count, to);
          },
          description};
}

InspectedAdapters inspect_adapters(const std::string& folder, const std::string& base,
                                   distributed::Communicator& comm) {
  InspectedAdapters found{find_weights(base, comm), description_of(folder, comm), {}};
  distributed::agreed(comm, [&] {
    found.config = shape_of(found.base);
    if (found.config.lora.rank > 0) {
      throw Error(Failure::deck, base + ": it has adapters of its own; accepted is a base without");
    }
    found.config.lora = found.description.lora;
    const auto network = model::make_model<float>(found.config);
    const huggingface::AdapterWeights fits(folder, found.config, network->parameters());
  });
  return found;
}

}  // namespace kozero::run
