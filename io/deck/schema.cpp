// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schema.cpp: the rows of the deck: key, member, accepted values, meaning, default.
#include "io/deck/schema.hpp"
#include <kozero/core/architecture.hpp>
#include <kozero/core/choices.hpp>
#include <kozero/core/presets.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/deck/accepted.hpp"

namespace kozero::io {
namespace {

/// The address of section `Keys` member `Value` in a deck.
template <auto Keys, auto Value>
DeckValue in(Deck& deck) {
  return &((deck.*Keys).*Value);
}

template <auto Value>
constexpr auto kRun = &in<&Deck::run, Value>;
template <auto Value>
constexpr auto kModel = &in<&Deck::model, Value>;
/// The address of a member of [model.lora].
template <auto Value>
DeckValue of_lora(Deck& deck) {
  return &(deck.model.lora.*Value);
}
template <auto Value>
constexpr auto kData = &in<&Deck::data, Value>;
template <auto Value>
constexpr auto kTrain = &in<&Deck::train, Value>;
template <auto Value>
constexpr auto kOptim = &in<&Deck::optim, Value>;
template <auto Value>
constexpr auto kZero = &in<&Deck::zero, Value>;
template <auto Value>
constexpr auto kComm = &in<&Deck::comm, Value>;
template <auto Value>
constexpr auto kCheckpoint = &in<&Deck::checkpoint, Value>;
template <auto Value>
constexpr auto kLog = &in<&Deck::log, Value>;

/// Marks a key whose value changes the bits of a resumed run.
DeckRow bits(DeckRow row, Effect effect = Effect::bits) {
  row.effect = effect;
  return row;
}

/// Marks a key that `kozero keys` lists without --all.
DeckRow first(DeckRow row) {
  row.is_first = true;
  return row;
}

constexpr const char* kShape = "the preset's";

std::vector<DeckRow> run_rows() {
  using K = RunKeys;
  return {
      first({"run.dir", kRun<&K::dir>, text("path of a folder"),
             "folder of the run; a new run never overwrites one: it appends -2, -3 ...", "runs/ and the deck's name"}),
      bits(first({"run.seed", kRun<&K::seed>, from(0), "seed of initial weights, data order and dropout"})),
      bits(first({"run.steps", kRun<&K::steps>, from_to(1, kMany),
                  "optimizer steps in total; give either run.steps or run.epochs", "not given"}),
           Effect::length),
      bits({"run.epochs", kRun<&K::epochs>, from_to(1, kMany),
            "passes over the data; give either run.steps or run.epochs", "not given"},
           Effect::length),
      bits({"run.curriculum", kRun<&K::curriculum>, text("curriculum"),
            "lessons, one after the other, instead of run.steps: how long each is, and its own values of keys",
            "none"}),
      first({"run.ranks", kRun<&K::ranks>, from_to(1, kWide),
             "processes that kozero.sh starts unless -n says otherwise"}),
      {"run.threads", kRun<&K::threads>, from_to(1, kWide), "threads per rank", "the cores, shared evenly"},
      {"run.bind", kRun<&K::bind>, words({"auto", "none"}),
       "auto: ranks that may use the same cores get equal shares of them, in the order of NUMA domains; none: threads "
       "may run on all cores that the launcher allows"},
      {"run.device", kRun<&K::device>, words({"auto", "host", "cuda"}),
       "device that computes; auto: a GPU if there is one"},
      {"run.products", kRun<&K::products>, words({"fastest", "portable", "tf32"}),
       "matmul units; portable: the same bits on every processor with FMA, in 16 bits too; "
       "tf32: f32 on GPU tensor cores"},
      {"run.tuning", kRun<&K::tuning>, text("none | path of a file"),
       "file of `kozero bench tune` with the algorithm of each matmul; none: a fixed rule"},
      {"run.deterministic", kRun<&K::deterministic>, truth(), "repeating the run gives the same bits"},
      {"run.max_minutes", kRun<&K::max_minutes>, from(0),
       "save a checkpoint and stop (exit status 75) after this time; 0: no limit"},
      {"run.stop_signals", kRun<&K::stop_signals>,
       words({"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU"}),
       "signals to any rank after which all ranks save a checkpoint (weights only if checkpoint.every = 0) and stop "
       "with exit status 75"},
      {"run.check_every", kRun<&K::check_every>, from_to(0, kMany),
       "steps between checks that nothing except an update has changed the state, and that the ranks' copies are "
       "equal; 0: never"},
  };
}

/// The default of a flag that depends on the architecture: "true for gpt2, else false".
template <class Holds>
std::string true_for(const Holds& holds) {
  return "true for " + joined(architectures_where(holds)) + ", else false";
}

std::vector<std::string> none_and(std::vector<std::string> names) {
  names.insert(names.begin(), "none");
  return names;
}

std::vector<DeckRow> model_rows() {
  using K = ModelKeys;
  using Part = Architecture::Part;
  const auto all = architectures_where([](const Architecture&) { return true; });
  return {
      first({"model.arch", kModel<&K::arch>, words(all), "architecture of the network"}),
      first({"model.preset", kModel<&K::preset>, words(none_and(preset_names())),
             "a published shape, or tiny, small, medium for tests; model keys given beside it win; on the command line "
             "it replaces the deck's shape (all model keys but seq, dropout, vocab_block and init)"}),
      first({"model.layers", kModel<&K::layers>, from_to(1, 1e4), "transformer blocks", kShape}),
      first({"model.dim", kModel<&K::dim>, from_to(1, kWide), "channels; linear: inputs", kShape}),
      first({"model.heads", kModel<&K::heads>, from_to(1, kWide), "attention heads", kShape}),
      {"model.kv_heads", kModel<&K::kv_heads>, from_to(1, kWide), "llama, qwen: key and value heads; divides heads",
       "the preset's, else as many as heads"},
      {"model.head_dim", kModel<&K::head_dim>, from_to(1, kWide), "llama, qwen: channels of a head; even",
       "dim / heads"},
      {"model.ffn", kModel<&K::ffn>, from_to(1, kWide), "hidden channels of a block's MLP; linear: outputs",
       "the preset's, else gpt2: 4 dim, llama, qwen: 8/3 dim rounded up to 64"},
      first({"model.vocab", kModel<&K::vocab>, from_to(1, kWide),
             "token ids; with data.tokenizer = \"bpe\": how many to learn", "the preset's, else the tokenizer's"}),
      first({"model.seq", kModel<&K::seq>, from_to(1, kWide), "tokens of a sequence", kShape}),
      {"model.tie_embeddings", kModel<&K::tie_embeddings>, truth(), "embedding and head share one matrix",
       true_for([](const auto& each) { return each.tie_embeddings; })},
      {"model.vocab_block", kModel<&K::vocab_block>, from_to(0, kWide),
       "rows of embedding and head that are gathered, reduced and multiplied at a time, a multiple of 8, to save "
       "memory; 0: all"},
      bits({"model.dropout", kModel<&K::dropout>, fraction(),
            "gpt2: probability that a channel is dropped in training"}),
      {"model.rope_theta", kModel<&K::rope_theta>, above(0), "llama, qwen: base of the rotary angles"},
      {"model.rope_scaling", kModel<&K::rope_scaling>, {}, "llama, qwen: Llama 3's scaling of the rotary angles"},
      {"model.bias", kModel<&K::bias>, truth(), "gpt2: biases of linear maps and norms; nanoGPT's default is false"},
      {"model.qkv_bias", kModel<&K::qkv_bias>, truth(), "llama: biases on q, k and v; qwen2 always has them",
       true_for([](const auto& each) { return each.qkv_bias == Part::always; })},
      {"model.qk_norm", kModel<&K::qk_norm>, truth(), "llama: RMSNorm of each head's q and k; qwen3 always has it",
       true_for([](const auto& each) { return each.qk_norm == Part::always; })},
      {"model.norm_eps", kModel<&K::norm_eps>, above(0), "added to the variance in every norm"},
      {"model.init", kModel<&K::init>,
       text("random | path of a run, a checkpoint, a weights file or a Hugging Face folder"),
       "initial weights; a path fine-tunes: model and tokenizer keys that the deck leaves out are read from there"},
      bits({"model.base_dtype", kModel<&K::base_dtype>, words({"none", "int8", "nf4"}),
            "with model.lora: matrices of the frozen base in 8 or 4 bits per weight, in blocks of 64; none: in "
            "train.precision's type"}),
  };
}

std::vector<DeckRow> lora_rows() {
  using K = LoraKeys;
  return {
      {"model.lora.rank", of_lora<&K::rank>, from_to(1, kWide),
       "train low-rank adapters (LoRA) of this rank beside linear maps, and nothing else; checkpoints hold the "
       "adapters alone, model.init the frozen base",
       "no adapters"},
      {"model.lora.alpha", of_lora<&K::alpha>, above(0), "the adapters' outputs are scaled by alpha / rank"},
      bits({"model.lora.dropout", of_lora<&K::dropout>, fraction(),
            "probability that an adapter's input channel is dropped in training"}),
      {"model.lora.targets", of_lora<&K::targets>,
       text("all-linear | name of a linear map, in which * stands for any characters"),
       "linear maps with adapters, by the end of Hugging Face's names, as q_proj or mlp.*; all-linear: all but the "
       "head's"},
      {"model.lora.rslora", of_lora<&K::rslora>, truth(), "scale by alpha / sqrt(rank) instead"},
      {"model.lora.init", of_lora<&K::init>, text("none | path of a PEFT folder"),
       "the adapters' weights at the first step; the other keys of this section are read from there if left out"},
  };
}

std::vector<DeckRow> data_rows() {
  using K = DataKeys;
  return {
      first({"data.text", kData<&K::text>, text("path of a file or a folder"),
             "text, JSON lines or Parquet to train on; give one of data.text, data.source, data.tokens, data.synthetic",
             "none"}),
      {"data.source", kData<&K::source>, text("data.source"),
       "text of several sources; an epoch has each source repeat times, or samples are drawn by weight", "none"},
      {"data.tokens", kData<&K::tokens>, text("path of a token shard (.bin)"),
       "token shards to train on, as `kozero prepare` and llm.c write them", "none"},
      {"data.synthetic", kData<&K::synthetic>, truth(), "train on a seeded Markov source of known entropy"},
      first({"data.tokenizer", kData<&K::tokenizer>,
             text("bytes | chars | bpe | bpe:N | path of a tokenizer.json or SentencePiece .model"),
             "tokenizer of the text; chars: an id for each character of the text; bpe learns model.vocab ids from the "
             "text"}),
      {"data.text_field", kData<&K::text_field>, text("name"),
       "key of JSON lines and column of Parquet that has the text of a document"},
      {"data.filter", kData<&K::filter>, text("COLUMN SIGN NUMBER"),
       "which records of JSON lines and Parquet are documents, such as \"int_score >= 3\"", "all"},
      {"data.chat_template", kData<&K::chat_template>,
       words({"none", "auto", "chatml", "qwen2", "qwen2.5", "qwen3", "llama3", "plain"}),
       "records of JSON lines are conversations that this template writes, and only answers are trained; auto: the "
       "template in the folder of data.tokenizer"},
      {"data.on_bad_document", kData<&K::on_bad_document>, words({"stop", "skip"}),
       "what to do with a record that is damaged or has no text: stop, or skip and count it"},
      {"data.deduplicate", kData<&K::deduplicate>, truth(), "of documents with equal text, only the first is used"},
      first({"data.val_fraction", kData<&K::val_fraction>, from_to(0, kMostValidation),
             "share of the data that is kept for validation"}),
      bits({"data.pack", kData<&K::pack>, words({"stream", "best_fit"}),
            "sequences: windows of all tokens one behind the other, or whole documents, few of them cut"}),
      bits({"data.mask_documents", kData<&K::mask_documents>, truth(),
            "attention stays inside each document, and positions restart at its first token, the end-of-text token"}),
      bits({"data.grow", kData<&K::grow>, truth(),
            "text may be added while the run is under way or stopped: an epoch has the files that are there when it "
            "begins"}),
      {"data.cache", kData<&K::cache>, text("path of a folder that all ranks see"),
       "folder of the tokens made from data.text, shared by runs", ".tokens beside run.dir"},
      {"data.strict", kData<&K::strict>, truth(),
       "check every token shard, and the text of which it was made, before the first step, and refuse to resume on "
       "data "
       "other than the checkpoint's"},
  };
}

std::vector<DeckRow> train_rows() {
  using K = TrainKeys;
  return {
      first({"train.global_batch", kTrain<&K::global_batch>, from_to(1, kWide), "sequences per step, over all ranks",
             "none: give it, or accumulate"}),
      first({"train.micro_batch", kTrain<&K::micro_batch>, from_to(1, kWide),
             "sequences per forward pass of a rank; gradients are added in units of this many sequences"}),
      {"train.accumulate", kTrain<&K::accumulate>, from_to(1, kWide),
       "micro-steps per step (gradient accumulation); instead of global_batch", "global_batch / (micro_batch * ranks)"},
      {"train.base_ranks", kTrain<&K::base_ranks>, from_to(1, kWide), "number of ranks that batch_scaling starts from"},
      {"train.batch_scaling", kTrain<&K::batch_scaling>, words(all_of(kBatchScalings)),
       "how global batch and learning rate grow with ranks / base_ranks"},
      first({"train.precision", kTrain<&K::precision>, words({"f32", "bf16", "fp16"}),
             "type of weights and activations; with bf16 and fp16, master weights, optimizer state, gradients and sums "
             "stay in f32"}),
      bits({"train.seq", kTrain<&K::seq>, from_to(1, kWide), "tokens of a sequence, at most model.seq", "model.seq"}),
      first({"train.recompute",
             kTrain<&K::recompute>,
             {.low = 1, .high = kMostTogether, .words = all_of(kRecomputes)},
             "activation checkpointing: what backward recomputes instead of storing; full: each block from its input; "
             "selective: the same, but attention's result is stored; N: N blocks from the first one's input; results "
             "stay bit-identical"}),
      bits({"train.grad_clip", kTrain<&K::grad_clip>, from(0), "largest global gradient norm; 0: no clipping"}),
      bits({"train.on_nonfinite", kTrain<&K::on_nonfinite>, words({"stop", "skip"}),
            "what happens if a loss or gradient is not finite: stop the run, or skip the update"}),
      {"train.max_skips", kTrain<&K::max_skips>, from_to(1, kMany),
       "updates in a row that on_nonfinite = \"skip\" may skip; one more stops the run"},
      bits({"train.loss_scale", kTrain<&K::loss_scale>, from_to(0, kWide),
            "fp16: factor on the loss, a power of two; 0: dynamic, from 65536, halved at each overflow"}),
      bits({"train.loss_scale_window", kTrain<&K::loss_scale_window>, from_to(1, kMany),
            "fp16: steps in a row without overflow after which a dynamic loss scale is doubled"}),
      first({"train.eval_every", kTrain<&K::eval_every>, from_to(0, kMany),
             "steps between evaluations on the validation data; 0: only at the end"}),
      {"train.eval_batches", kTrain<&K::eval_batches>, from_to(0, kMany),
       "global batches per evaluation, spread evenly over the validation data; 0: all of it"},
  };
}

std::vector<DeckRow> optim_rows() {
  using K = OptimKeys;
  return {
      bits({"optim.kind", kOptim<&K::kind>, words(all_of(kOptimizers)), "optimizer"}),
      bits(first({"optim.lr", kOptim<&K::lr>, from(0), "learning rate at its peak"})),
      bits({"optim.betas", kOptim<&K::betas>, fraction(), "adamw: decay of the first and the second moment"}),
      bits({"optim.eps", kOptim<&K::eps>, above(0), "adamw: added to the root of the second moment"}),
      bits({"optim.weight_decay", kOptim<&K::weight_decay>, from(0), "decoupled weight decay, on matrices only"}),
      bits({"optim.momentum", kOptim<&K::momentum>, fraction(), "sgd: decay of the velocity"}),
      bits(first({"optim.schedule", kOptim<&K::schedule>, words(all_of(kSchedules)),
                  "learning rate after warm-up; wsd: constant, then a decay over the last decay_steps"})),
      bits(first({"optim.warmup_steps", kOptim<&K::warmup_steps>, from_to(0, kMany),
                  "steps of linear warm-up from 0 to lr; at most the run's steps",
                  "5 % of the run's steps, at most 1000"})),
      bits({"optim.decay_steps", kOptim<&K::decay_steps>, from_to(1, kMany), "steps of the decay from lr to min_lr",
            "from the end of warm-up to the last step"}),
      bits({"optim.min_lr", kOptim<&K::min_lr>, from(0),
            "learning rate after the last step of the decay (docs/optimizers.md)"}),
      bits({"optim.layer_decay", kOptim<&K::layer_decay>, above(0),
            "factor on the learning rate from each block to the one below; the last block has lr, the embedding the "
            "lowest rate; 1: one rate for all"}),
      bits({"optim.freeze", kOptim<&K::freeze>, list_or_none("name of a tensor, in which * stands for any characters"),
            "tensors that are not trained, by Hugging Face's names; a unit whose tensors are all frozen has no "
            "gradient and no "
            "optimizer state, in another unit frozen tensors have zeros that take memory",
            "none"}),
  };
}

std::vector<DeckRow> zero_rows() {
  using K = ZeroKeys;
  return {
      first({"zero.stage", kZero<&K::stage>, from_to(0, 3),
             "what is sharded over ranks; 0: nothing, 1: optimizer state, 2: and gradients, 3: and parameters"}),
      {"zero.accumulation", kZero<&K::accumulation>, words(all_of(kAccumulations)),
       "ordered: reduce every micro-step, so results do not depend on the number of ranks; local (stages 0, 1): reduce "
       "once per step, so they do"},
      {"zero.overlap", kZero<&K::overlap>, truth(),
       "reduce a unit's gradients while the next unit's are computed; false: wait for each"},
      {"zero.bucket_mib", kZero<&K::bucket_mib>, from_to(0, kWide),
       "pack consecutive blocks into one collective up to this many MiB of f32 gradients; 0: one block each; results "
       "stay bit-identical"},
      {"zero.prefetch_units", kZero<&K::prefetch_units>, from_to(0, kMostTogether),
       "stage 3: units gathered ahead of the one in use; each needs one more buffer"},
      {"zero.shard_group",
       kZero<&K::shard_group>,
       {.low = 1, .high = kWide, .words = {"all", "node"}},
       "ranks that share one sharded copy of the state (hybrid sharding, HSDP): all ranks, those of a node, or N "
       "consecutive ones"},
      {"zero.offload_optimizer", kZero<&K::offload_optimizer>, words({"none", "host", "disk"}),
       "where moments and master weights are; none: in the device's memory; disk (CPU runs): in files; host (GPU "
       "runs): in the host's memory, updated by its cores"},
      {"zero.offload_parameters", kZero<&K::offload_parameters>, words({"none", "host", "disk"}),
       "stage 3: the same for the weights that the model reads"},
      {"zero.offload_dir", kZero<&K::offload_dir>, text("path of a folder"),
       "existing folder, on a local disk of each node, for the offload files; they are removed when the run ends",
       "run.dir, or the nearest existing folder above it"},
      {"zero.offload_mib", kZero<&K::offload_mib>, from_to(1, kWide),
       "MiB of memory per rank for the offloaded state that an update has in use"},
  };
}

std::vector<DeckRow> comm_rows() {
  using K = CommKeys;
  return {
      {"comm.backend", kComm<&K::backend>, words(distributed::backend_names()),
       "collectives; auto: self on 1 rank, nccl with one GPU per rank, shm on one node, else mpi"},
      {"comm.exact", kComm<&K::exact>, truth(),
       "nccl, ring: add in rank order, as mpi and shm always do, so results do not depend on the number of ranks"},
      {"comm.throttle_gbit", kComm<&K::throttle_gbit>, from(0),
       "rate of a simulated network link per rank, in 10^9 bits per second: a collective lasts at least as long as "
       "sending its bytes; 0: no limit"},
      {"comm.latency_us", kComm<&K::latency_us>, from(0),
       "microseconds that each collective takes beside its bytes on a simulated network; 0: none"},
      {"comm.timeout_s", kComm<&K::timeout_s>, above(0),
       "seconds after which a waiting collective reports the lost rank and ends the run"},
  };
}

std::vector<DeckRow> checkpoint_rows() {
  using K = CheckpointKeys;
  return {
      first({"checkpoint.every", kCheckpoint<&K::every>, from(0),
             "steps between checkpoints; the last step is saved too; 0: no checkpoints"}),
      {"checkpoint.every_minutes", kCheckpoint<&K::every_minutes>, from(0),
       "also save when so much time has passed since the last save; 0: by steps only"},
      first({"checkpoint.keep", kCheckpoint<&K::keep>, from(0), "newest checkpoints to keep; 0: all"}),
      {"checkpoint.keep_best", kCheckpoint<&K::keep_best>, truth(),
       "also keep the checkpoint with the lowest validation loss; each save then starts with a validation"},
      {"checkpoint.async", kCheckpoint<&K::async>, truth(),
       "write from a copy in host memory while training continues"},
      {"checkpoint.staging_mib", kCheckpoint<&K::staging_mib>, from_to(0, kWide),
       "most MiB per rank for that copy; 0: what it needs"},
      {"checkpoint.on_error", kCheckpoint<&K::on_error>, words({"stop", "continue"}),
       "what the run does if a checkpoint or metrics cannot be written; older checkpoints stay in any case"},
      {"checkpoint.io_timeout_s", kCheckpoint<&K::io_timeout_s>, above(0),
       "seconds after which a hanging save counts as failed"},
      first({"checkpoint.resume", kCheckpoint<&K::resume>,
             text("none | auto | path of a checkpoint, a run or a weights file"),
             "where to continue from; auto: the newest complete checkpoint in run.dir, if there is one"}),
  };
}

std::vector<DeckRow> log_rows() {
  using K = LogKeys;
  return {
      {"log.every", kLog<&K::every>, from_to(1, kMany), "steps between printed lines; metrics.jsonl has every step"},
      {"log.timeline", kLog<&K::timeline>, words({"none", "rank0", "all"}),
       "ranks whose kernels, collectives and waits are recorded for some steps: `kozero timeline` (docs/timeline.md)"},
      {"log.timeline_from", kLog<&K::timeline_from>, from_to(1, kMany), "log.timeline: first step that is recorded"},
      {"log.timeline_steps", kLog<&K::timeline_steps>, from_to(1, 100), "log.timeline: number of steps"},
      {"log.tensorboard", kLog<&K::tensorboard>, truth(),
       "whether metrics are written for TensorBoard too, into RUN/tensorboard"},
      {"log.sample", kLog<&K::sample>, from_to(0, 10000),
       "most tokens of the text that rank 0 samples from a complete run's model, in 5 s at most; 0: none"},
  };
}

std::vector<DeckRow> all_rows() {
  std::vector<DeckRow> rows;
  for (const auto& section : {run_rows(), model_rows(), lora_rows(), data_rows(), train_rows(), optim_rows(),
                              zero_rows(), comm_rows(), checkpoint_rows(), log_rows()}) {
    rows.insert(rows.end(), section.begin(), section.end());
  }
  return rows;
}

}  // namespace

const std::vector<DeckRow>& deck_schema() {
  static const std::vector<DeckRow> rows = all_rows();
  return rows;
}

}  // namespace kozero::io
