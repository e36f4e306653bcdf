// The trainers' command-line options, as plain structs of what they stand for. Parsing is compiled
// once (options.cpp); a wrong value ends with one sentence before any training starts.
#pragma once

#include <dhp/comm/elastic/next_layout.hpp>
#include <dhp/comm/rendezvous/process_rank.hpp>
#include <dhp/extra/reducer_choice.hpp>
#include <dhp/extra/synthetic_gradients.hpp>

#include "fine_tuning.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace examples {

class Stopping;

/// Replicas of a job whose ranks may come and go: "2:4", or "2:" for 2 and as many as there are.
[[nodiscard]] dhp::LayoutRules parse_elastic(const std::string& text);

enum class RanksAre { threads, processes, on_gpus };

struct RunOptions {
  dhp::MeshShape mesh{};
  std::optional<dhp::LayoutRules> elastic{};  ///< how many replicas
  bool elastic_axes = false;  ///< tensor and pipeline axes may change too; else they are the mesh's
  std::string axes = "given";  ///< or auto: the planner chooses them for the number of ranks
  std::string cluster;         ///< file that says what it plans for; empty: a usual machine
  std::string store;  ///< etcd's endpoints, for the store of an elastic job; empty: rank 0 holds it
  dhp::PipelineOptions pipeline{};
  std::optional<dhp::SyntheticGradients> synthetic_gradients{};
  dhp::ReducerChoice reducer = dhp::Bucketed{};
  std::string reducer_name = "bucketed";  ///< the word given to --reducer
  dhp::Sharding sharding{};
  bool state_on_host = false;

  std::int64_t global_batch = 32;
  std::int64_t micro_batch = 8;
  std::optional<std::int64_t> steps{};  ///< none: by epochs
  double epochs = 0;
  std::int64_t stop_after = 0;  ///< step after which the run saves and ends; 0: the last one
  std::uint64_t seed = 0;
  dhp::DType precision = dhp::DType::f32;
  bool deterministic = false;
  int tensor_groups = 0;         ///< 0: by the model
  int context_groups = 0;        ///< 0: as many as the context axis has ranks
  bool library_dropout = false;  ///< cuDNN draws attention's dropout
  int cublas_sms = 0;            ///< multiprocessors for matrix products; 0: all
  bool tf32 = false;             ///< GPUs may round f32 to TF32 before they multiply
  bool recompute = false;
  bool exchange_heads = false;      ///< on a context axis, rows for heads
  std::vector<std::string> idle{};  ///< a sentence for each given option that has no effect
  int threads = 1;                  ///< per rank, inside its ops, on the CPU
  int device = 0;  ///< the first GPU of this process; its local ranks take the next ones
  std::optional<bool> cuda_graphs{};  ///< record steps whose shapes stay; else with one rank only
  int loader_threads = 1;
  double memory_limit_gb = 0;  ///< of a rank; 0: what the host or the GPU has

  dhp::OptimizerChoice optimizer;
  dhp::LearningRate learning_rate{};  ///< complete except for the total number of steps
  double clip = 0;
  double skip_spikes = 0;  ///< times the usual gradient norm; 0: no step is skipped for it

  std::string data = "synthetic";
  std::int64_t samples = 0;  ///< training samples to use; 0: all
  double held_out = 0.02;
  std::int64_t evaluate_every = 0;    ///< steps; 0: at the start and the end only
  std::int64_t evaluate_samples = 0;  ///< 0: the whole held-out set
  bool evaluate_only = false;         ///< evaluate what is loaded, and end
  bool skip_bad = false;
  std::int64_t shuffle_window = 0;  ///< samples; 0: over all

  std::string metrics;
  std::string tensorboard;   ///< a directory of event files; empty: none
  std::string trace;         ///< a file; empty: none
  std::string trace_values;  ///< a file for fingerprints of what layers compute; empty: none
  double peak_tflops = 0;    ///< of a rank; 0: not known
  std::string save;
  std::string resume;  ///< goes on from there if it can, and saves there; empty: see load and save
  std::int64_t save_every = 0;
  std::int64_t keep = 0;   ///< how many checkpoints stay, the newest ones; 0: all
  std::string keep_best;   ///< a measure of evaluations: the best checkpoint is kept, too
  bool overwrite = false;  ///< --save and --metrics may replace what is another run's
  std::string export_to;   ///< directory of weights for other programs; empty: none
  double grace_s = 60;     ///< seconds from SIGTERM and its like in which it may save
  std::shared_ptr<Stopping> stopping{};  ///< made by main, before data are read
  std::string load;
  dhp::DataPosition from{};  ///< of the checkpoint in load
  bool load_all = false;     ///< a file of weights has to have all of the model
  bool new_head = false;     ///< the last layers get new weights
  FineTuning tuning{};
  std::string stop_early;  ///< a measure: the run ends when it no longer gets better; empty: none
  std::int64_t patience = 3;             ///< evaluations without a better value
  std::optional<double> comm_timeout{};  ///< none: learned, see dhp::Deadlines
  std::string flight_record;             ///< file of each rank's calls; empty: none
  bool check_collectives = false;
  std::int64_t verify_every = 0;  ///< steps; 0: none is verified
  dhp::RankOverrides rank_flags{.rank_name = "--rank",
                                .size_name = "--world-size",
                                .local_rank_name = "--local-rank",
                                .master_name = "--master"};
  std::string network_interface;
  std::string transport = "automatic";  ///< or "mpi", "gloo"
  double min_bandwidth_gb_s = 0;        ///< of every axis; 0: any will do

