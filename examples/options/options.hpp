// The command-line options of trainers and scoring programs, as plain structs of their values. Parsing is compiled once
// (options.cpp); a wrong value ends the program with one sentence before anything starts.
#pragma once

#include <dhp/comm/elastic/next_layout.hpp>
#include <dhp/comm/rendezvous/process_rank.hpp>
#include <dhp/extra/all_training_options.hpp>
#include <dhp/extra/synthetic_gradients.hpp>

#include "fine_tuning.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace examples {

class Stopping;

/// Parses the replicas of a job whose ranks may join and leave: "2:4", or "2:" for at least 2.
[[nodiscard]] dhp::LayoutRules parse_elastic(const std::string& text);

enum class RanksAre { threads, processes, on_gpus };

/// The options of the library and of the program. Values that follow from the run's length and data are not set yet.
struct RunOptions : dhp::AllTrainingOptions {
  std::optional<dhp::LayoutRules> elastic{};  ///< limits on the number of replicas
  bool elastic_axes = false;   ///< lets tensor and pipeline axes change, too; else they stay
  std::string axes = "given";  ///< or "auto": the planner chooses the axes for the number of ranks
  std::string cluster;         ///< file with the planner's cluster; empty: a typical machine
  std::string etcd;            ///< endpoints of an elastic job's store; empty: rank 0 holds it
  std::optional<dhp::SyntheticGradients> synthetic_gradients{};
  std::string reducer_name = "bucketed";  ///< value of --reducer

  std::int64_t global_batch = 32;
  std::int64_t micro_batch = 8;
  std::optional<std::int64_t> steps{};  ///< none: given by epochs
  double epochs = 0;
  std::int64_t stop_after = 0;   ///< step after which the run saves and ends; 0: the last step
  bool library_dropout = false;  ///< uses cuDNN's dropout in attention
  int cublas_sms = 0;            ///< multiprocessors for matrix products; 0: all
  bool tf32 = false;             ///< lets GPUs round f32 to TF32 before they multiply
  bool recompute = false;
  bool exchange_heads = false;      ///< exchanges rows for heads on a context axis
  std::vector<std::string> idle{};  ///< a sentence for each given option without effect
  int threads = 1;                  ///< threads per rank inside its ops, on the CPU
  int device = 0;  ///< first GPU of this process; its other local ranks take the next GPUs
  std::optional<bool> cuda_graphs{};  ///< records steps of fixed shapes; none: with one rank only
  int loader_threads = 1;
  double memory_limit_gb = 0;  ///< limit for one rank; 0: the memory of the host or GPU

  std::string data = "synthetic";
  std::int64_t samples = 0;  ///< training samples to use; 0: all
  double held_out = 0.02;
  std::int64_t evaluate_every = 0;    ///< interval in steps; 0: only at start and end
  std::int64_t evaluate_samples = 0;  ///< 0: the whole held-out set
  bool evaluate_only = false;         ///< evaluates the loaded model, then ends
  bool skip_bad = false;
  std::int64_t shuffle_window = 0;  ///< window in samples; 0: all samples

  std::string metrics;
  std::string tensorboard;   ///< directory for event files; empty: none
  std::string trace;         ///< trace file; empty: none
  std::string trace_values;  ///< file for fingerprints of layer outputs; empty: none
  double peak_tflops = 0;    ///< peak of one rank; 0: unknown
  std::string save;
  std::string resume;  ///< folder to continue from and to save to; empty: see load and save
  std::int64_t save_every = 0;
  std::int64_t keep = 0;   ///< number of newest checkpoints to keep; 0: all
  std::string keep_best;   ///< a measure; the checkpoint that is best by it is kept too
  bool overwrite = false;  ///< lets --save and --metrics replace files of another run
  std::string export_to;   ///< directory for weights in other programs' formats; empty: none
  double grace_s = 60;     ///< seconds for saving after SIGTERM and similar signals
  std::shared_ptr<Stopping> stopping{};  ///< made by main before data are read
  std::string load;
  dhp::DataPosition from{};  ///< data position in the checkpoint of `load`
  bool load_all = false;     ///< a weight file must contain the whole model
  bool new_head = false;     ///< gives the last layers new weights
  FineTuning tuning{};
  std::string stop_early;     ///< ends the run when this measure stops improving; empty: never
  std::int64_t patience = 3;  ///< evaluations without improvement that end the run
  std::optional<double> comm_timeout{};  ///< none: learned, see dhp::Deadlines
  std::string flight_record;             ///< file for each rank's calls; empty: none
  bool check_collectives = false;
  std::int64_t verify_every = 0;  ///< interval in steps; 0: never
  dhp::RankOverrides rank_flags{.rank_name = "--rank",
                                .size_name = "--world-size",
                                .local_rank_name = "--local-rank",
                                .master_name = "--master"};
  std::string network_interface;
  std::string transport = "automatic";  ///< or "mpi", "gloo"
  double min_bandwidth_gb_s = 0;        ///< minimum for every axis; 0: none

