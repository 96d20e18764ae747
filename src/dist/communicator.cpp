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

std::vector<std::string> gather_text(Communicator& comm, const std::string& text) {
  const auto lengths = comm.gather_control({static_cast<double>(text.size())});
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<double> letters(longest);  // a letter a value: control traffic knows no text but rank 0's
  std::transform(text.begin(), text.end(), letters.begin(),
                 [](char letter) { return static_cast<double>(static_cast<unsigned char>(letter)); });
  const auto all = comm.gather_control(letters);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    std::string& one = texts.emplace_back(static_cast<std::size_t>(lengths[r]), ' ');
    std::transform(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(r * longest), one.begin(),
                   [](char, double letter) { return static_cast<char>(static_cast<unsigned char>(letter)); });
  }
  return texts;
}

void agree(Communicator& comm, int status, const std::string& message) {
  const auto reports = comm.gather_control({static_cast<double>(status)});
  const auto failed = std::find_if(reports.begin(), reports.end(), [](double each) { return each != 0.0; });
  if (failed == reports.end()) return;
  const auto lowest = static_cast<std::size_t>(failed - reports.begin());
  const std::string text = gather_text(comm, message)[lowest];
  throw Error(static_cast<Failure>(static_cast<int>(*failed)),
              text.empty() ? "rank " + std::to_string(lowest) + " failed and said nothing" : text,
              Error::Seen::by_all_ranks);
}

}  // namespace kozero::dist
