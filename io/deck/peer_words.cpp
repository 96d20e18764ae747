// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// peer_words.cpp: our names for keys and values of other programs (transformers, nanoGPT, DeepSpeed, PyTorch).
// Decks do not accept the other names; messages and `kozero keys WORD` suggest ours.
#include <algorithm>
#include <array>

#include "io/deck/schema.hpp"

namespace kozero::io {
namespace {

struct Word {
  const char* theirs;
  const char* ours;            ///< "": no key
  const char* note = nullptr;  ///< what differs
};

constexpr std::array kKeys = {
    Word{"hidden_size", "model.dim"},
    Word{"n_embd", "model.dim"},
    Word{"d_model", "model.dim"},
    Word{"num_hidden_layers", "model.layers"},
    Word{"num_layers", "model.layers"},
    Word{"n_layer", "model.layers"},
    Word{"num_attention_heads", "model.heads"},
    Word{"num_heads", "model.heads"},
    Word{"n_head", "model.heads"},
    Word{"num_key_value_heads", "model.kv_heads"},
    Word{"intermediate_size", "model.ffn"},
    Word{"vocab_size", "model.vocab"},
    Word{"max_position_embeddings", "model.seq"},
    Word{"seq_len", "model.seq"},
    Word{"seq_length", "model.seq"},
    Word{"sequence_length", "model.seq"},
    Word{"block_size", "model.seq"},
    Word{"tie_word_embeddings", "model.tie_embeddings"},
    Word{"rms_norm_eps", "model.norm_eps"},
    Word{"layer_norm_epsilon", "model.norm_eps"},
    Word{"attention_bias", "model.qkv_bias"},
    Word{"bias", "model.bias"},
    Word{"init_from", "model.init"},
    Word{"model_name_or_path", "model.init"},
    Word{"batch_size", "train.global_batch",
         "nanoGPT's batch_size is train.micro_batch, and train.global_batch is batch_size * "
         "gradient_accumulation_steps"},
    Word{"train_batch_size", "train.global_batch"},
    Word{"global_batch_size", "train.global_batch"},
    Word{"per_device_train_batch_size", "train.micro_batch"},
    Word{"train_micro_batch_size_per_gpu", "train.micro_batch"},
    Word{"micro_batch_size", "train.micro_batch"},
    Word{"gradient_accumulation_steps", "train.accumulate",
         "nanoGPT's counts the micro-batches of all processes, train.accumulate those of a rank; with "
         "train.global_batch "
         "it is left out"},
    Word{"activation_checkpointing", "train.recompute"},
    Word{"gradient_checkpointing", "train.recompute"},
    Word{"dtype", "train.precision"},
    Word{"torch_dtype", "train.precision"},
    Word{"bf16", "train.precision"},
    Word{"fp16", "train.precision"},
    Word{"max_grad_norm", "train.grad_clip"},
    Word{"gradient_clipping", "train.grad_clip"},
    Word{"eval_steps", "train.eval_every"},
    Word{"eval_interval", "train.eval_every"},
    Word{"eval_iters", "train.eval_batches"},
    Word{"learning_rate", "optim.lr"},
    Word{"lr_scheduler_type", "optim.schedule"},
    Word{"scheduler", "optim.schedule"},
    Word{"warmup", "optim.warmup_steps"},
    Word{"warmup_iters", "optim.warmup_steps"},
    Word{"num_warmup_steps", "optim.warmup_steps"},
    Word{"warmup_ratio", "optim.warmup_steps"},
    Word{"lr_decay_iters", "optim.decay_steps",
         "nanoGPT's lr_decay_iters counts from the first step, optim.decay_steps from the end of the warm-up: "
         "lr_decay_iters - warmup_iters"},
    Word{"decay_lr", "optim.schedule", "decay_lr = False is optim.schedule = \"constant\""},
    Word{"beta1", "optim.betas", "optim.betas = [beta1, beta2]"},
    Word{"beta2", "optim.betas", "optim.betas = [beta1, beta2]"},
    Word{"optimizer", "optim.kind"},
    Word{"adam_epsilon", "optim.eps"},
    Word{"max_steps", "run.steps"},
    Word{"dataset", "data.text", "files or folders of text; data.tokens is for prepared tokens"},
    Word{"packing", "data.pack"},
    Word{"sample_packing", "data.pack"},
    Word{"chat_template", "data.chat_template"},
    Word{"max_iters", "run.steps"},
    Word{"train_steps", "run.steps"},
    Word{"num_train_epochs", "run.epochs"},
    Word{"output_dir", "run.dir"},
    Word{"out_dir", "run.dir"},
    Word{"save_steps", "checkpoint.every"},
    Word{"save_interval", "checkpoint.every"},
    Word{"always_save_checkpoint", "checkpoint.every",
         "checkpoints are saved every checkpoint.every steps, whatever the validation loss; checkpoint.keep_best keeps "
         "the best too"},
    Word{"save_total_limit", "checkpoint.keep"},
    Word{"resume_from_checkpoint", "checkpoint.resume"},
    Word{"load_best_model_at_end", "checkpoint.keep_best"},
    Word{"logging_steps", "log.every"},
    Word{"log_interval", "log.every"},
    Word{"reduce_bucket_size", "zero.bucket_mib"},
    Word{"allgather_bucket_size", "zero.bucket_mib"},
    Word{"stage3_prefetch_bucket_size", "zero.prefetch_units"},
    Word{"overlap_comm", "zero.overlap"},
    Word{"offload_param", "zero.offload_parameters"},
    Word{"sharding_strategy", "zero.stage"},
    Word{"hsdp", "zero.shard_group"},
    Word{"mics_shard_size", "zero.shard_group"},
    Word{"zero_hpz_partition_size", "zero.shard_group"},
    Word{"use_zero1", "zero.stage", "use_zero1 = True is zero.stage = 1"},
    Word{"offload", "zero.offload_optimizer"},
    Word{"cpu_offload", "zero.offload_optimizer"},
    Word{"compile", "", "no such key: KoZeRO has no just-in-time compiler"},
    Word{"eval_only", "", "no such key: `kozero eval RUN` evaluates without training"},
    Word{"wandb_log", "log.tensorboard", "Weights & Biases is not written during a run; a script sends metrics.jsonl"},
};

/// Another program's name for a value of our key.
struct Value {
  const char* key;
  const char* theirs;
  const char* ours;
};

constexpr std::array kValues = {
    Value{"train.precision", "bfloat16", "bf16"},
    Value{"train.precision", "float16", "fp16"},
    Value{"train.precision", "f16", "fp16"},
    Value{"train.precision", "half", "fp16"},
    Value{"train.precision", "fp32", "f32"},
    Value{"train.precision", "float32", "f32"},
    Value{"train.precision", "float", "f32"},
    Value{"train.recompute", "true", "full"},
    Value{"train.recompute", "false", "none"},
    Value{"zero.offload_optimizer", "cpu", "host"},
    Value{"zero.offload_optimizer", "nvme", "disk"},
    Value{"zero.offload_parameters", "cpu", "host"},
    Value{"zero.offload_parameters", "nvme", "disk"},
    Value{"run.device", "cpu", "host"},
    Value{"run.device", "gpu", "cuda"},
    Value{"comm.backend", "gloo", "mpi"},
    Value{"checkpoint.resume", "true", "auto"},
    Value{"checkpoint.resume", "false", "none"},
    Value{"checkpoint.resume", "latest", "auto"},
};

const Word* find_word(const std::string& word) {
  const auto same = [&](const Word& each) { return word == each.theirs; };
  const auto* found = std::find_if(kKeys.begin(), kKeys.end(), same);
  return found == kKeys.end() ? nullptr : found;
}

}  // namespace

std::string key_of_peer(const std::string& word) {
  const Word* found = find_word(word);
  return found == nullptr ? "" : found->ours;
}

std::string note_on_peer(const std::string& word) {
  const Word* found = find_word(word);
  return found == nullptr || found->note == nullptr ? "" : found->note;
}

std::string value_of_peer(const std::string& key, const std::string& word) {
  const auto same = [&](const Value& each) { return key == each.key && word == each.theirs; };
  const auto found = std::find_if(kValues.begin(), kValues.end(), same);
  return found == kValues.end() ? "" : found->ours;
}

}  // namespace kozero::io
