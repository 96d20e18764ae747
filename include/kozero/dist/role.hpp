// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// role.hpp: which thread of a rank talks: the main one, or the one that saves beside it. Each waits for its own kind.
#pragma once
#include <cstddef>

namespace kozero::dist {

enum class Role : std::size_t { training, saver };
inline constexpr std::size_t kRoles = 2;

}  // namespace kozero::dist
