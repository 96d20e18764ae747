// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unseen.cpp: tells ThreadSanitizer to ignore orders and accesses of a thread.
#include "thread_mpi.hpp"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}

namespace kozero::test {

void hide_order() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
void show_order() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }

Unseen::Unseen() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  hide_order();
}

Unseen::~Unseen() {
  show_order();
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

}  // namespace kozero::test
