// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// verdict.hpp: the findings in words and as JSON. A sentence stands only if the measured data carry it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/report/analysis.hpp"

namespace kozero::report {

/// The fastest choice and why, the cost of slow links, equal losses, what failed. Of one run: how far it came.
std::vector<std::string> sentences_of(const Study& study, const Findings& findings);

nlohmann::ordered_json facts_of(const Study& study, const Findings& findings);

/// "0 bits differ over 8 runs"; "2 of 8 runs differ, first at step 3 (NAME)".
std::string words_of(const EqualLosses& losses);

}  // namespace kozero::report
