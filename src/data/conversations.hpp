// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// conversations.hpp: the messages of a JSON record, in the shapes in which chat data is published.
//   {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "weight": 0}]}   OpenAI
//   {"prompt": "Hi", "completion": "Hello"}, or lists of messages                                               TRL
//   {"instruction": "Translate.", "input": "Hi", "output": "Hallo", "system": "..."}                            Alpaca
//   {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]} ShareGPT
// A conversation ends with an answer, and no answer is empty, as OpenAI requires. Several messages of a role in a row
// and a first message of any role are accepted, as the templates accept them. What would be lost is refused: tools,
// images, weights other than 0 and 1.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kozero::data {

enum class Role { system, user, assistant };

struct Message {
  Role role = Role::user;
  std::string text = {};
  bool is_trained = false;                    ///< an answer that is to be learned
  std::optional<std::string> reasoning = {};  ///< "reasoning_content" of an answer
};

struct ConversationShape;

/// The shape of a record; null if it has none of them.
const ConversationShape* conversation_shape(const nlohmann::json& record);

/// The messages of the record, which must have this shape. Throws BadRecord, without the row.
std::vector<Message> messages_of(const nlohmann::json& record, const ConversationShape& shape);

/// "messages, conversations, prompt and completion, ..."
std::string conversation_shapes();

}  // namespace kozero::data