  /// All options, given or not, in the format of --config.
  std::string configuration{};
  /// JSON of the options that all ranks must share (common_options.hpp).
  std::string common = "{}";
  /// JSON of the given options that define the training. A checkpoint stores it, and --load reads it.
  std::string remembered = "{}";
  std::vector<std::string>
      differing{};  ///< a sentence for each option that the saved run had otherwise

  /// Returns this process's rank if its flags or a launcher's variables make it one of several. Otherwise returns
  /// nullopt: it starts all ranks as threads. Throws dhp::Error for wrong flags or variables.
  [[nodiscard]] std::optional<dhp::ProcessRank> process() const;
  /// Returns why this process's job does not fit the layout; empty if it does.
  [[nodiscard]] std::string layout_mismatch(const dhp::ProcessRank& me) const;
  /// Returns whether this process prints messages.
  [[nodiscard]] bool prints() const;

  /// Throws if the layout has more ranks than one process can start.
  void check_ranks() const;
  /// Throws if the run writes into a folder whose files are all training data, which its next start would read, or if
  /// the test data are a part of them. test_data, cache: may be empty; cache is one more folder that the run writes to.
  void check_outside(const std::string& folder, const std::string& test_data,
                     const std::string& cache = "") const;

  /// Returns the number of steps of the run over these batches.
  [[nodiscard]] std::int64_t total_steps(const dhp::Batching& batching) const;
  /// Throws if other options conflict with --synthetic-gradients.
  void finish_synthetic();
  void check_context() const;
  /// Adds the predictors of synthetic gradients, if any, before the first step. example: a micro-batch.
  void prepare(auto& run, const auto& example) const {
    if (synthetic_gradients) synthetic_gradients->predict_in(run, example);
  }
  /// Returns whether each step uses the complete sum of its own gradients.
  [[nodiscard]] bool sums_all() const {
    return std::holds_alternative<dhp::Bucketed>(reducer) ||
           std::holds_alternative<dhp::Plain>(reducer);
  }
  /// Returns whether replicas step alone, or with sums of earlier gradients.
  [[nodiscard]] bool is_late() const {
    return std::holds_alternative<dhp::Delayed>(reducer) ||
           std::holds_alternative<dhp::LocalSgd>(reducer);
  }
  /// Returns whether a GPU records and replays steps. same_shapes: the shapes of all steps' micro-batches are the same.
  [[nodiscard]] bool records_steps(bool same_shapes) const;
  /// Throws if the learning rate's decay does not fit this number of steps.
  void check_decay(std::int64_t total_steps) const;
  /// Returns likely mistakes in a run of this length, a sentence each.
  [[nodiscard]] std::vector<std::string> warnings(std::int64_t total_steps) const;
  /// Returns a sentence for each part of the run's state that no checkpoint holds: it starts anew after --load.
  [[nodiscard]] std::vector<std::string> not_saved() const;
  /// Returns the library's options for a run of this length.
  [[nodiscard]] dhp::AllTrainingOptions training(std::int64_t total_steps) const;
  /// Returns whether data are "synthetic", or "synthetic-resident": the input of one step, kept on the device.
  [[nodiscard]] bool synthetic() const { return data == "synthetic" || resident(); }
  [[nodiscard]] bool resident() const { return data == "synthetic-resident"; }
  /// Returns whether --load names weights, not a checkpoint, so that training starts at step 0.
  [[nodiscard]] bool loads_only_weights() const;
};

