// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mutated.hpp: the bytes of a valid file after one to three random damages, given by a round number.
//   a bit flipped | a byte replaced | up to 8 bytes lost | up to 64 bytes repeated elsewhere | the end cut off |
//   a number in the text made huge, negative or zero
#pragma once
#include <cstdint>
#include <string>

namespace kozero::tests {

/// The same (subject, round) gives the same bytes everywhere.
std::string mutated(const std::string& honest, const std::string& subject, std::uint64_t round);

}  // namespace kozero::tests
