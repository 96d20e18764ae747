// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// path_kind.hpp: what a path names, links followed, without opening it.
//   nothing | file: a regular one | folder | other: a FIFO, a device, a socket
// Only regular files are read: opening a FIFO waits for its writer, and a device may have no end.
#pragma once
#include <string>

namespace kozero::io {

enum class PathKind { nothing, file, folder, other };

/// Throws Error(input), "PATH: REASON", where the system does not tell: a circle of links, a folder that may not be
/// searched, a name that is too long.
PathKind path_kind(const std::string& path);

inline bool is_there(const std::string& path) { return path_kind(path) != PathKind::nothing; }
inline bool is_folder(const std::string& path) { return path_kind(path) == PathKind::folder; }

/// "not a regular file but a FIFO: copy its contents to a file", by a mode of stat(2).
std::string not_regular_text(unsigned mode);

}  // namespace kozero::io
