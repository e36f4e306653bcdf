// The rank of this process: which launcher's variables count, where the ranks meet, and which variables are refused.
#include <dhp/comm/rendezvous/process_rank.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using Variables = dhp::detail::Environment::Variables;

std::string described(const std::optional<ProcessRank>& me) {
  if (!me) return "nobody";
  auto text = concat(me->launcher, ": ", me->rank, " of ", me->size, ", local ", me->local_rank,
                     " of ", me->local_size);
  if (!me->master.empty()) text += concat(", at ", me->master, " ", me->port);
  return concat(text, ", job ", me->job);
}
// The rank by these variables alone, or an error without its list of leftover variables, which has a test of its own.
std::string read(const Variables& variables, const RankOverrides& given = {}) {
  try {
    return described(ProcessRank::from_environment(given, dhp::detail::Environment(variables)));
  } catch (const Error& error) {
    const auto& error_for = error.sentence();
    const auto end =
        std::min(error_for.find("; set what is meant, or"), error_for.find(", or unset those"));
    return error_for.substr(0, end);
  }
}
// A job without a name is named after its port.
std::string at_port_of_none(const std::string& host) {
  const auto port = ProcessRank::port_of_job("job");
  return concat("at ", host, " ", port, ", job job-", port);
}
std::string at_port_of(const std::string& host, const std::string& job, int taken = 0) {
  return concat("at ", host, " ", ProcessRank::port_of_job(job, taken), ", job ", job);
}
// The variables, changed and extended by the others.
Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

const Variables plain{{"RANK", "3"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "first"},
                      {"MASTER_PORT", "2500"}};
const Variables torchrun = with(plain, {{"TORCHELASTIC_RUN_ID", "run"},
                                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                                        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                        {"GROUP_WORLD_SIZE", "4"}});
