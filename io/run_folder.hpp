// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// run_folder.hpp: the folder that a run owns. Nothing is ever overwritten: where the wanted one holds anything, -2, -3
// ... is appended to its name. An empty log.txt marks a folder as taken.
#pragma once
#include <string>

namespace kozero::io {

inline constexpr const char* kLogFile = "log.txt";

/// Makes the folder (and its parents), or takes an empty one, and returns its name. Two processes that ask at once get
/// two folders. `locked`: a folder whose lock this process holds; the lock alone does not fill it. One rank calls it and
/// tells the others. Throws Error(write).
std::string create_run_folder(const std::string& wanted, const std::string& locked = "");

/// Renames a file or folder to PATH.old, or the first of PATH.old-2, PATH.old-3 ... that is not there. Returns the new
/// path. Throws Error(write).
std::string set_aside(const std::string& path);

/// `folder` without slashes at its end, so that "-2" or "-tokens" can follow its name.
std::string without_trailing_slash(const std::string& folder);

}  // namespace kozero::io
