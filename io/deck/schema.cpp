// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// schema.cpp: the rows of the deck: key, member, accepted values, meaning, default.
#include "io/deck/schema.hpp"
#include <kozero/core/architecture.hpp>

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

Accepted anything() { return {}; }
Accepted from(double low) { return {.low = low}; }
Accepted from_to(double low, double high) { return {.low = low, .high = high}; }
Accepted above(double low) { return {.low = low, .low_open = true}; }
Accepted fraction() { return {.low = 0, .high = 1, .high_open = true}; }
Accepted words(std::vector<std::string> all) { return {.words = std::move(all)}; }

constexpr double kMany = 1e12;     // steps, epochs: far beyond any run, far below overflow
constexpr double kWide = 1 << 24;  // widths and counts whose products must fit 64 bits
constexpr double kMostValidation = 0.5;  // more is a slip: the run would train on the smaller part
constexpr double kMostTogether = 64;     // units gathered ahead, blocks computed again together
constexpr const char* kShape = "the preset's";

std::vector<DeckRow> run_rows() {
  using K = RunKeys;
  return {
      {"run.dir", kRun<&K::dir>, anything(), "the run's own folder; -2, -3 ... is appended where it exists",
       "runs/ and the deck's name"},
      {"run.seed", kRun<&K::seed>, from(0), "names all random streams: weights, data order, dropout"},
      {"run.steps", kRun<&K::steps>, from_to(1, kMany), "updates in total, from the beginning", "run.epochs is given"},
      {"run.epochs", kRun<&K::epochs>, from_to(1, kMany), "passes over the data", "run.steps is given"},
      {"run.ranks", kRun<&K::ranks>, from_to(1, kWide), "processes to start where no launcher and no -n says"},
      {"run.threads", kRun<&K::threads>, from_to(1, kWide), "threads of each rank", "the cores shared out evenly"},
      {"run.device", kRun<&K::device>, words({"auto", "host", "cuda"}), "where the arrays live"},
      {"run.products", kRun<&K::products>, words({"fastest", "library", "tf32"}),
       "who multiplies matrices: a processor's tile units where it has any, always the library, or for f32 on GPUs "
       "tensor "
       "cores, in TF32"},
      {"run.tuning", kRun<&K::tuning>, anything(),
       "file of `kozero bench tune`: by which algorithm each kind of product is computed; none: by a fixed rule"},
      {"run.deterministic", kRun<&K::deterministic>, anything(), "the same bits on every repetition"},
      {"run.max_minutes", kRun<&K::max_minutes>, from(0), "stop in good order after this time; 0: no limit"},
      {"run.stop_signals", kRun<&K::stop_signals>,
       words({"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU"}),
       "signals to any rank at which all save a checkpoint (checkpoint.every = 0: the weights) and end with status 75"},
      {"run.check_every", kRun<&K::check_every>, from_to(0, kMany),
       "steps between checks that no bit of the state changed but by an update, and that ranks' copies are equal; 0: "
       "never"},
  };
}

/// What a flag means that is not given: "true for gpt2, else false".
template <class Holds>
std::string true_for(const Holds& holds) {
  return "true for " + joined(architectures_where(holds)) + ", else false";
}