const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "77"}};
const Variables mpich{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables slurm{{"SLURM_PROCID", "3"},
                      {"SLURM_NTASKS", "64"},
                      {"SLURM_STEP_ID", "4"},
                      {"SLURM_STEP_NUM_TASKS", "5"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                      {"SLURM_STEP_NODELIST", "n[07-08],x"},
                      {"SLURM_JOB_NODELIST", "n[01-64]"},
                      {"SLURM_JOB_ID", "99"}};
const Variables kubernetes{{"JOB_COMPLETION_INDEX", "2"},
                           {"HOSTNAME", "trainer-2"},
                           {"DHP_WORLD_SIZE", "3"},
                           {"DHP_MASTER_ADDR", "trainer-0.pods"}};
const Variables kubeflow{{"PET_NODE_RANK", "1"},       {"PET_NNODES", "2"},
                         {"PET_NPROC_PER_NODE", "1"},  {"PET_MASTER_ADDR", "bert-node-0-0.bert"},
                         {"PET_MASTER_PORT", "29500"}, {"HOSTNAME", "bert-node-0-1"},
                         {"JOB_COMPLETION_INDEX", "1"}};

TEST_CASE("process rank: the variables of each launcher are read") {
  CHECK(read({}) == "nobody");
  CHECK(read({{"PATH", "/bin"}, {"MASTER_ADDR", "first"}, {"DHP_JOB", "j"}}) == "nobody");
  CHECK(read(plain) == "RANK and WORLD_SIZE: 3 of 8, local 1 of 2, at first 2500, job job-2500");
  CHECK(read(torchrun) == "torchrun: 3 of 8, local 1 of 2, at first 2500, job torchrun-run-2500");
  CHECK(read(open_mpi) ==
        "Open MPI: 1 of 2, local 1 of 2, " + at_port_of("127.0.0.1", "openmpi-77"));
  CHECK(read(mpich) == "MPICH: 1 of 2, local 1 of 2, " + at_port_of_none("127.0.0.1"));
  CHECK(read(slurm) == "Slurm: 3 of 5, local 1 of 2, " + at_port_of("n07", "slurm-99.4.0"));
  CHECK(read(kubernetes) ==
        "Kubernetes: 2 of 3, local 0 of 1, " + at_port_of("trainer-0.pods", "trainer"));
  CHECK(read(kubeflow) ==
        "Kubeflow: 1 of 2, local 0 of 1, at bert-node-0-0.bert 29500, job bert-node-0");
}

TEST_CASE("process rank: DHP_ variables override every launcher") {
  const Variables set{{"DHP_RANK", "5"},
                      {"DHP_WORLD_SIZE", "6"},
                      {"DHP_LOCAL_RANK", "2"},
                      {"DHP_LOCAL_WORLD_SIZE", "3"},
                      {"DHP_MASTER_ADDR", "boss"},
                      {"DHP_MASTER_PORT", "1234"},
                      {"DHP_JOB", "j7"}};
  for (const auto& launcher : {Variables(), plain, torchrun, open_mpi, mpich, slurm, kubeflow})
    CHECK(read(with(launcher, set)) ==
          "DHP_RANK and DHP_WORLD_SIZE: 5 of 6, local 2 of 3, at boss 1234, job j7");
  // The launcher's variables still fill in the rest.
  CHECK(read(with(open_mpi, {{"DHP_MASTER_ADDR", "boss"}, {"DHP_JOB", "j7"}})) ==
        "Open MPI: 1 of 2, local 1 of 2, " + at_port_of("boss", "j7"));
  CHECK(read(with(plain, {{"DHP_MASTER_PORT", "1234"}, {"DHP_LOCAL_RANK", "0"}})) ==
        "RANK and WORLD_SIZE: 3 of 8, local 0 of 2, at first 1234, job job-1234");
}

TEST_CASE("process rank: the program's options override the environment") {
  const RankOverrides given{.rank = 1, .size = 4, .local_rank = 1, .master = "[::1]:1234"};
  const std::string who = "the given rank and the given world size";
  for (const auto& launcher : {Variables(), plain, torchrun, slurm, Variables{{"DHP_RANK", "0"}}})
    CHECK(read(launcher, given) == who + ": 1 of 4, local 1 of 0, at ::1 1234, job job-1234");
  CHECK(read({{"DHP_JOB", "j7"}}, {.rank = 1, .size = 4, .master = "boss"}) ==
        who + ": 1 of 4, local 0 of 0, " + at_port_of("boss", "j7"));
  CHECK(read(open_mpi, {.master = "boss:1234"}) ==
        "Open MPI: 1 of 2, local 1 of 2, at boss 1234, job openmpi-77");
  CHECK(read({}, {.rank = 1}) == who + " belong together, but only one of them is given");
  const RankOverrides named{.rank = 4, .size = 4, .rank_name = "--rank", .size_name = "--size"};
  CHECK(read({}, named) == "--rank is 4 and --size is 4; ranks count from 0 to --size - 1");
  CHECK(read({}, {.master = "boss:1234"}) ==
        "the given address of rank 0 needs the rank of this process; give the given "
        "rank and the given world size, too, or start it by a launcher");
  CHECK(has(read({}, {.local_rank = 1}), "the given local rank needs the rank of"));
  CHECK(has(read({}, {.rank = 1, .size = 2, .master = "boss:x"}), "\"x\" is no port"));
  CHECK(has(read({}, {.rank = 0, .size = 2}), "size is 2, but nothing says where the ranks"));
  CHECK(has(read({}, {.rank = 0, .size = 2, .needs_master = false}), "0 of 2, local 0 of 0, job"));
}

TEST_CASE("process rank: the innermost launcher is believed") {
  // torchrun as a task of srun, or started by mpirun.
  CHECK(read(with(slurm, torchrun)).starts_with("torchrun: 3 of 8"));
  CHECK(read(with(open_mpi, torchrun)).starts_with("torchrun: 3 of 8"));
  // mpirun and mpiexec start their daemons by srun, which leaves the variables of the daemon's task.
  CHECK(read(with(slurm, open_mpi)).starts_with("Open MPI: 1 of 2"));
  CHECK(read(with(slurm, mpich)).starts_with("MPICH: 1 of 2"));
  // srun --mpi=pmi2 sets MPICH's variables for its own tasks.
  CHECK(read(with(slurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}})) == read(slurm));
  // Batch scripts of many clusters set these three from Slurm's variables.
  CHECK(read(with(slurm, {{"RANK", "3"}, {"WORLD_SIZE", "5"}, {"MASTER_ADDR", "first"}})) ==
        "Slurm: 3 of 5, local 1 of 2, " + at_port_of("first", "slurm-99.4.0"));
  // PyTorchJob sets both kinds of variables. A pod of an indexed Job may set RANK from its index.
  CHECK(read(with(kubeflow, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).starts_with("Kubeflow: 1 of 2"));
  CHECK(read(with(plain, {{"JOB_COMPLETION_INDEX", "1"}})) == read(plain));
}

TEST_CASE("process rank: a batch script and an interactive shell are no tasks of srun") {
  const Variables batch{{"SLURM_JOB_ID", "99"},
                        {"SLURM_NTASKS", "64"},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "0"},
                        {"SLURM_JOB_NODELIST", "n[01-64]"},
                        {"SLURM_TASKS_PER_NODE", "1(x64)"}};
  CHECK(read(batch) == "nobody");
  const Variables no_process{{"SLURM_JOB_ID", "99"}, {"SLURM_NTASKS", "64"}};
  CHECK(read(no_process) == "nobody");
  for (const char* step : {"4294967290", "4294967291"})
    CHECK(read(with(slurm, {{"SLURM_STEP_ID", step}})) == "nobody");
  CHECK(read(with(batch, open_mpi)) == read(open_mpi));
  CHECK(read(with(batch, plain)) == read(plain));
}

