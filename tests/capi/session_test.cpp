#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/capi/c_api.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kEverySecondStep = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [cur_amax]
      freq: 2
)";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(CApiSession, SaysItsVersionAndNamesEveryStatus) {
  EXPECT_STREQ(amaxscope_version(), "0.1.0");
  EXPECT_STREQ(amaxscope_status_name(AMAXSCOPE_STOPPED), "AMAXSCOPE_STOPPED");
  EXPECT_STREQ(amaxscope_status_name(AMAXSCOPE_ERROR_MEMORY), "AMAXSCOPE_ERROR_MEMORY");
  EXPECT_STREQ(amaxscope_status_name(static_cast<amaxscope_status>(15)), "no status of amaxscope");
}

TEST(CApiSession, WithoutAConfigNothingHappensAndNothingIsWritten) {
  const TemporaryFolder folder;
  const Session session = open_session(nullptr, (folder.path() / "logs").string());
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  EXPECT_EQ(amaxscope_enabled(session.get()), 0);
  EXPECT_EQ(amaxscope_active(layer), 0);
  EXPECT_OK(amaxscope_step(session.get()));
  EXPECT_EQ(amaxscope_iteration(session.get()), 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "logs"));
}

TEST(CApiSession, LogsWhatIsDueAndScalars) {
  const TemporaryFolder folder;
  Session session = open_session(kEverySecondStep, folder.path().string());
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  for (int step = 0; step < 3; ++step) {
    Matrix x(2, 3);
    x.values = {1, -2, 3, 4, -5.5F - static_cast<float>(step), 0};
    quantize(layer, AMAXSCOPE_ACTIVATION, x);
    EXPECT_EQ(amaxscope_active(layer), step == 1 ? 0 : 1);
    EXPECT_OK(amaxscope_scalar(session.get(), "loss", 0.25));
    EXPECT_OK(amaxscope_step(session.get()));
  }
  EXPECT_EQ(amaxscope_write_failure(session.get()), nullptr);
  session.reset();
  const std::string records = text_of(folder.path() / "metrics" / "rank_0.jsonl");
  EXPECT_THAT(records, HasSubstr("5.5"));
  EXPECT_THAT(records, HasSubstr("7.5"));
  EXPECT_THAT(records, testing::Not(HasSubstr("6.5")));  // iteration 1 was not due
  EXPECT_THAT(records, HasSubstr("\"loss\""));
}

TEST(CApiSession, AnErrorOfTheConfigIsAStatusAndATextWithThePlace) {
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text =
      "all:\n  enabled: True\n  layers:\n    layer_types: [all]\n  transformer_engine:\n    LogTensorStat:\n "
      "     enabled: True\n";
  amaxscope_session* session = nullptr;
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_CONFIG);
  EXPECT_EQ(session, nullptr);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("LogTensorStat"));
  EXPECT_THAT(amaxscope_last_error(), HasSubstr(":6:"));
}

TEST(CApiSession, RefusesWhatDoesNotFit) {
  amaxscope_options options = {};
  options.size = sizeof options;
  amaxscope_session* session = nullptr;
  EXPECT_EQ(amaxscope_open(nullptr, &session), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("options is NULL"));
  EXPECT_EQ(amaxscope_open(&options, nullptr), AMAXSCOPE_ERROR_USAGE);
  options.size = 0;
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("options.size is 0"));
  options.size = sizeof options + 8;
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_USAGE);
  options.size = sizeof options;
  options.tp_size = 2;
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("world is NULL"));
  options.tp_size = 0;
  options.config_path = "a.yaml";
  options.config_text = "";
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_USAGE);
  options.config_path = nullptr;
  options.config_text = nullptr;
  options.on_failure = static_cast<amaxscope_on_failure>(3);
  EXPECT_EQ(amaxscope_open(&options, &session), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("options.on_failure is 3; 0 to 2"));
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(amaxscope_step(nullptr), AMAXSCOPE_ERROR_USAGE);
  EXPECT_OK(amaxscope_close(nullptr));
  amaxscope_group_free(nullptr);
  amaxscope_quantized_free(nullptr);
}

TEST(CApiSession, AFileThatIsNotThereIsAConfigError) {
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_path = "/nowhere/debug.yaml";
  amaxscope_session* session = nullptr;
  EXPECT_NE(amaxscope_open(&options, &session), AMAXSCOPE_OK);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("/nowhere/debug.yaml"));
}

TEST(CApiSession, TheLastErrorBelongsToTheThread) {
  EXPECT_EQ(amaxscope_step(nullptr), AMAXSCOPE_ERROR_USAGE);
  std::string of_other;
  std::thread([&] { of_other = amaxscope_last_error(); }).join();
  EXPECT_THAT(of_other, IsEmpty());
  EXPECT_STREQ(amaxscope_last_error(), "session is NULL");
}

