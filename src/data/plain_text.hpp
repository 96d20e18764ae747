// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// plain_text.hpp: reads one UTF-8 text file as one document.
#pragma once
#include <cstdint>
#include <memory>

#include <kozero/data/text_files.hpp>
#include "io/text/document_reader.hpp"

namespace kozero::data {

/// A reader of the file in blocks of at most `block_bytes` >= 8 bytes; it holds two blocks at most.
std::unique_ptr<io::DocumentReader> read_plain_text(const TextFile& file, std::int64_t block_bytes);

}  // namespace kozero::data
