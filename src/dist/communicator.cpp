// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// communicator.cpp: what ranks agree on through control traffic alone.
#include <algorithm>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>

namespace kozero::dist {

double sum_in_rank_order(Communicator& comm, double value) {
  double sum = 0.0;
  for (const double rank_value : comm.gather_control({value})) sum += rank_value;
  return sum;
}

void agree(Communicator& comm, int failure_status, const std::string& message) {
  const auto reports = comm.gather_control({static_cast<double>(message.size()), static_cast<double>(failure_status)});
  int lowest = 0;
  while (lowest < comm.size() && reports[2 * static_cast<std::size_t>(lowest)] == 0.0) ++lowest;
  if (lowest == comm.size()) return;

  const auto length = static_cast<std::size_t>(reports[2 * static_cast<std::size_t>(lowest)]);
  std::vector<double> letters(length);  // a letter a value: control traffic knows no text but rank 0's
  if (comm.rank() == lowest) {
    std::transform(message.begin(), message.end(), letters.begin(),
                   [](char letter) { return static_cast<double>(static_cast<unsigned char>(letter)); });
  }
  const auto all = comm.gather_control(letters);
  std::string text(length, ' ');
  std::transform(all.begin() + static_cast<std::ptrdiff_t>(length) * lowest,
                 all.begin() + static_cast<std::ptrdiff_t>(length) * (lowest + 1), text.begin(),
                 [](double letter) { return static_cast<char>(static_cast<unsigned char>(letter)); });
  const auto status = static_cast<int>(reports[2 * static_cast<std::size_t>(lowest) + 1]);
  throw Error(static_cast<Failure>(status), text, Error::Seen::by_all_ranks);
}

}  // namespace kozero::dist