TEST_CASE("process rank: rank 0's address comes from the launcher, or is loopback") {
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) ==
        "RANK and WORLD_SIZE: 0 of 1, local 0 of 0, job job");  // one rank needs no address
  auto two_machines = with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(read(two_machines) ==
        "OMPI_COMM_WORLD_SIZE is 4, but nothing says where the ranks meet; set DHP_MASTER_ADDR to "
        "the host of rank 0");
  CHECK(has(read(with(two_machines, {{"MASTER_ADDR", "first"}, {"MASTER_PORT", "2500"}})),
            "at first 2500"));
  CHECK(has(read(with(mpich, {{"PMI_SIZE", "3"}})), "PMI_SIZE is 3, but nothing says where"));
  CHECK(has(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "nothing says where"));
  // If all ranks are on one machine, loopback is enough, and DNS need not know the machine's name.
  CHECK(has(read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "5"}, {"SLURM_NODEID", "0"}})),
            "local 1 of 5, at 127.0.0.1 "));
  auto no_step_list = slurm;
  no_step_list.erase("SLURM_STEP_NODELIST");
  CHECK(has(read(no_step_list), "at n01 "));
  CHECK(has(read(with(slurm, {{"SLURM_STEP_NODELIST", "n["}})), "no list of hosts"));
  for (const auto& [given, host] : Variables{{"[::1]", "::1"}, {"fd00::2", "fd00::2"}, {"a", "a"}})
    CHECK(has(read(with(plain, {{"MASTER_ADDR", given}})), concat("at ", host, " 2500")));
  CHECK(read(with(plain, {{"MASTER_ADDR", "first:2500"}})) ==
        "MASTER_ADDR is \"first:2500\"; the port is to be in MASTER_PORT");
  CHECK(read(with(plain, {{"DHP_MASTER_ADDR", "first:2500"}})) ==
        "DHP_MASTER_ADDR is \"first:2500\"; the port is to be in DHP_MASTER_PORT");
  CHECK(has(read(with(plain, {{"MASTER_ADDR", ""}})), "nothing says where the ranks meet"));
}

