// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// unread_keys.cpp: the lists of keys that change the logits, and of those that do not.
#include <string_view>

#include "io/deck/schema.hpp"
#include "io/safetensors/header.hpp"
#include "src/huggingface/unread_keys.hpp"

namespace kozero::huggingface {
namespace {

/// Keys of transformers on which no logit depends: sizes of other heads, dropout, which a deck sets, and what its other
/// functions read. Those of text generation are in generation_config.json too.
constexpr std::string_view kWithoutEffect =
    " _attn_implementation_autoset _name_or_path architectures attention_dropout attn_implementation"
    " attn_pdrop bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward"
    " classifier_dropout cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample"
    " early_stopping embd_pdrop encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty"
    " finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing hidden_dropout"
    " id2label initializer_range is_decoder label2id length_penalty max_length max_window_layers"
    " min_length n_ctx no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences"
    " output_attentions output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type"
    " remove_invalid_values reorder_and_upcast_attn repetition_penalty resid_pdrop return_dict"
    " return_dict_in_generate sep_token_id sliding_window summary_activation summary_first_dropout"
    " summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params"
    " temperature tf_legacy_loss tie_encoder_decoder tie_last_hidden_states tokenizer_class top_k top_p"
    " torchscript transformers_version typical_p use_bfloat16 use_cache ";

}  // namespace

void check_common_keys(const ConfigKeys& keys) {
  keys.want("is_causal", true, true);
  keys.want("is_encoder_decoder", false, false);
  for (const char* key :
       {"per_layer_config", "pruned_heads", "transformers_weights", "attention_chunk_size", "kv_sharing_modes"}) {
    keys.want_nothing(key);
  }
  for (const Json& kind : keys.has("layer_types") ? keys.value("layer_types") : Json::array()) {
    if (kind != "full_attention") keys.refuse("layer_types", "accepted is \"full_attention\" for every layer");
  }
}

void note_unread_keys(const ConfigKeys& keys, const std::string& path, const std::string& type,
                      std::vector<std::string>& notes) {
  std::vector<std::string> unread;
  for (const std::string& name : keys.unread_names()) {
    const bool has_effect = kWithoutEffect.find(" " + name + " ") == std::string_view::npos;
    if (has_effect && !ConfigKeys::changes_nothing(keys.value(name))) unread.push_back(io::shown(name));
  }
  if (unread.empty()) return;
  notes.push_back(path + ": " + io::joined(unread) + ": not read, and transformers' " + type + " does not read " +
                  (unread.size() == 1 ? "it" : "them") + " either");
}

}  // namespace kozero::huggingface
