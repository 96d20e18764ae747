// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// manifest.cpp: manifest.json as text and back; reading checks every key's presence and type.
#include <cmath>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include "io/checkpoint/manifest.hpp"

namespace kozero::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 2;
constexpr int kIndent = 1;

std::string hash_of(const Json& json) { return xxh3_128(json.dump(kIndent)); }

/// Throws Error(input) naming the key if it is missing or of another type.
template <class T>
T value_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw Error(Failure::input, std::string("no \"") + key + "\"");
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    throw Error(Failure::input, std::string("\"") + key + "\" is of another type: " + found->type_name());
  }
}

FileHashes file_hashes_of(const std::string& name, const Json& json) {
  try {
    return hashes_of(json);
  } catch (const Json::exception&) {
    throw Error(Failure::input, "\"files\": \"" + name + "\" has no size or no hashes");
  }
}

std::optional<LossScale> loss_scale_of(const Json& json) {
  const auto found = json.find("loss_scale");
  if (found == json.end()) return std::nullopt;
  const LossScale saved{value_of<double>(*found, "scale"), value_of<std::int64_t>(*found, "good_steps")};
  const bool fits = saved.scale >= 1.0 && saved.scale <= 0x1p24 && saved.good_steps >= 0;
  if (!fits) throw Error(Failure::input, "\"loss_scale\": accepted are scales from 1 to 2^24");
  return saved;
}

std::optional<double> validation_loss_of(const Json& json) {
  if (!json.contains("validation_loss")) return std::nullopt;
  return value_of<double>(json, "validation_loss");
}

CheckpointRecord record_of(const Json& json) {
  const Json data = value_of<Json>(json, "data");
  return {.step = value_of<std::int64_t>(json, "step"),
          .tokens = value_of<std::int64_t>(json, "tokens"),
          .optimizer_start = value_of<std::int64_t>(json, "optimizer_start"),
          .seed = value_of<std::uint64_t>(data, "seed"),
          .global_batch = value_of<std::int64_t>(data, "global_batch"),
          .num_samples = value_of<std::int64_t>(data, "num_samples"),
          .steps_before = data.value("steps_before", std::int64_t{0}),
          .corpus = data.value("corpus", ""),
          .data = {data.value("sampled_hash", ""), data.value("hash", ""), data.value("mixture", ""),
                   data.value("answers", "")},
          .model = value_of<Json>(json, "model").dump(),
          .base = json.value("base", ""),
          .tokenizer = value_of<std::string>(json, "tokenizer"),
          .deck = value_of<std::string>(json, "deck"),
          .loss_scale = loss_scale_of(json),
          .exactness = json.value("exactness", std::map<std::string, std::string>()),
          .tuning = json.value("tuning", ""),
          .validation_loss = validation_loss_of(json),
          .provenance = json.contains("provenance") ? json["provenance"].dump() : ""};
}

Manifest manifest_of(Json json) {
  const int version = value_of<int>(json, "format_version");
  if (version != kFormatVersion) {
    throw Error(Failure::input, "format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kFormatVersion) +
                                    (version < kFormatVersion ? ": an older version of KoZeRO wrote it"
                                                              : ": a newer version of KoZeRO wrote it"));
  }
  const std::string hash = value_of<std::string>(json, "hash");
  json.erase("hash");
  if (hash != hash_of(json)) throw Error(Failure::input, "its own hash does not fit its text");
  Manifest manifest{record_of(json), {}, {}};
  const Json files = value_of<Json>(json, "files");
  for (const auto& [name, file] : files.items()) {
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
      throw Error(Failure::input, "file name \"" + name + "\" is no plain name");
    }
    manifest.files[name] = file_hashes_of(name, file);
  }
  manifest.datasets = value_of<std::map<std::string, std::string>>(json, "datasets");
  return manifest;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const CheckpointRecord& record = manifest.record;
  Json json = {{"format_version", kFormatVersion},
               {"step", record.step},
               {"tokens", record.tokens},
               {"optimizer_start", record.optimizer_start},
               {"data",
                {{"seed", record.seed},
                 {"global_batch", record.global_batch},
                 {"num_samples", record.num_samples},
                 {"next_step", record.step + 1}}},
               {"model", Json::parse(record.model)},
               {"tokenizer", record.tokenizer},
               {"deck", record.deck},
               {"block_bytes", kBlockBytes},
               {"files", Json::object()}};
  if (const auto& scale = record.loss_scale) {
    json["loss_scale"] = {{"scale", scale->scale}, {"good_steps", scale->good_steps}};
  }
  if (!record.corpus.empty()) json["data"]["corpus"] = record.corpus;
  if (record.steps_before > 0) json["data"]["steps_before"] = record.steps_before;
  if (!record.data.sampled.empty()) json["data"]["sampled_hash"] = record.data.sampled;
  if (!record.data.whole.empty()) json["data"]["hash"] = record.data.whole;
  if (!record.data.mixture.empty()) json["data"]["mixture"] = record.data.mixture;
  if (!record.data.answers.empty()) json["data"]["answers"] = record.data.answers;
  if (!record.base.empty()) json["base"] = record.base;
  if (!record.exactness.empty()) json["exactness"] = record.exactness;
  if (!record.tuning.empty()) json["tuning"] = record.tuning;
  // A loss that is not finite has no JSON form and cannot be the lowest.
  if (record.validation_loss && std::isfinite(*record.validation_loss)) {
    json["validation_loss"] = *record.validation_loss;
  }
  if (!record.provenance.empty()) json["provenance"] = Json::parse(record.provenance);
  for (const auto& [name, hashes] : manifest.files) json["files"][name] = json_of(hashes);
  json["datasets"] = manifest.datasets;
  json["hash"] = hash_of(json);
  return json.dump(kIndent) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    return manifest_of(Json::parse(text));
  } catch (const Json::parse_error& problem) {
    throw Error(Failure::input, path + ": no JSON from byte " + std::to_string(problem.byte) + " on");
  } catch (const Json::exception&) {
    throw Error(Failure::input, path + ": an entry is of another type than a manifest's");
  } catch (const Error& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  }
}

}  // namespace kozero::io
