// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <string_view>
#include <type_traits>

#include <kozero/io/hdf5_handle.hpp>
#include <kozero/io/readable.hpp>

namespace kozero::io {

static_assert(std::is_same_v<hid_t, std::int64_t> && std::is_same_v<herr_t, int>, "HDF5 1.10 or newer");

namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex only;
  return only;
}

/// H5Ewalk's visitor: keeps the first record's text, the innermost function's.
herr_t keep_first(unsigned number, const H5E_error2_t* record, void* text) {
  if (number == 0 && record->desc != nullptr) *static_cast<std::string*>(text) = record->desc;
  return 0;
}

/// Where a system call failed, its reason stands in a long record of two lines: "... error message = 'No space left on
/// device', buf = ...". That reason; otherwise the whole on one line.
std::string reason_in(const std::string& text) {
  constexpr std::string_view kBefore = "error message = '";
  const std::size_t begin = text.find(kBefore);
  if (begin != std::string::npos) {
    const std::size_t first = begin + kBefore.size();
    return text.substr(first, text.find('\'', first) - first);
  }
  return on_one_line(text);
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

void fail_hdf5(Failure failure, const std::string& path, const std::string& what) {
  std::string reason = "HDF5 gives no reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  throw Error(failure, path + ": cannot " + what + ": " + reason_in(reason));
}

bool Hdf5Handle::release() noexcept {
  if (id_ < 0) return true;
  const Hdf5Lock lock;
  return close_(std::exchange(id_, -1)) >= 0;
}

}  // namespace kozero::io