  /// All options, given or not, as --config takes them.
  std::string configuration{};
  /// JSON that all ranks must share (common_options.hpp).
  std::string common = "{}";
  /// JSON of the given options that choose what is trained. A checkpoint stores it, and --load reads it from there.
  std::string remembered = "{}";
  std::vector<std::string>
      differing{};  ///< sentences: options that were given otherwise when it was saved

  /// This process as one rank of several, if it is that, by its flags or a launcher's variables; otherwise it starts
  /// all ranks as threads. Throws dhp::Error where those make no sense.
  [[nodiscard]] std::optional<dhp::ProcessRank> process() const;
  /// Why its job does not fit the layout; empty: it does.
  [[nodiscard]] std::string misfit(const dhp::ProcessRank& me) const;
  /// Whether this process is the one that prints messages.
  [[nodiscard]] bool speaks() const;

  /// Throws where the layout has more ranks than one process can start.
  void check_ranks() const;

  /// Steps of the run over these batches.
  [[nodiscard]] std::int64_t total_steps(const dhp::Batching& batching) const;
  /// Throws where stages are to go by predicted gradients, and other options do not allow that.
  void finish_synthetic();
  void check_context() const;
  /// What changes about a run before its first step; example: a micro-batch.
  void prepare(auto& run, const auto& example) const {
    if (synthetic_gradients) synthetic_gradients->predict_in(run, example);
  }
  /// Whether each step uses the complete sum of its own gradients.
  [[nodiscard]] bool sums_all() const {
    return std::holds_alternative<dhp::Bucketed>(reducer) ||
           std::holds_alternative<dhp::Plain>(reducer);
  }
  /// Whether replicas step alone, or by sums of earlier gradients.
  [[nodiscard]] bool is_late() const {
    return std::holds_alternative<dhp::Delayed>(reducer) ||
           std::holds_alternative<dhp::LocalSgd>(reducer);
  }
  /// Whether a GPU records a step and replays it. same_shapes: of all steps' micro-batches.
  [[nodiscard]] bool records_steps(bool same_shapes) const;
  /// Throws if the learning rate cannot decay as asked for over this number of steps.
  void check_decay(std::int64_t total_steps) const;
  /// Likely mistakes in a run of this length, a sentence each.
  [[nodiscard]] std::vector<std::string> doubts(std::int64_t total_steps) const;
  /// State of this run that no checkpoint holds, so that it begins anew after --load; a sentence each.
  [[nodiscard]] std::vector<std::string> not_saved() const;
  /// The library's options for a run of this length.
  [[nodiscard]] dhp::AllTrainingOptions training(std::int64_t total_steps) const;
  /// "synthetic", or "synthetic-resident": one step's input, on the device once for all.
  [[nodiscard]] bool synthetic() const { return data == "synthetic" || resident(); }
  [[nodiscard]] bool resident() const { return data == "synthetic-resident"; }
  /// --load names weights with which training begins at step 0, and no checkpoint.
  [[nodiscard]] bool begins_anew() const;
};

/// Options of text models: train_gpt's, and part of train_bert's.
struct TextModelOptions {
  RunOptions run{};
  std::string preset;  ///< empty: as the model of --load says, else tiny
  std::int64_t sequence_length = 128;
  double dropout = 0;
  bool sequence_parallel = false;
  std::string vocabulary;  ///< a vocab.txt or tokenizer.json; empty: trained from the text
  std::int64_t vocabulary_size = 8192;
  std::string text_cache;                   ///< a directory for the text as tokens; empty: none
  std::vector<std::string> text_columns{};  ///< one; two if classify reads pairs
  std::string test_data;                    ///< what to evaluate on; empty: held out of --data
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
  std::int64_t image_size = 0;  ///< 0: of the data; 224 for synthetic images
  std::int64_t classes = 0;     ///< 0: of the data; 1000 for synthetic images
  int stem_stride = 1;
  bool zero_init_gamma = false;
  bool sync_batch_norm = false;
  bool augment = false;
  double label_smoothing = 0;
  std::string test_data;             ///< what to evaluate on; empty: held out of --data
  std::string normalize = "data";    ///< or "imagenet"
  bool exif = false;                 ///< turn images as their EXIF orientation says
  std::optional<int> first_label{};  ///< of shards; none: detected
  std::string index;                 ///< folder for the index of shards; empty: their own
  std::string cache;                 ///< folder that keeps blocks of shards; empty: none
  double cache_gb = 10;              ///< 10^9 bytes of it at most
};

/// Options, or the exit status of a run that ends here (--help, --version, a wrong value).
template <class Options>
struct Parsed {
  Options options{};
  std::optional<int> exit_status{};
};
/// gpu: the program is built for GPUs, and takes options for them instead of those for the CPU.
[[nodiscard]] Parsed<BertOptions> parse_bert(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<TextModelOptions> parse_gpt(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ResNetOptions> parse_resnet(int argc, char** argv, bool gpu);

/// "fp32", ...
[[nodiscard]] std::string precision_name(dhp::DType precision);
/// Throws where there is no precision of that name.
[[nodiscard]] dhp::DType parse_precision(const std::string& word);

}  // namespace examples