TEST(CApiSession, TwoSessionsInTwoThreads) {
  const auto run = [](unsigned seed) {
    const Session session = open_session(kEverySecondStep);
    amaxscope_layer* const layer = add_layer(session.get(), "fc1", AMAXSCOPE_CURRENT);
    for (int step = 0; step < 20; ++step) {
      Matrix x(8, 16, seed);
      quantize(layer, AMAXSCOPE_ACTIVATION, x);
      EXPECT_OK(amaxscope_step(session.get()));
    }
  };
  std::thread other(run, 2U);
  run(1U);
  other.join();
}

TEST(CApiSession, TheVersionOfTheHeaderIsTheLibrarys) {
  EXPECT_EQ(std::string(amaxscope_version()), std::to_string(AMAXSCOPE_VERSION_MAJOR) + '.' +
                                                  std::to_string(AMAXSCOPE_VERSION_MINOR) + '.' +
                                                  std::to_string(AMAXSCOPE_VERSION_PATCH));
}

TEST(CApiSession, KeepsTheWordsOfCodeThatAddsToTheLibrary) {
  EXPECT_EQ(amaxscope_fail(AMAXSCOPE_ERROR_IO, "the disk is full"), AMAXSCOPE_ERROR_IO);
  EXPECT_STREQ(amaxscope_last_error(), "the disk is full");
  EXPECT_EQ(amaxscope_fail(AMAXSCOPE_ERROR_USAGE, nullptr), AMAXSCOPE_ERROR_USAGE);
  EXPECT_STREQ(amaxscope_last_error(), "");
}

TEST(CApiSession, APresetIsAConfig) {
  const TemporaryFolder folder;
  amaxscope_options options = {};
  options.size = sizeof options;
  options.preset = "watch";
  amaxscope_session* opened = nullptr;
  ASSERT_OK(amaxscope_open(&options, &opened));
  EXPECT_EQ(amaxscope_enabled(opened), 1);
  EXPECT_OK(amaxscope_close(opened));
  options.preset = "wach";
  EXPECT_EQ(amaxscope_open(&options, &opened), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("\"wach\"; there are watch, nan"));
  options.preset = "watch";
  options.config_text = "";
  EXPECT_EQ(amaxscope_open(&options, &opened), AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("2 are given"));
}

TEST(CApiSession, StrictRefusesASectionWithoutALayer) {
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text =
      "lost:\n  enabled: True\n  layers:\n    layer_name_regex_pattern: nowhere\n  transformer_engine:\n"
      "    LogTensorStats:\n      enabled: True\n      tensors: [activation]\n      stats: [max]\n";
  for (const int strict : {0, 1}) {
    options.strict = strict;
    amaxscope_session* opened = nullptr;
    ASSERT_OK(amaxscope_open(&options, &opened));
    add_layer(opened, "fc1");
    EXPECT_EQ(amaxscope_step(opened), strict == 0 ? AMAXSCOPE_OK : AMAXSCOPE_ERROR_CONFIG);
    amaxscope_close(opened);
  }
}

TEST(CApiSession, AnotherConfigTakesOverWhileItRuns) {
  amaxscope_options options = {};
  options.size = sizeof options;
  options.replaceable_config = 1;
  options.poll_every = 1;
  amaxscope_session* opened = nullptr;
  ASSERT_OK(amaxscope_open(&options, &opened));
  const Session session(opened);
  amaxscope_layer* const layer = add_layer(opened, "fc1");
  EXPECT_OK(amaxscope_step(opened));
  EXPECT_EQ(amaxscope_active(layer), 0);
  EXPECT_EQ(amaxscope_replace_config(opened, "all:\n  enabled: Tru\n"), AMAXSCOPE_ERROR_CONFIG);
  EXPECT_OK(amaxscope_replace_config(opened, kEverySecondStep));
  EXPECT_EQ(amaxscope_active(layer), 0);  // waits for the poll
  EXPECT_OK(amaxscope_step(opened));
  EXPECT_EQ(amaxscope_iteration(opened), 2);
  EXPECT_EQ(amaxscope_active(layer), 1);
  const Session fixed = open_session(kEverySecondStep);
  EXPECT_EQ(amaxscope_replace_config(fixed.get(), kEverySecondStep), AMAXSCOPE_ERROR_USAGE);
}

