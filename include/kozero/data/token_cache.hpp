// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// token_cache.hpp: a folder of prepared tokens that runs share.
//   CACHE/0123456789abcdef/    what prepare() makes of one text, tokenizer and split; the digits are their fingerprint
// An entry is made once, under a lock, and appears by one rename. It is never changed or replaced: other texts are
// other entries, so a run that reads one is not disturbed. An entry that is found damaged is renamed, not deleted.
// Entries may be deleted when no run reads them.
#pragma once
#include <string>

#include <kozero/data/prepare.hpp>
#include "io/deck/deck.hpp"

namespace kozero::data {

/// The entry of the order, in order.folder; made if it is not there. One process of a job calls it. If another process
/// makes the entry, waits for it, and says so by order.say. Throws as prepare(), and Error(write) naming
/// data.cache if the folder cannot be written.
PreparedTokens prepare_in_cache(const PrepareOrder& order);

/// Whether the deck's text, as it is now, has its entry in the deck's cache. True for data that are no text. Never
/// throws for a text that cannot be read.
bool has_tokens(const io::Deck& deck);

/// The user's folder for tokens: XDG_CACHE_HOME/kozero/tokens; under ~/.cache or TMPDIR (/tmp) if that variable is not
/// set. Throws Error(write) if none of them can be written.
std::string user_token_cache();

}  // namespace kozero::data
