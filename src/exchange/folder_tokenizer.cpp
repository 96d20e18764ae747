// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include <kozero/core/error.hpp>
#include <kozero/exchange/folder_tokenizer.hpp>
#include <kozero/io/posix/path_kind.hpp>
#include <kozero/io/tokenizer.hpp>

namespace kozero::exchange {
namespace {

/// Why a file cannot be the model's tokenizer, "" where it can.
std::string objection(const std::string& path, std::int64_t vocab) {
  try {
    const int ids = io::make_tokenizer(path)->vocab_size();
    if (ids <= vocab) return "";
    return path + ": its " + std::to_string(ids) + " ids are more than the model's " + std::to_string(vocab);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

FolderTokenizer tokenizer_of(const std::string& folder, std::int64_t vocab) {
  FolderTokenizer found;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (!io::is_there(path)) continue;
    found.is_there = true;
    const std::string reason = objection(path, vocab);
    if (reason.empty()) return {path, "", true};
    if (found.reason.empty()) found.reason = reason;
  }
  if (!found.is_there) found.reason = folder + " has no tokenizer.json and no tokenizer.model";
  return found;
}

}  // namespace kozero::exchange
