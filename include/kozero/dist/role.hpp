// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// role.hpp: which thread of a rank communicates: the main thread, or the one that saves beside it. Each waits for the
// threads of its own role on the other ranks.
#pragma once
#include <cstddef>

namespace kozero::dist {

enum class Role : std::size_t { training, saver };
inline constexpr std::size_t kRoles = 2;

}  // namespace kozero::dist