TEST_CASE("process rank: the port differs from the launcher's own and from other jobs' ports") {
  // torchrun's own store listens at MASTER_PORT.
  const auto agent = with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(has(read(agent), at_port_of("first", "torchrun-run-2500", 2500)));
  CHECK(has(read(with(agent, {{"DHP_MASTER_PORT", "2500"}})), "at first 2500"));
  CHECK(has(read(with(kubeflow, agent)), at_port_of("first", "torchrun-run-2500", 2500)));
  CHECK(read(with(plain, {{"MASTER_PORT", "70000"}})) ==
        "MASTER_PORT: \"70000\" is no port; ports are whole numbers from 1 to 65535");
  CHECK(has(read(with(plain, {{"DHP_MASTER_PORT", "x"}})), "DHP_MASTER_PORT: \"x\" is no"));

  std::set<int> ports;
  for (int job = 0; job < 1000; ++job) {
    const auto name = concat("slurm-", job, ".0.0");
    const int port = ProcessRank::port_of_job(name);
    CHECK((port >= 20000 && port <= 29999));
    CHECK(port == ProcessRank::port_of_job(name));
    const int other = ProcessRank::port_of_job(name, port);
    CHECK((other != port && other >= 20000 && other <= 29999));
    ports.insert(port);
  }
  CHECK(ports.size() > 900);  // of 1000 jobs, few share a port
}

TEST_CASE("process rank: the job name differs for each start if the launcher tells them apart") {
  const auto job = [](const Variables& variables) {
    return ProcessRank::from_environment({}, dhp::detail::Environment(variables)).value().job;
  };
  CHECK(job(with(slurm, {{"SLURM_RESTART_COUNT", "1"}})) == "slurm-99.4.1");
  // On several machines torchrun's counts may differ from rank to rank.
  CHECK(job(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})) == job(torchrun));
  CHECK(job(with(torchrun, {{"GROUP_WORLD_SIZE", "1"}})) == "torchrun-run-2500-2");
  CHECK(job(with(torchrun, {{"TORCHELASTIC_RUN_ID", "a/b c"}})) == "torchrun-a_b_c-2500");
  CHECK(job(with(open_mpi, {{"OMPI_MCA_ess_base_jobid", "5"}})) == "openmpi-77");
  auto old = open_mpi;
  old.erase("PMIX_NAMESPACE");
  CHECK(job(with(old, {{"MASTER_PORT", "2500"}})) == "job-2500");
  CHECK(job(with(old, {{"OMPI_MCA_ess_base_jobid", "5"}})) == "openmpi-5");
  CHECK(job(with(kubernetes, {{"HOSTNAME", "box"}})) ==
        concat("job-", ProcessRank::port_of_job("job")));
  CHECK(job(with(slurm, {{"DHP_JOB", "mine"}})) == "mine");
}