std::vector<DeckRow> model_rows() {
  using K = ModelKeys;
  using Part = Architecture::Part;
  const auto all = architectures_where([](const Architecture&) { return true; });
  return {
      {"model.arch", kModel<&K::arch>, words(all), "the kind of network"},
      {"model.preset", kModel<&K::preset>,
       words({"none", "tiny", "small", "medium", "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m", "llama-1b",
              "llama-8b", "llama-13b", "qwen2-0.5b", "qwen-0.6b", "qwen-8b"}),
       "a published shape; keys given beside it win"},
      {"model.layers", kModel<&K::layers>, from_to(1, 1e4), "transformer blocks", kShape},
      {"model.dim", kModel<&K::dim>, from_to(1, kWide), "channels; linear: inputs", kShape},
      {"model.heads", kModel<&K::heads>, from_to(1, kWide), "attention heads", kShape},
      {"model.kv_heads", kModel<&K::kv_heads>, from_to(1, kWide), "llama, qwen: key and value heads; divides heads",
       "the preset's, else as many as heads"},
      {"model.head_dim", kModel<&K::head_dim>, from_to(1, kWide), "llama, qwen: channels of a head; even",
       "dim / heads"},
      {"model.ffn", kModel<&K::ffn>, from_to(1, kWide), "hidden channels of a block; linear: outputs",
       "the preset's, else gpt2: 4 dim, llama, qwen: 8/3 dim rounded up to 64"},
      {"model.vocab", kModel<&K::vocab>, from_to(1, kWide), "token ids; with tokenizer bpe, how many to learn",
       "the preset's, else the tokenizer's"},
      {"model.seq", kModel<&K::seq>, from_to(1, kWide), "positions: tokens of a sequence", kShape},
      {"model.tie_embeddings", kModel<&K::tie_embeddings>, anything(), "embedding and head are one matrix",
       true_for([](const auto& each) { return each.tie_embeddings; })},
      {"model.vocab_block", kModel<&K::vocab_block>, from_to(0, kWide),
       "rows of embedding and head that are gathered, reduced and multiplied at a time, a multiple of 8; 0: all"},
      {"model.dropout", kModel<&K::dropout>, fraction(), "gpt2: probability that a channel is dropped in training"},
      {"model.rope_theta", kModel<&K::rope_theta>, above(0), "llama, qwen: base of the rotary angles"},
      {"model.rope_scaling", kModel<&K::rope_scaling>, anything(),
       "llama, qwen: Llama 3's stretching of the rotary angles; all of it is in one table"},
      {"model.qkv_bias", kModel<&K::qkv_bias>, anything(), "llama: biases on q, k and v; qwen2 always has them",
       true_for([](const auto& each) { return each.qkv_bias == Part::always; })},
      {"model.qk_norm", kModel<&K::qk_norm>, anything(), "llama: RMSNorm of each head's q and k; qwen3 always has it",
       true_for([](const auto& each) { return each.qk_norm == Part::always; })},
      {"model.norm_eps", kModel<&K::norm_eps>, above(0), "added to the variance in every norm"},
      {"model.init", kModel<&K::init>, anything(),
       "weights to start from: random, or the path of a run, checkpoint, weights file or Hugging Face folder to "
       "fine-tune; keys of the model and the tokenizer, left out, come from there"},
  };
}

std::vector<DeckRow> data_rows() {
  using K = DataKeys;
  return {
      {"data.text", kData<&K::text>, anything(), "UTF-8 files or folders to train on", "not the source of this run"},
      {"data.tokens", kData<&K::tokens>, anything(), "token shards (.bin) to train on", "not the source of this run"},
      {"data.synthetic", kData<&K::synthetic>, anything(), "train on a seeded Markov source of known entropy"},
      {"data.tokenizer", kData<&K::tokenizer>, anything(),
       "bytes, bpe (learned from the text), or a file: tokenizer.json, .model"},
      {"data.val_fraction", kData<&K::val_fraction>, from_to(0, kMostValidation),
       "share of the data kept for validation"},
      {"data.strict", kData<&K::strict>, anything(),
       "read and check all token shards before the first step, and refuse to resume on data other than the "
       "checkpoint's"},
  };
}

