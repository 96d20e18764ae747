// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// weights_source.cpp: resolves a path to weights, reads them into the ranks' shards, and builds the model.
#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <variant>

#include <kozero/core/disk_memory.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/huggingface/import.hpp>
#include <kozero/model/model.hpp>
#include <kozero/run/adapters.hpp>
#include <kozero/run/device_choice.hpp>
#include <kozero/run/weights_source.hpp>
#include <kozero/train/adapter_base.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/check.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/file.hpp"
#include "io/posix/named_file.hpp"
#include "io/run/run_folder.hpp"
#include "io/text/tokenizer.hpp"

namespace kozero::run {
namespace {

namespace fs = std::filesystem;
using Kind = WeightsSource::Kind;

/// Resolves the path on this process.
WeightsSource found(const std::string& path, train::Which which) {
  const train::NamedPath named = train::named_path(path);
  if (which == train::Which::latest && named.kind == train::NamedPath::Kind::hugging_face) {
    const std::string& folder = named.path;
    std::vector<std::string> notes;
    const auto config = huggingface::read_folder_config(folder, &notes);
    const auto tokenizer = huggingface::tokenizer_of(folder, config.vocab);
    return {.kind = Kind::hugging_face,
            .path = folder,
            .model = train::model_json(config),
            .base = "",
            .deck = "",
            .deck_text = "",
            .tokenizer = tokenizer.path,
            .no_tokenizer = tokenizer.reason,
            .note = fmt::format("{}", fmt::join(notes, "; "))};
  }
  const train::RunFiles files = train::find_run(path, which);
  const bool in_checkpoint = fs::path(files.weights).filename() == io::kStateFile;
  WeightsSource source{.kind = in_checkpoint ? Kind::checkpoint : Kind::weights_file,
                       .path = in_checkpoint ? files.folder : files.weights,
                       .model = "",
                       .base = "",
                       .deck = files.deck,
                       .deck_text = files.deck.empty() ? "" : io::read_whole_file(files.deck, io::kMaxDeckBytes),
                       .tokenizer = files.tokenizer,
                       .no_tokenizer = files.tokenizer.empty() ? files.weights + " has no tokenizer beside it" : "",
                       .note = ""};
  const auto record = io::read_saved_state(source.path).manifest.record;
  source.model = record.model;
  source.base = record.base;
  return source;
}

/// Throws Error(input), seen by all ranks, if the weights file is another than when find_weights() found it. A
/// checkpoint is compared with its manifest, and never changes.
void require_same_file(const WeightsSource& source, distributed::Communicator& comm) {
  distributed::agreed(comm, [&] {
    if (comm.rank() != 0 || source.kind != Kind::weights_file) return;
    io::require_same_stamp(source.path, io::FileDescriptor(source.path, io::FileDescriptor::Use::read).stamp());
  });
}

bool names_device(const std::string& override) {
  return override.starts_with("run.device=") || override.starts_with("run.products=") ||
         override.starts_with("run.tuning=");
}

/// Refuses a base for weights that have none.
void require_base(const io::Deck& deck, const std::vector<std::string>& overrides) {
  const auto names_base = [](const std::string& override) { return override.starts_with("model.init="); };
  if (deck.model.lora.rank > 0 || std::ranges::none_of(overrides, names_base)) return;
  throw Error(Failure::deck, "model.init: these weights are whole; accepted: only with the adapters of a run");
}

bool names_precision(const std::string& override) { return override.starts_with("train.precision="); }

/// The folder's own name, also for "models/x/".
std::string name_of_folder(const std::string& path) { return fs::weakly_canonical(fs::path(path)).filename().string(); }

/// Throws if ranks see different files: the folder was replaced meanwhile, or differs between nodes.
void require_same_bytes(const huggingface::FolderWeights& folder, const WeightsSource& source,
                        distributed::Communicator& comm) {
  const std::string mine = distributed::agreed(comm, [&] { return folder.fingerprint(); });
  const bool same = comm.broadcast_control(mine) == mine;
  distributed::agreed(comm, [&] {
    if (!same) io::refuse_other_bytes(comm, source.path);
  });
}

void load_folder(const WeightsSource& source, train::Evaluator& evaluator, distributed::Communicator& comm) {
  const auto folder = open_folder(source, evaluator.config(), evaluator.parameters(), comm);
  distributed::agreed(comm, [&] {
    for (const auto& shard : train::shards_of(evaluator)) {
      train::HostRanges one({shard});
      folder->read(one.named<float>().front());
      one.store();
      release_pages(shard.values);
    }
    train::fill_without_master(
        evaluator, [&](const io::RangeValues<float>& piece) { folder->read(piece); }, train::Pieces::own);
    folder->require_unchanged();
  });
  evaluator.publish();
}

std::string named(const io::Deck& deck) { return "model.init = \"" + deck.model.init + "\""; }

/// Copies the keys of the model that `from` gives and `deck` leaves out. A preset in the deck sets all of them.
void fill_missing_keys(io::Deck& deck, io::Deck from, const std::string& origin) {
  if (deck.model.preset != "none") return;
  for (const auto& row : io::deck_schema()) {
    if (io::section_of(row.key) != "model" || deck.is_set(row.key) || !from.is_set(row.key)) continue;
    const io::DeckValue value = row.value_in(from);
    std::visit(
        [&](auto* into) {
          using Pointer = decltype(into);
          *into = *std::get<Pointer>(value);
        },
        row.value_in(deck));
    deck.origins[row.key] = origin;
  }
}

/// "model.dim is 128 and was 64; ..."; "" if the networks are equal.
std::string differences_of(const model::Config& was, const model::Config& is) {
  io::CheckpointRecord saved;
  saved.model = train::model_json(was);
  io::CheckpointRecord now;
  now.model = train::model_json(is);
  return fmt::format("{}", fmt::join(train::disagreements(saved, now), "; "));
}

WeightsSource find_initial_weights(const io::Deck& deck, distributed::Communicator& comm) {
  try {
    return find_weights(deck.model.init, comm);
  } catch (const Error& problem) {
    const auto seen = problem.seen_by_all_ranks() ? Error::Seen::by_all_ranks : Error::Seen::by_this_rank;
    throw Error(problem.failure(),
                std::string(problem.what()) + "; it is model.init; model.init=random needs no weights, as for a plan",
                seen);
  }
}

void refuse_disagreement(const io::Deck& deck, model::Config theirs) {
  if (theirs.lora.rank > 0) {
    throw Error(Failure::deck, named(deck) +
                                   ": it holds adapters, not whole weights; accepted: a model merged from them "
                                   "by `kozero export --merge`");
  }
  const model::Config mine = without_adapters(train::model_config(deck, 0));
  if (mine.rotary) theirs.seq = mine.seq;
  const std::string differences = differences_of(theirs, mine);
  if (differences.empty()) return;
  throw Error(Failure::deck, named(deck) + ": the deck disagrees with it: " + differences +
                                 "; keys that are left out are taken from there");
}

/// The number of ids of data.tokenizer; 0 if it depends on the text.
std::int64_t ids_of(const std::string& tokenizer) {
  if (tokenizer == "bpe" || tokenizer == io::kCharacters) return 0;
  if (const auto size = io::bpe_size(tokenizer)) return *size;
  return io::make_tokenizer(tokenizer)->vocab_size();
}

void choose_tokenizer(io::Deck& deck, const WeightsSource& source) {
  const bool reads_text = deck.data.has_text();
  if (!reads_text && deck.data.tokens.empty()) return;
  if (!deck.is_set("data.tokenizer")) {
    if (source.tokenizer.empty() && reads_text) {
      throw Error(Failure::deck, named(deck) + ": no tokenizer comes with it: " + source.no_tokenizer +
                                     ": give data.tokenizer, or data.tokens instead of data.text");
    }
    if (source.tokenizer.empty()) return;
    deck.data.tokenizer = source.tokenizer;
    deck.origins["data.tokenizer"] = "model.init";
  }
  const std::int64_t ids = ids_of(deck.data.tokenizer);
  if (deck.model.vocab == 0 || ids <= deck.model.vocab) return;
  throw Error(Failure::deck,
              fmt::format("data.tokenizer = \"{}\": its {} ids are more than the {} of {}; left out, the model's own "
                          "tokenizer is taken",
                          deck.data.tokenizer, ids, deck.model.vocab, named(deck)));
}

/// Fills the base of the evaluator's adapters with `source`, whose network is the evaluator's without them.
std::string load_base(const WeightsSource& source, const std::string& adapters, train::Evaluator& evaluator,
                      distributed::Communicator& comm) {
  const model::Config config = without_adapters(evaluator.config());
  require_same_network(source, config, adapters);
  const auto network = model::make_model<float>(config);  // its units have the same numbers and tensors
  const ParameterTable& table = network->parameters();
  train::AdapterBase base(evaluator);
  if (source.kind == Kind::hugging_face) {
    const auto folder = open_folder(source, config, table, comm);
    distributed::agreed(comm, [&] {
      base.fill([&](const io::RangeValues<float>& piece) { folder->read(piece); }, train::Pieces::own);
      folder->require_unchanged();
    });
  } else {
    require_same_file(source, comm);
    const std::string file = io::verify(comm, source.path).state_file();
    base.fill([&](const io::RangeValues<float>& piece) { io::read_weights(comm, file, table, {piece}); },
              train::Pieces::equal);
  }
  return base.publish(source.path);
}

}  // namespace

std::unique_ptr<huggingface::FolderWeights> open_folder(const WeightsSource& source, const model::Config& config,
                                                        const ParameterTable& table, distributed::Communicator& comm) {
  auto folder = distributed::agreed(
      comm, [&] { return std::make_unique<huggingface::FolderWeights>(source.path, config, table); });
  require_same_bytes(*folder, source, comm);
  return folder;
}

io::Deck on_any_ranks(io::Deck deck, const std::vector<std::string>& overrides) {
  const auto names_group = [](const std::string& override) { return override.starts_with("zero.shard_group="); };
  if (std::ranges::none_of(overrides, names_group)) deck.zero.shard_group = io::Deck().zero.shard_group;
  return deck;
}

WeightsSource find_weights(const std::string& path, distributed::Communicator& comm, train::Which which) {
  const std::string first = comm.broadcast_control(path);
  WeightsSource source = distributed::agreed(comm, [&] {
    if (path != first) {
      throw Error(Failure::deck, "ranks 0 and " + std::to_string(comm.rank()) + " were given other weights: " + first +
                                     " and " + path);
    }
    if (comm.rank() != 0) return WeightsSource();
    return train::find_beside_trainer(path, [&] { return found(path, which); });
  });
  source.kind = distributed::broadcast_value(comm, source.kind);
  for (std::string* text : {&source.path, &source.model, &source.base, &source.deck, &source.deck_text,
                            &source.tokenizer, &source.no_tokenizer, &source.note}) {
    *text = comm.broadcast_control(*text);
  }
  require_same_file(source, comm);
  return source;
}

model::Config without_adapters(model::Config config) {
  config.lora = {};
  return config;
}

model::Config shape_of(const WeightsSource& source) { return train::config_of(source.model, source.path); }

void require_same_network(const WeightsSource& base, model::Config config, const std::string& adapters) {
  const model::Config theirs = shape_of(base);
  if (config.rotary) config.seq = theirs.seq;
  std::string differences = theirs.lora.rank > 0 ? "it holds adapters" : differences_of(config, theirs);
  if (differences.empty()) return;
  const std::string of = adapters == kNoAdapters || adapters.empty() ? "" : " of " + adapters;
  throw Error(Failure::deck,
              "model.init = \"" + base.path + "\": another base than that of the adapters" + of + ": " + differences +
                  "; accepted: the model with which their training began",
              Error::Seen::by_all_ranks);
}

void require_tensors(const WeightsSource& source, const model::Config& config, const ParameterTable& table,
                     distributed::Communicator& comm) {
  if (source.kind != Kind::hugging_face) return;
  distributed::agreed(comm, [&] { huggingface::FolderWeights(source.path, config, table); });
}

io::Deck deck_of(const WeightsSource& source, const std::vector<std::string>& overrides) {
  if (!source.deck.empty()) {
    const io::Deck deck = on_any_ranks(io::parse_deck(source.deck_text, source.deck, overrides), overrides);
    const bool named = std::any_of(overrides.begin(), overrides.end(), names_device);
    return named ? deck : without_device(deck);
  }
  const std::string run_dir = "runs/" + name_of_folder(source.path);
  const io::Deck plain = huggingface::imported_deck(shape_of(source), run_dir, source.tokenizer);
  return io::parse_deck(io::resolved_text(plain), source.path, overrides);
}

const char* name_of(WeightsSource::Kind kind) {
  if (kind == Kind::hugging_face) return "Hugging Face folder";
  return kind == Kind::checkpoint ? "checkpoint" : "weights file";
}

void load(const std::string& path, WeightsSource& source, train::Evaluator& evaluator,
          distributed::Communicator& comm) {
  if (source.kind == Kind::hugging_face) return load_folder(source, evaluator, comm);
  train::read_newest(
      comm, path, [&] { return source.path; },
      [&] {
        require_same_file(source, comm);
        train::load_weights(io::verify(comm, source.path).state_file(), evaluator, comm);
      },
      [&] { source = find_weights(path, comm); });
}

TrainedModel::TrainedModel(const std::string& path, const std::vector<std::string>& overrides,
                           const distributed::Environment& environment, train::Use use, const std::string& adapter)
    : session_(environment,
               [&](distributed::Communicator& comm) {
                 source_ = find_weights(path, comm);
                 io::Deck deck = distributed::agreed(comm, [&] { return deck_of(source_, overrides); });
                 distributed::agreed(comm, [&] { require_base(deck, overrides); });
                 if (!source_.note.empty()) deck.notes.push_back(source_.note);
                 return adapter.empty() ? deck : with_adapters_of(adapter, source_, std::move(deck), comm);
               }),
      settings_(distributed::agreed(session_.control(),
                                    [&] {
                                      train::Settings settings =
                                          train::settings_of(session_.deck(), environment.size(), 0, 0);
                                      settings.use = use;
                                      if (std::ranges::none_of(overrides, names_precision)) {
                                        settings.precision = Precision::f32;
                                      }
                                      return settings;
                                    })),
      on_ranks_(session_, settings_, 0, [&] {
        const model::Config whole = without_adapters(settings_.model);
        require_tensors(source_, whole, model::make_model<float>(whole)->parameters(), session_.control());
      }) {
  fill_base(deck(), source_.base, source_.path, evaluator(), session_.control());
  if (adapter.empty()) {
    load(path, source_, evaluator(), session_.control());
  } else {
    load_initial_adapters(deck(), evaluator(), session_.control());
  }
}

void TrainedModel::accept_vocabulary(std::int64_t ids) const {
  if (ids <= settings_.model.vocab) return;
  throw Error(Failure::deck,
              "the tokenizer has " + std::to_string(ids) + " ids, more than the " +
                  std::to_string(settings_.model.vocab) + " of " + source_.path,
              Error::Seen::by_all_ranks);
}

io::Deck with_initial_model(io::Deck deck, distributed::Communicator& comm) {
  deck = with_initial_adapters(std::move(deck), comm);
  if (deck.model.init == train::kRandom) return deck;
  const WeightsSource source = find_initial_weights(deck, comm);
  if (!source.note.empty()) deck.notes.push_back(source.note);
  distributed::agreed(comm, [&] {
    const model::Config shape = shape_of(source);
    fill_missing_keys(deck, huggingface::imported_deck(shape, "", ""), "model.init");
    io::check_deck(deck);
    refuse_disagreement(deck, shape);
    choose_tokenizer(deck, source);
  });
  require_fitting_adapters(deck, comm);
  return deck;
}

std::string fill_base(const io::Deck& deck, const std::string& saved, const std::string& saved_in,
                      train::Evaluator& evaluator, distributed::Communicator& comm) {
  if (!evaluator.parameters().has_adapters()) return "";
  const auto found = [&] {
    try {
      return find_weights(deck.model.init, comm);
    } catch (const Error& problem) {
      throw Error(problem.failure(),
                  std::string(problem.what()) +
                      "; it is model.init, the base of the adapters: give its place now by "
                      "model.init=PATH",
                  Error::Seen::by_all_ranks);
    }
  };
  const bool is_random = deck.model.init == train::kRandom;
  const std::string& adapters = saved.empty() ? deck.model.lora.init : saved_in;
  const std::string base = is_random ? train::initialize_base(static_cast<std::uint64_t>(deck.run.seed), evaluator)
                                     : load_base(found(), adapters, evaluator, comm);
  const std::string known = saved.empty() ? base_of_initial_adapters(deck, comm) : saved;
  if (known.empty() || known == base) return base;
  throw Error(Failure::deck,
              named(deck) + ": its weights are not those below the adapters of " + adapters + " (hash " + base +
                  ", not " + known + "); accepted: the model with which their training began",
              Error::Seen::by_all_ranks);
}

std::string begin_weights(const io::Deck& deck, train::Evaluator& evaluator, distributed::Communicator& control) {
  const bool has_adapters = evaluator.parameters().has_adapters();
  if (deck.model.init == train::kRandom || has_adapters) {
    evaluator.initialize(static_cast<std::uint64_t>(deck.run.seed));
    const bool has_first = has_adapters && deck.model.lora.init != kNoAdapters;
    if (has_first) load_initial_adapters(deck, evaluator, control);
    if (has_first) return fmt::format("init         adapters of {} beside {}", deck.model.lora.init, named(deck));
    return has_adapters
               ? fmt::format("init         adapters of rank {} beside {}", evaluator.config().lora.rank, named(deck))
               : "";
  }
  WeightsSource source = find_weights(deck.model.init, control);
  load(deck.model.init, source, evaluator, control);
  return fmt::format("init         weights of {} ({}), a fresh optimizer", source.path, name_of(source.kind));
}

}  // namespace kozero::run
