// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// page.hpp: the report as one HTML page: no script, no request to anywhere; light and dark; for narrow and wide
// windows.
#pragma once
#include <string>
#include <vector>

#include "src/report/analysis.hpp"
#include "src/report/figures.hpp"

namespace kozero::report {

/// In the head of each page; a folder whose index.html has it may be written again.
inline constexpr const char* kGenerator = "<meta name=\"generator\" content=\"kozero report\">";

/// `note`: a line about what is missing, or "".
std::string page_of(const Study& study, const Findings& findings, const std::vector<Figure>& figures,
                    const std::string& note);

}  // namespace kozero::report
