// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// conversations.cpp: reads and checks the messages of records.
#include "src/data/conversations.hpp"
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "src/data/records.hpp"

namespace kozero::data {

using Json = nlohmann::json;

/// A record has this shape if it has these keys.
struct ConversationShape {
  const char* key;
  const char* other_key;  ///< null if there is one key
  std::vector<Message> (*read)(const Json& record);

  [[nodiscard]] bool fits(const Json& record) const {
    return record.contains(key) && (other_key == nullptr || record.contains(other_key));
  }
  [[nodiscard]] std::string name() const {
    return other_key == nullptr ? fmt::format("\"{}\"", key) : fmt::format("\"{}\" and \"{}\"", key, other_key);
  }
};

namespace {

/// The member's text, or nothing if the member is absent or null. `place` names the object: "message 2: ".
std::optional<std::string> optional_text(const Json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (!found->is_string())
    throw BadRecord(fmt::format("{}\"{}\" is a JSON {}, not text", place, key, found->type_name()));
  auto text = found->get<std::string>();
  if (text.find('\0') != std::string::npos) throw BadRecord(fmt::format("{}\"{}\" has a NUL character", place, key));
  return text;
}

std::string text_of(const Json& object, const char* key, const std::string& place) {
  if (auto text = optional_text(object, key, place)) return *std::move(text);
  throw BadRecord(fmt::format("{}no \"{}\"", place, key));
}

/// Refuses members that the templates here would lose.
void refuse_members(const Json& object, std::initializer_list<const char*> keys, const std::string& place) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null() || (found->is_structured() && found->empty())) continue;
    throw BadRecord(fmt::format("{}\"{}\" is not supported", place, key));
  }
}

Role role_of(const std::string& name, const std::string& place) {
  constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{{"system", Role::system},
                                                                        {"user", Role::user},
                                                                        {"human", Role::user},
                                                                        {"assistant", Role::assistant},
                                                                        {"gpt", Role::assistant}}};
  const auto* const found = std::ranges::find(kRoles, name, &std::pair<std::string_view, Role>::first);
  if (found != kRoles.end()) return found->second;
  throw BadRecord(fmt::format("{}role \"{}\" is not supported; system, user and assistant are", place, name));
}

/// Whether an answer is to be learned.
bool is_weighted(const Json& message, Role role, const std::string& place) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null()) return role == Role::assistant;
  if (role != Role::assistant) throw BadRecord(place + "\"weight\" is for answers of the assistant alone");
  if (*weight != 0 && *weight != 1) throw BadRecord(place + "\"weight\" is neither 0 nor 1");
  return *weight == 1;
}

/// Calls read(message, place) for each message of the list in `key`.
template <class Read>
void for_each_message(const Json& record, const char* key, const Read& read) {
  const Json& list = record.at(key);
  if (!list.is_array())
    throw BadRecord(fmt::format("\"{}\" is a JSON {}, not a list of messages", key, list.type_name()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]: ", key, i);
    if (!list[i].is_object()) throw BadRecord(place + "not a JSON object");
    read(list[i], place);
  }
}

void append_messages(const Json& record, const char* key, std::vector<Message>& messages) {
  for_each_message(record, key, [&](const Json& each, const std::string& place) {
    refuse_members(each, {"tool_calls", "function_call", "tool_call_id", "audio"}, place);
    Message message{role_of(text_of(each, "role", place), place), text_of(each, "content", place)};
    message.is_trained = is_weighted(each, message.role, place);
    message.reasoning = optional_text(each, "reasoning_content", place);
    messages.push_back(std::move(message));
  });
}

void append_system(const Json& record, std::vector<Message>& messages) {
  const std::string text = optional_text(record, "system", "").value_or("");
  if (!text.empty()) messages.push_back({Role::system, text});
}

std::vector<Message> read_messages(const Json& record) {
  std::vector<Message> messages;
  append_messages(record, "messages", messages);
  return messages;
}

std::vector<Message> read_sharegpt(const Json& record) {
  std::vector<Message> messages;
  append_system(record, messages);
  for_each_message(record, "conversations", [&](const Json& each, const std::string& place) {
    const Role role = role_of(text_of(each, "from", place), place);
    messages.push_back({role, text_of(each, "value", place), is_weighted(each, role, place)});
  });
  return messages;
}

/// As TRL does, answers of a prompt are not learned.
std::vector<Message> read_prompt(const Json& record) {
  if (record.at("prompt").is_array()) {
    std::vector<Message> messages;
    append_messages(record, "prompt", messages);
    for (auto& message : messages) message.is_trained = false;
    append_messages(record, "completion", messages);
    return messages;
  }
  return {{Role::user, text_of(record, "prompt", "")}, {Role::assistant, text_of(record, "completion", ""), true}};
}

std::vector<Message> read_alpaca(const Json& record) {
  refuse_members(record, {"history"}, "");
  std::vector<Message> messages;
  append_system(record, messages);
  std::string question = text_of(record, "instruction", "");
  const std::string input = optional_text(record, "input", "").value_or("");
  if (!input.empty()) question += "\n" + input;
  messages.push_back({Role::user, std::move(question)});
  messages.push_back({Role::assistant, text_of(record, "output", ""), true});
  return messages;
}

constexpr std::array<ConversationShape, 4> kShapes = {{{"messages", nullptr, read_messages},
                                                       {"conversations", nullptr, read_sharegpt},
                                                       {"prompt", "completion", read_prompt},
                                                       {"instruction", "output", read_alpaca}}};

}  // namespace

const ConversationShape* conversation_shape(const Json& record) {
  const auto* const found = std::ranges::find_if(kShapes, [&](const auto& shape) { return shape.fits(record); });
  return found == kShapes.end() ? nullptr : found;
}

std::vector<Message> messages_of(const Json& record, const ConversationShape& shape) {
  if (!shape.fits(record)) throw BadRecord(fmt::format("no {}, which the file's first conversation has", shape.name()));
  refuse_members(record, {"tools", "functions"}, "");
  auto messages = shape.read(record);
  if (messages.empty()) throw BadRecord("no messages");
  for (const auto& message : messages) {
    if (message.role == Role::assistant && message.text.empty()) throw BadRecord("an answer of the assistant is empty");
  }
  if (messages.back().role != Role::assistant) throw BadRecord("the last message is not the assistant's");
  return messages;
}

std::string conversation_shapes() {
  std::string names;
  for (const auto& shape : kShapes) names += (names.empty() ? "" : ", ") + shape.name();
  return names;
}

}  // namespace kozero::data