TEST_CASE("process rank: contradictory or malformed variables are refused") {
  CHECK(read({{"RANK", "3"}}) ==
        "RANK and WORLD_SIZE belong together, but only one of them is set");
  CHECK(read({{"DHP_RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "DHP_RANK and DHP_WORLD_SIZE belong together, but only one of them is set");
  CHECK(read({{"DHP_WORLD_SIZE", "2"}}) ==
        "DHP_RANK and DHP_WORLD_SIZE belong together, but only one of them is set");
  CHECK(read({{"OMPI_COMM_WORLD_RANK", "0"}}) ==
        "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE "
        "belong together, but only one of them is set");
  CHECK(read({{"TORCHELASTIC_RUN_ID", "none"}, {"WORLD_SIZE", "2"}}) ==
        "RANK and WORLD_SIZE belong together, but only one of them is set");
  CHECK(read({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "RANK is 2 and WORLD_SIZE is 2; ranks count from 0 to WORLD_SIZE - 1");
  CHECK(has(read({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK is -1"));
  CHECK(has(read({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE is 0"));
  CHECK(read({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}) == "RANK is \"1x\", not a whole number");
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", ""}}) == "WORLD_SIZE is \"\", not a whole number");
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "2"}}) ==
        "WORLD_SIZE is 2, but nothing says where the ranks meet; set DHP_MASTER_ADDR to the host "
        "of rank 0");
  CHECK(read(with(plain, {{"LOCAL_RANK", "2"}})) ==
        "rank 3 of 8 (RANK and WORLD_SIZE) cannot be rank 2 of 2 on its machine; set "
        "DHP_LOCAL_RANK and DHP_LOCAL_WORLD_SIZE to the right values");
  CHECK(has(read(with(plain, {{"LOCAL_RANK", "-1"}})), "on its machine; set DHP_LOCAL_RANK"));
  CHECK(has(read(with(plain, {{"LOCAL_WORLD_SIZE", "9"}})), "on its machine; set DHP_LOCAL_RANK"));
  CHECK(has(read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "4294967298(x2)"}})),
            "does not say how many tasks"));
  CHECK(has(read(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "2,x"}})), "how many tasks"));
}

TEST_CASE("process rank: launchers that differ are refused, and both are named") {
  const Variables stale{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  CHECK(read(with(open_mpi, stale)) ==
        "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE say rank 1 of 2, but RANK and WORLD_SIZE "
        "say rank 0 of 1; set DHP_RANK and DHP_WORLD_SIZE to the right values");
  for (const auto& launcher : {mpich, slurm, kubeflow, kubernetes})
    CHECK(has(read(with(launcher, stale)), "but RANK and WORLD_SIZE say rank 0 of 1; set DHP"));
  CHECK(read(with(open_mpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})) == read(open_mpi));
  CHECK(read(with(open_mpi, {{"RANK", "0"}})) == read(open_mpi));  // RANK alone is ignored
  CHECK(has(read(with(open_mpi, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})),
            "say rank 1 of 2, but PMI_RANK and PMI_SIZE say rank 0 of 2; set DHP"));
  CHECK(read(with(open_mpi, {{"DHP_WORLD_SIZE", "4"}})) ==
        "OMPI_COMM_WORLD_SIZE is 2, but DHP_WORLD_SIZE is 4; unset DHP_WORLD_SIZE, or set "
        "DHP_RANK, too");
  CHECK(has(read(with(plain, {{"DHP_WORLD_SIZE", "4"}})), "WORLD_SIZE is 8, but DHP_WORLD"));
}

TEST_CASE("process rank: errors name the variables that are set and may be left over") {
  const auto error_for = [](const Variables& variables, const RankOverrides& given = {}) {
    return message_of(
        [&] { (void)ProcessRank::from_environment(given, dhp::detail::Environment(variables)); });
  };
  CHECK(error_for({{"RANK", "3"}, {"MASTER_PORT", "1"}, {"PATH", "/bin"}}) ==
        "RANK and WORLD_SIZE belong together, but only one of them is set; set what is meant, or "
        "unset those left over (RANK, MASTER_PORT)");
  CHECK(error_for(with(open_mpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}))
            .ends_with("; set DHP_RANK and DHP_WORLD_SIZE to the right values, or unset those left "
                       "over (RANK, WORLD_SIZE, OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)"));
  // If the program's own options overrule the variables, an error names no variables.
  CHECK(error_for(plain, {.rank = 4, .size = 4}).ends_with("from 0 to the given world size - 1"));
  const auto me = ProcessRank::from_environment({}, dhp::detail::Environment(plain)).value();
  CHECK(me.variables == "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT");
}

TEST_CASE("process rank: errors in a Kubernetes pod name the missing variables") {
  CHECK(read({{"JOB_COMPLETION_INDEX", "2"}}) ==
        "JOB_COMPLETION_INDEX is 2, but nothing says how many ranks there are; set DHP_WORLD_SIZE "
        "and DHP_MASTER_ADDR for all pods, or unset JOB_COMPLETION_INDEX where each pod trains by "
        "itself");
  CHECK(has(read({{"JOB_COMPLETION_INDEX", "2"}, {"DHP_WORLD_SIZE", "3"}}),
            "DHP_WORLD_SIZE is 3, but nothing says where the ranks meet; set DHP_MASTER_ADDR"));
  CHECK(has(read(with(kubernetes, {{"DHP_WORLD_SIZE", "2"}})), "JOB_COMPLETION_INDEX is 2 and"));
  for (const char* ranks : {"auto", "8"})
    CHECK(has(read(with(kubeflow, {{"PET_NPROC_PER_NODE", ranks}})),
              concat("PET_NPROC_PER_NODE is \"", ranks, "\", but this process is one rank")));
  CHECK(read(with(kubeflow, {{"PET_NNODES", "1:4"}})) ==
        "PET_NNODES is \"1:4\", not a whole number");
  CHECK(has(read(with(kubeflow, {{"PET_MASTER_PORT", "x"}})), "PET_MASTER_PORT: \"x\" is no"));
}

}  // namespace