std::vector<DeckRow> train_rows() {
  using K = TrainKeys;
  return {
      {"train.global_batch", kTrain<&K::global_batch>, from_to(1, kWide), "sequences of a step, over all ranks",
       "micro_batch * ranks * accumulate"},
      {"train.micro_batch", kTrain<&K::micro_batch>, from_to(1, kWide),
       "sequences that a rank computes at once; a step's sums are added in their order"},
      {"train.accumulate", kTrain<&K::accumulate>, from_to(1, kWide), "micro-steps of a step",
       "derived from global_batch"},
      {"train.base_ranks", kTrain<&K::base_ranks>, from_to(1, kWide), "rank count that batch_scaling starts from"},
      {"train.batch_scaling", kTrain<&K::batch_scaling>, words({"none", "linear", "sqrt"}),
       "how batch and rate grow with ranks / base_ranks"},
      {"train.precision", kTrain<&K::precision>, words({"f32", "bf16", "fp16"}),
       "weights and activations; bf16, fp16: master weights, moments, gradients and sums stay in f32"},
      {"train.recompute",
       kTrain<&K::recompute>,
       {.low = 1, .high = kMostTogether, .words = {"none", "selective", "full"}},
       "activations that backward recomputes; full: all of a block but its input; selective: the same, but attention's "
       "result is kept; N: all of N blocks but the first one's input; changes no bit"},
      {"train.grad_clip", kTrain<&K::grad_clip>, from(0), "largest global gradient norm; 0: no clipping"},
      {"train.on_nonfinite", kTrain<&K::on_nonfinite>, words({"stop", "skip"}),
       "what a non-finite loss or gradient does to the step"},
      {"train.max_skips", kTrain<&K::max_skips>, from_to(1, kMany),
       "steps in a row that on_nonfinite = skip may leave out; one more stops the run"},
      {"train.loss_scale", kTrain<&K::loss_scale>, from_to(0, kWide),
       "fp16: factor on the loss's gradient, a power of two; 0: dynamic, from 65536 on, halved by each overflow"},
      {"train.loss_scale_window", kTrain<&K::loss_scale_window>, from_to(1, kMany),
       "fp16: steps in a row without overflow after which a dynamic loss scale is doubled"},
      {"train.eval_every", kTrain<&K::eval_every>, from_to(0, kMany), "steps between evaluations; 0: only at the end"},
      {"train.eval_batches", kTrain<&K::eval_batches>, from_to(0, kMany),
       "global batches of an evaluation, spread evenly over the validation data; 0: all of it"},
  };
}

std::vector<DeckRow> optim_rows() {
  using K = OptimKeys;
  return {
      {"optim.kind", kOptim<&K::kind>, words({"adamw", "sgd"}), "the update"},
      {"optim.lr", kOptim<&K::lr>, from(0), "learning rate, its largest over the schedule"},
      {"optim.betas", kOptim<&K::betas>, fraction(), "adamw: decay of the two moments"},
      {"optim.eps", kOptim<&K::eps>, above(0), "adamw: added to the root of the second moment"},
      {"optim.weight_decay", kOptim<&K::weight_decay>, from(0), "decoupled, on matrices only"},
      {"optim.momentum", kOptim<&K::momentum>, fraction(), "sgd: decay of the velocity"},
      {"optim.schedule", kOptim<&K::schedule>, words({"constant", "linear", "cosine", "wsd"}),
       "the rate after warm-up; wsd: constant, then a decay over the last decay_steps"},
      {"optim.warmup_steps", kOptim<&K::warmup_steps>, from_to(0, kMany),
       "steps of linear rise from 0 to lr; clamped to the run's steps"},
      {"optim.decay_steps", kOptim<&K::decay_steps>, from_to(1, kMany), "steps of the fall from lr to min_lr",
       "from the end of warm-up to the last step"},
      {"optim.min_lr", kOptim<&K::min_lr>, from(0), "the rate at the end of the fall"},
  };
}