TEST(CApiSession, AnEditedFileTakesEffect) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "debug.yaml").string();
  std::ofstream(path) << "";
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_path = path.c_str();
  options.watch_config = 1;
  options.poll_every = 1;
  amaxscope_session* opened = nullptr;
  ASSERT_OK(amaxscope_open(&options, &opened));
  const Session session(opened);
  amaxscope_layer* const layer = add_layer(opened, "fc1");
  EXPECT_OK(amaxscope_step(opened));
  EXPECT_EQ(amaxscope_active(layer), 0);
  std::ofstream(path) << kEverySecondStep;
  // Two looks in a row have to find the same.
  for (int step = 0; step < 4; ++step) EXPECT_OK(amaxscope_step(opened));
  EXPECT_EQ(amaxscope_active(layer), 1);
}

TEST(CApiSession, ASignalAsksForTheState) {
  const TemporaryFolder folder;
  amaxscope_options options = {};
  options.size = sizeof options;
  options.config_text = kEverySecondStep;
  const std::string log_dir = folder.path().string();
  options.log_dir = log_dir.c_str();
  options.dump_on_signal = 1;
  options.poll_every = 1;
  amaxscope_session* opened = nullptr;
  ASSERT_OK(amaxscope_open(&options, &opened));
  const Session session(opened);
  add_layer(opened, "fc1");
  EXPECT_OK(amaxscope_step(opened));
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  EXPECT_OK(amaxscope_step(opened));
  EXPECT_OK(amaxscope_step(opened));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "events"));
}

TEST(CApiSession, AReductionGroupIsSetBeforeTheLayers) {
  const Session session = open_session(kEverySecondStep);
  EXPECT_OK(amaxscope_set_reduction_group(session.get(), nullptr));
  add_layer(session.get(), "fc1");
  EXPECT_EQ(amaxscope_set_reduction_group(session.get(), nullptr), AMAXSCOPE_ERROR_USAGE);
  EXPECT_EQ(amaxscope_set_reduction_group(nullptr, nullptr), AMAXSCOPE_ERROR_USAGE);
}

TEST(CApiSession, UpdatesAreObserved) {
  const TemporaryFolder folder;
  Session session = open_session(
      "updates:\n  enabled: True\n  observe: fc1\n  transformer_engine:\n"
      "    LogTensorStats:\n      enabled: True\n      stats: [update_ratio, adam_ratio]\n",
      folder.path().string());
  ASSERT_NE(session, nullptr);
  Matrix weight(2, 2);
  Matrix update(2, 2);
  Matrix normalized(2, 2);
  weight.values = {4.0F, -4.0F, 4.0F, 4.0F};
  update.values = {0.5F, 0.5F, -0.5F, 0.5F};
  normalized.values = {0.25F, -0.25F, 0.25F, 0.25F};
  EXPECT_EQ(amaxscope_observes_update(session.get(), "fc1.weight", AMAXSCOPE_REPLICATED), 1);
  const amaxscope_view before = weight.view();
  const amaxscope_view added = update.view();
  const amaxscope_view ratio = normalized.view();
  EXPECT_OK(
      amaxscope_observe_update(session.get(), "fc1.weight", &before, &added, AMAXSCOPE_REPLICATED, &ratio));
  EXPECT_OK(amaxscope_step(session.get()));
  EXPECT_EQ(
      amaxscope_observe_update(session.get(), "fc1.weight", &before, nullptr, AMAXSCOPE_REPLICATED, nullptr),
      AMAXSCOPE_ERROR_USAGE);
  session.reset();
  const std::string records = text_of(folder.path() / "metrics" / "rank_0.jsonl");
  EXPECT_THAT(records, HasSubstr("\"update_ratio\":0.125"));
  EXPECT_THAT(records, HasSubstr("\"adam_ratio\":0.25"));
  const Session plain = open_session(nullptr);
  EXPECT_EQ(amaxscope_observes_update(plain.get(), "fc1.weight", AMAXSCOPE_REPLICATED), 0);
}

TEST(CApiSession, AStreamWithoutADeviceIsRefused) {
  const Session session = open_session(nullptr);
  amaxscope_layer* const layer = add_layer(session.get(), "fc1");
  Matrix x(2, 2);
  amaxscope_view view = x.view();
  view.stream = &view;
  amaxscope_quantized* quantized = nullptr;
  EXPECT_EQ(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &view, AMAXSCOPE_ROWWISE, nullptr, &quantized),
            AMAXSCOPE_ERROR_USAGE);
  EXPECT_THAT(amaxscope_last_error(), HasSubstr("x has a stream and no device"));
  EXPECT_EQ(amaxscope_begin_capture(session.get(), nullptr, nullptr), AMAXSCOPE_ERROR_USAGE);
  EXPECT_STREQ(amaxscope_last_error(), "device is NULL");
  amaxscope_device_free(nullptr);
}

}  // namespace
}  // namespace amaxscope
