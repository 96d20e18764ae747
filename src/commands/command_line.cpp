// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <iterator>

#include <kozero/io/deck_value.hpp>

#include "command_line.hpp"

namespace kozero::commands {

std::string text_override(const std::string& key, const std::string& value) {
  // A number, a date, a list and the like are TOML; a path or a word is not, and is taken as it is.
  const bool is_path = value.find('/') != std::string::npos;
  const bool is_word = !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) != 0 && value != "true" &&
                       value != "false" && value != "inf" && value != "nan";
  return key + "=" + (is_path || is_word ? value : io::toml_string(value));
}

std::string quoted_for_shell(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,=@%+-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

void drop_repeated_keys(std::vector<std::string>& arguments) {
  const auto key_of = [](const std::string& argument) { return argument.substr(0, argument.find('=') + 1); };
  for (auto each = arguments.begin(); each != arguments.end();) {
    const std::string key = key_of(*each);
    const bool again = !key.empty() && std::any_of(std::next(each), arguments.end(),
                                                   [&](const std::string& later) { return key_of(later) == key; });
    each = again ? arguments.erase(each) : std::next(each);
  }
}

std::string command_line(const std::string& command, const std::vector<std::string>& arguments, int ranks) {
  const char* script = std::getenv("KOZERO_STARTED_BY");
  const std::string number = std::to_string(ranks);
  std::string line;
  if (script != nullptr) {
    line = std::string(script) + " -n " + number;
  } else if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("HYDI_CONTROL_FD") == nullptr && ranks > 1) {
    line = "srun -n " + number + " " + quoted_for_shell(program_invocation_name);
  } else {
    line = (ranks > 1 ? "mpiexec -n " + number + " " : "") + quoted_for_shell(program_invocation_name);
  }
  line += " " + command;
  for (const auto& argument : arguments) line += " " + quoted_for_shell(argument);
  return line;
}

}  // namespace kozero::commands