std::vector<DeckRow> zero_rows() {
  using K = ZeroKeys;
  return {
      {"zero.stage", kZero<&K::stage>, from_to(0, 3),
       "what is sharded: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters"},
      {"zero.accumulation", kZero<&K::accumulation>, words({"ordered", "local"}),
       "ordered: each micro-step's gradients are added over the ranks, the same sum on any number of ranks; local, "
       "stages "
       "0 and 1: one sum over the ranks a step, equal on one number of ranks alone"},
      {"zero.overlap", kZero<&K::overlap>, anything(),
       "a unit's gradients are reduced while the next unit's are computed; false: each is waited for"},
      {"zero.bucket_mib", kZero<&K::bucket_mib>, from_to(0, kWide),
       "consecutive blocks are gathered and reduced together up to so many MiB of f32 gradients; 0: each block alone; "
       "changes no bit"},
      {"zero.prefetch_units", kZero<&K::prefetch_units>, from_to(0, kMostTogether),
       "stage 3: units gathered ahead of the one at work; each takes a buffer more"},
      {"zero.shard_group",
       kZero<&K::shard_group>,
       {.low = 1, .high = kWide, .words = {"all", "node"}},
       "ranks that state is sharded over: all, those of a node, or N consecutive ones; each such group has a replica; "
       "changes no bit where sums are in rank order"},
      {"zero.offload_optimizer", kZero<&K::offload_optimizer>, words({"none", "host", "disk"}),
       "moments and master weights; none: with the other arrays; disk (runs on the host): in files; host (runs on "
       "GPUs): in the host's memory, updated by its cores"},
      {"zero.offload_parameters", kZero<&K::offload_parameters>, words({"none", "host", "disk"}),
       "the same for the weights that the model reads, in stage 3"},
      {"zero.offload_dir", kZero<&K::offload_dir>, anything(),
       "an existing folder on a disk of each node, for these files, which end with the run", "run.dir"},
      {"zero.offload_mib", kZero<&K::offload_mib>, from_to(1, kWide),
       "MiB of a rank's memory for what an update has in use and ahead: pages of these files, beside the system's cache "
       "of them, or a GPU's buffers on the host"},
  };
}

std::vector<DeckRow> comm_rows() {
  using K = CommKeys;
  return {
      {"comm.backend", kComm<&K::backend>, words({"auto", "self", "mpi", "shm", "nccl"}),
       "who moves the bytes; auto: self on 1 rank, nccl with a GPU a rank, shm on one node, else mpi"},
      {"comm.exact", kComm<&K::exact>, anything(),
       "nccl adds in rank order, as mpi and shm always do: the same bits on any number of ranks"},
      {"comm.timeout_s", kComm<&K::timeout_s>, above(0), "seconds until a waiting collective names the lost rank"},
  };
}

std::vector<DeckRow> checkpoint_rows() {
  using K = CheckpointKeys;
  return {
      {"checkpoint.every", kCheckpoint<&K::every>, from(0), "steps between checkpoints, the last step's too; 0: none"},
      {"checkpoint.keep", kCheckpoint<&K::keep>, from(0), "newest checkpoints to keep; 0: all"},
      {"checkpoint.keep_best", kCheckpoint<&K::keep_best>, anything(),
       "keep the checkpoint with the lowest validation loss too, however old; each save of a run that goes on begins "
       "with a validation of train.eval_batches"},
      {"checkpoint.async", kCheckpoint<&K::async>, anything(),
       "write from a copy in host memory while training goes on"},
      {"checkpoint.staging_mib", kCheckpoint<&K::staging_mib>, from_to(0, kWide),
       "most MiB a rank gives to that copy; 0: what it needs"},
      {"checkpoint.on_error", kCheckpoint<&K::on_error>, words({"stop", "continue"}),
       "what a save or metrics that cannot be written do to the run; an older checkpoint stays in any case"},
      {"checkpoint.io_timeout_s", kCheckpoint<&K::io_timeout_s>, above(0),
       "seconds that training waits for a save that does not end, on a disk that hangs: then it is a save that fails"},
      {"checkpoint.resume", kCheckpoint<&K::resume>, anything(),
       "where to go on from: none, auto (the newest complete checkpoint in run.dir), a checkpoint, a run, a weights "
       "file"},
  };
}

std::vector<DeckRow> log_rows() {
  using K = LogKeys;
  return {
      {"log.every", kLog<&K::every>, from_to(1, kMany), "steps between printed lines; metrics have every step"},
  };
}

std::vector<DeckRow> all_rows() {
  std::vector<DeckRow> rows;
  for (const auto& section : {run_rows(), model_rows(), data_rows(), train_rows(), optim_rows(), zero_rows(),
                              comm_rows(), checkpoint_rows(), log_rows()}) {
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