/// Options of text models: all of train_gpt's, and part of train_bert's.
struct TextModelOptions {
  RunOptions run{};
  std::string preset;  ///< empty: the model of --load, else tiny
  std::int64_t sequence_length = 128;
  double dropout = 0;
  bool sequence_parallel = false;
  std::string vocabulary;  ///< a vocab.txt or tokenizer.json; empty: trained on the text
  std::int64_t vocabulary_size = 8192;
  std::string text_cache;                   ///< directory for the tokenized text; empty: none
  std::vector<std::string> text_columns{};  ///< one column; two if classify reads pairs
  std::string test_data;                    ///< data to evaluate on; empty: held out of --data
};
struct BertOptions : TextModelOptions {
  std::string sentences = "automatic";
  std::string layout = "packed";
  bool whole_word_masking = false;
  std::string task = "pretrain";  ///< or "classify"
  std::string label_column;
};

struct ResNetOptions {
  RunOptions run{};
  int depth = 50;
  std::int64_t width = 64;
  std::int64_t image_size = 0;  ///< 0: given by the data; 224 for synthetic images
  std::int64_t classes = 0;     ///< 0: given by the data; 1000 for synthetic images
  int stem_stride = 1;
  bool zero_init_gamma = false;
  bool sync_batch_norm = false;
  bool augment = false;
  double label_smoothing = 0;
  std::string test_data;             ///< data to evaluate on; empty: held out of --data
  std::string normalize = "data";    ///< or "imagenet"
  bool exif = false;                 ///< turns images by their EXIF orientation
  std::optional<int> first_label{};  ///< first label of shards; none: detected
  std::string index;                 ///< folder for the index of shards; empty: the shards' own
  std::string cache;                 ///< folder that caches blocks of shards; empty: none
  double cache_gb = 10;              ///< size limit of the cache, in 10^9 bytes
};

/// Options of score_bert, score_gpt and score_resnet50.
struct ScoreOptions {
  RunOptions run{};    ///< layout, processes, precision, batches; run.load is the model
  std::string input;   ///< sentences in lines, .csv, .tsv or .jsonl; or images
  std::string output;  ///< .csv, .jsonl or .npy; empty: JSON lines on standard output
  std::vector<std::string> text_columns{};  ///< of a .csv, .tsv or .jsonl file; two for pairs
  // Options for sentences:
  std::string predict = "automatic";     ///< or "embeddings", "logits"
  std::optional<std::string> pooling{};  ///< "mean" or "first"; none: the model's own
  std::optional<bool> normalize{};       ///< none: the model's own
  std::int64_t sequence_length = 0;      ///< 0: the model's own
  // Options for a decoder:
  std::vector<std::string> prompts{};  ///< texts to continue, instead of an input
  std::int64_t tokens = 50;            ///< maximum tokens to generate
  double temperature = 0;              ///< 0: the likeliest token
  std::int64_t top_k = 0;              ///< number of tokens to choose from; 0: all
  bool cache = true;                   ///< caches keys and values
  double top_p = 1;                    ///< chooses from the likeliest tokens with this total share
};

/// Parsed options, or the exit status of a run that ends here (--help, --version, a wrong value).
template <class Options>
struct Parsed {
  Options options{};
  std::optional<int> exit_status{};
};
/// gpu: the program is built for GPUs and has their options instead of the CPU's. micro_batch: the option's default.
[[nodiscard]] Parsed<BertOptions> parse_bert(int argc, char** argv, bool gpu,
                                             std::int64_t micro_batch = 8);
[[nodiscard]] Parsed<TextModelOptions> parse_gpt(int argc, char** argv, bool gpu,
                                                 std::int64_t micro_batch = 8);
[[nodiscard]] Parsed<ResNetOptions> parse_resnet(int argc, char** argv, bool gpu,
                                                 std::int64_t micro_batch = 8);

// Their parser is compiled separately (score_options.cpp).
[[nodiscard]] Parsed<ScoreOptions> parse_score_bert(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_gpt(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_resnet(int argc, char** argv, bool gpu);

/// Returns the name of a precision, such as "fp32".
[[nodiscard]] std::string precision_name(dhp::DType precision);

}  // namespace examples
