// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/manifest.hpp>

namespace kozero::io {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 2;
constexpr int kIndent = 1;

std::string hash_of(const Json& json) { return xxh3_128(json.dump(kIndent)); }

std::optional<LossScale> loss_scale_of(const Json& json) {
  const auto found = json.find("loss_scale");
  if (found == json.end()) return std::nullopt;
  return LossScale{found->at("scale").get<double>(), found->at("good_steps").get<std::int64_t>()};
}

CheckpointRecord record_of(const Json& json) {
  const Json& data = json.at("data");
  return {.step = json.at("step").get<std::int64_t>(),
          .tokens = json.at("tokens").get<std::int64_t>(),
          .optimizer_start = json.at("optimizer_start").get<std::int64_t>(),
          .seed = data.at("seed").get<std::uint64_t>(),
          .global_batch = data.at("global_batch").get<std::int64_t>(),
          .num_samples = data.at("num_samples").get<std::int64_t>(),
          .data = {data.value("sampled_hash", ""), data.value("hash", "")},
          .model = json.at("model").dump(),
          .tokenizer = json.at("tokenizer").get<std::string>(),
          .deck = json.at("deck").get<std::string>(),
          .loss_scale = loss_scale_of(json),
          .tuning = json.value("tuning", "")};
}

Manifest manifest_of(Json json) {
  const int version = json.at("format_version").get<int>();
  if (version != kFormatVersion) {
    throw Error(Failure::input, "format_version " + std::to_string(version) + ", accepted is " +
                                    std::to_string(kFormatVersion) +
                                    (version < kFormatVersion ? ": an older version of KoZeRO wrote it"
                                                              : ": a newer version of KoZeRO wrote it"));
  }
  const std::string hash = json.at("hash").get<std::string>();
  json.erase("hash");
  if (hash != hash_of(json)) throw Error(Failure::input, "its own hash does not fit its text");
  Manifest manifest{record_of(json), {}, {}};
  for (const auto& [name, file] : json.at("files").items()) {
    if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
      throw Error(Failure::input, "file name \"" + name + "\" is no plain name");
    }
    manifest.files[name] = hashes_of(file);
  }
  manifest.datasets = json.at("datasets").get<std::map<std::string, std::string>>();
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
  if (!record.data.sampled.empty()) json["data"]["sampled_hash"] = record.data.sampled;
  if (!record.data.whole.empty()) json["data"]["hash"] = record.data.whole;
  if (!record.tuning.empty()) json["tuning"] = record.tuning;
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
  } catch (const Json::exception& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  } catch (const Error& problem) {
    throw Error(Failure::input, path + ": " + problem.what());
  }
}

}  // namespace kozero::io
