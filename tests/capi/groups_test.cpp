// A program's own collectives, played by one process that is rank 0 of two: the other rank is what the
// functions say it is.
#include <cstring>

#include "tests/capi/c_api.hpp"

namespace amaxscope {
namespace {

using testing::HasSubstr;

/// What the functions of a group are told; the other rank hands in the same as this one.
struct Pair {
  int released = 0;
  int started = 0;
  bool non_blocking = false;
  bool completes = true;
  int failure = 0;  ///< what all_reduce returns
  std::string aborted;
};

int all_reduce(void* context, void* io, std::int64_t count, amaxscope_dtype dtype, amaxscope_reduce_op op) {
  if (op == AMAXSCOPE_SUM && dtype == AMAXSCOPE_F64) {
    for (std::int64_t i = 0; i < count; ++i) static_cast<double*>(io)[i] *= 2.0;
  }
  return static_cast<Pair*>(context)->failure;
}
int all_gather(void*, const void* in, void* out, std::size_t bytes) {
  std::memcpy(out, in, bytes);
  std::memcpy(static_cast<char*>(out) + bytes, in, bytes);
  return 0;
}
int broadcast(void*, void*, std::size_t, int) { return 0; }
int barrier(void*) { return 0; }
void abort_job(void* context, int, const char* reason) { static_cast<Pair*>(context)->aborted = reason; }
void release(void* context) { ++static_cast<Pair*>(context)->released; }
int start(void* context, void* io, std::int64_t count, amaxscope_dtype dtype, amaxscope_reduce_op op,
          void** request) {
  ++static_cast<Pair*>(context)->started;
  *request = io;
  return all_reduce(context, io, count, dtype, op);
}
int test(void* context, void*, int* done) {
  *done = static_cast<Pair*>(context)->completes ? 1 : 0;
  return 0;
}
amaxscope_collectives collectives_of(Pair& pair);
int split(void* context, int color, int, amaxscope_collectives* out) {
  if (color >= 0) *out = collectives_of(*static_cast<Pair*>(context));
  return 0;
}

amaxscope_collectives collectives_of(Pair& pair) {
  amaxscope_collectives result = {};
  result.size = sizeof result;
  result.rank = 0;
  result.ranks = 2;
  result.context = &pair;
  result.all_reduce = all_reduce;
  result.all_gather = all_gather;
  result.broadcast = broadcast;
  result.barrier = barrier;
  result.abort = abort_job;
  result.split = split;
  result.release = release;
  if (pair.non_blocking) {
    result.start_all_reduce = start;
    result.test = test;
  }
  return result;
}

constexpr const char* kScaled = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    PerTensorScaling:
      enabled: True
      gemms: [fprop]
      tensors: [activation]
)";

struct TwoRanks {
  explicit TwoRanks(Pair& of) {
    const amaxscope_collectives collectives = collectives_of(of);
    EXPECT_OK(amaxscope_group_from_callbacks(&collectives, &group));
  }
  ~TwoRanks() { amaxscope_group_free(group); }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;
  amaxscope_group* group = nullptr;
};

TEST(CApiGroups, ASessionOverAProgramsCollectives) {
  Pair pair;
  {
    const TwoRanks world(pair);
    amaxscope_options options = {};
    options.size = sizeof options;
    options.config_text = kScaled;
    options.world = world.group;
    options.tp_size = 2;
    amaxscope_session* opened = nullptr;
    ASSERT_OK(amaxscope_open(&options, &opened));
    const Session session(opened);
    amaxscope_layer_options layer_options = {};
    layer_options.size = sizeof layer_options;
    layer_options.name = "fc1";
    layer_options.parallel = AMAXSCOPE_COLUMN;
    layer_options.sequence_parallel = 1;
    layer_options.recipe = AMAXSCOPE_DELAYED;
    amaxscope_layer* layer = nullptr;
    ASSERT_OK(amaxscope_register(session.get(), &layer_options, &layer));
    Matrix x(4, 8);
    x.values[0] = 16.0F;
    const Quantized quantized = quantize(layer, AMAXSCOPE_ACTIVATION, x);
    EXPECT_EQ(operand_of(quantized, AMAXSCOPE_ROWWISE).scale_inv, 1.0F / 28.0F);
    EXPECT_OK(amaxscope_step(session.get()));
  }
  EXPECT_GE(pair.released, 2);  // the group, and what the session made of it
}

TEST(CApiGroups, AFailureOfTheProgramIsNamedAndEndsNothing) {
  Pair pair;
  const TwoRanks world(pair);
  pair.failure = 5;
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text = kScaled;
  options.world = world.group;
  amaxscope_session* session = nullptr;
  const amaxscope_status status = amaxscope_open(&options, &session);
  if (status == AMAXSCOPE_OK) {
    EXPECT_NE(amaxscope_freeze(session), AMAXSCOPE_OK);
    EXPECT_OK(amaxscope_close(session));
  }
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("all_reduce failed with 5"));
  EXPECT_EQ(pair.aborted, "");
}

TEST(CApiGroups, ARankThatNeverComesIsReportedAtTheDeadline) {
  Pair pair;
  pair.non_blocking = true;
  const TwoRanks world(pair);
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text = kStatistics;
  options.world = world.group;
  options.tp_size = 2;
  options.deadline_seconds = 0.2;
  options.on_failure = AMAXSCOPE_DETACH;
  amaxscope_session* opened = nullptr;
  ASSERT_OK(amaxscope_open(&options, &opened));
  const Session session(opened);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  Matrix x(4, 8);
  quantize(layer, AMAXSCOPE_ACTIVATION, x);
  pair.completes = false;
  EXPECT_OK(amaxscope_step(session.get()));
  EXPECT_GE(pair.started, 1);
  EXPECT_EQ(amaxscope_enabled(session.get()), 0);  // detached, and training goes on
  EXPECT_OK(amaxscope_step(session.get()));
}

TEST(CApiGroups, RefusesWhatIsNotComplete) {
  Pair pair;
  amaxscope_group* group = nullptr;
  amaxscope_collectives collectives = collectives_of(pair);
  collectives.barrier = nullptr;
  EXPECT_EQ(amaxscope_group_from_callbacks(&collectives, &group), AMAXSCOPE_ERROR_USAGE);
  EXPECT_STREQ(amaxscope_last_error(), "collectives.barrier is NULL");
  collectives = collectives_of(pair);
  collectives.test = test;
  EXPECT_EQ(amaxscope_group_from_callbacks(&collectives, &group), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("go together"));
  collectives = collectives_of(pair);
  collectives.ranks = 0;
  EXPECT_EQ(amaxscope_group_from_callbacks(&collectives, &group), AMAXSCOPE_ERROR_USAGE);
  collectives.ranks = 2;
  collectives.rank = 2;
  EXPECT_EQ(amaxscope_group_from_callbacks(&collectives, &group), AMAXSCOPE_ERROR_USAGE);
  EXPECT_EQ(group, nullptr);
  EXPECT_EQ(pair.released, 4);  // what was handed in is not leaked
}

TEST(CApiGroups, SplitGivesNoGroupForANegativeColor) {
  Pair pair;
  const TwoRanks world(pair);
  amaxscope_group* part = nullptr;
  EXPECT_OK(amaxscope_group_split(world.group, -1, 0, &part));
  EXPECT_EQ(part, nullptr);
  EXPECT_OK(amaxscope_group_split(world.group, 0, 0, &part));
  ASSERT_NE(part, nullptr);
  amaxscope_group_free(part);
}

}  // namespace
}  // namespace amaxscope
