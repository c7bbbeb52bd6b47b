// Event files byte by byte: checksums by RFC 3720's own vectors and a bitwise polynomial division, messages
// by the wire format.
#include "runtime/sinks/tensorboard_sink.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>

#include "core/error.hpp"
#include "runtime/sinks/event_record.hpp"
#include "tests/runtime/sinks/sink_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::string filled(int first, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(first + i * step);
  return bytes;
}

TEST(EventRecord, ChecksumsOfTheStandard) {
  // RFC 3720, appendix B.4; the last is the customary check value.
  EXPECT_EQ(crc32c(filled(0, 0)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(filled(0xFF, 0)), 0x62A8AB43U);
  EXPECT_EQ(crc32c(filled(0, 1)), 0x46DD794EU);
  EXPECT_EQ(crc32c(filled(31, -1)), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  // 0x8A9136AA rotated right by 15 is 0x6D551522; with 0xA282EAD8 that is 0x10FD7FFFA.
  EXPECT_EQ(masked_crc32c(filled(0, 0)), 0x0FD7FFFAU);
}

/// The remainder of x^32 times the message, bit after bit.
std::uint32_t by_division(std::string_view bytes) {
  std::uint32_t rest = 0xFFFFFFFFU;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = (static_cast<std::uint8_t>(c) >> bit) & 1U;
      const bool divides = ((rest & 1U) ^ in) != 0;
      rest >>= 1;
      if (divides) rest ^= 0x82F63B78U;
    }
  }
  return ~rest;
}

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

/// The data of each record of a file, its checksums tested.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    EXPECT_EQ(number_at<std::uint32_t>(file, at + 8), masked(by_division(file.substr(at, 8))));
    if (at + 16 + length > file.size()) {
      ADD_FAILURE() << "cut off at " << at;
      break;
    }
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(number_at<std::uint32_t>(file, at + 12 + length), masked(by_division(records.back())));
    at += 16 + length;
  }
  return records;
}

/// A message's fields by number, in their order: varints and the bytes of everything else.
std::vector<std::pair<int, std::string>> fields_of(std::string_view bytes) {
  std::vector<std::pair<int, std::string>> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < bytes.size(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    std::size_t length = 0;
    if ((key & 7U) == 0) {
      fields.emplace_back(key >> 3, std::to_string(varint()));
      continue;
    }
    if ((key & 7U) == 1) length = 8;
    if ((key & 7U) == 5) length = 4;
    if ((key & 7U) == 2) length = varint();
    fields.emplace_back(key >> 3, std::string(bytes.substr(at, length)));
    at += length;
  }
  return fields;
}

std::string field(const std::vector<std::pair<int, std::string>>& fields, int number) {
  for (const auto& [key, value] : fields) {
    if (key == number) return value;
  }
  ADD_FAILURE() << "no field " << number;
  return std::string(8, '\0');
}

std::vector<double> doubles(const std::string& bytes) {
  std::vector<double> values;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) values.push_back(number_at<double>(bytes, at));
  return values;
}

class TensorboardSink : public testing::SinkTest {
 protected:
  void SetUp() override {
    if (!has_tensorboard_sink()) GTEST_SKIP() << "built without protobuf";
  }
  [[nodiscard]] std::unique_ptr<Sink> open(int rank = 0) const {
    return make_tensorboard_sink(log_dir, rank, [] { return 1.5; });
  }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(log_dir / "tensorboard", none)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
  [[nodiscard]] std::vector<std::string> records() const { return records_of(read(files().at(0))); }
  /// Tag and value of a step's scalars.
  static std::vector<std::pair<std::string, float>> scalars_of(const std::string& event) {
    std::vector<std::pair<std::string, float>> scalars;
    for (const auto& [key, value] : fields_of(field(fields_of(event), 5))) {
      const auto members = fields_of(value);
      if (members.at(1).first == 2)
        scalars.emplace_back(members.at(0).second, number_at<float>(members[1].second, 0));
    }
    return scalars;
  }
};

TEST_F(TensorboardSink, EveryByteOfAFile) {
  auto sink = open();
  EXPECT_TRUE(files().empty()) << "the file appears with its first content";
  sink->scalars(3, {{"loss", 2.5}});
  sink->end_of_step(3);
  sink->close();
  const std::string wall = std::string("\x09\0\0\0\0\0\0\xF8\x3F", 9);  // field 1, a double: 1.5
  const std::string version = wall + "\x1A\x0D" + "brain.Event:2";
  // Step 3; a session log of 2 bytes: its status is a start.
  const std::string start = wall + "\x10\x03\x3A\x02\x08\x01";
  // Step 3; a summary of 13 bytes: a value of 11: the tag and the float 2.5, 0x40200000.
  const std::string step =
      wall + std::string("\x10\x03\x2A\x0D\x0A\x0B\x0A\x04", 8) + "loss" + std::string("\x15\0\0\x20\x40", 5);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_THAT(records(), ElementsAre(version, start, step));
  // What event files of TensorBoard begin with: 24 bytes of data and the checksum of that number.
  EXPECT_EQ(read(files()[0]).substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22", 12));
  EXPECT_THAT(files()[0].string(), ::testing::HasSubstr("/tensorboard/rank_0/events.out.tfevents.1."));
}

TEST_F(TensorboardSink, TagsAreLayerTensorStatistic) {
  auto sink = open();
  StatRecord record = record_at(7, 0.75);
  sink->record(record);
  record.phase = Phase::kEval;
  sink->record(record);
  record.phase = Phase::kRecompute;
  sink->record(record);
  record.phase = Phase::kForward;
  record.leader = false;
  sink->record(record);
  sink->end_of_step(7);
  sink->end_of_step(8);
  const auto written = records();
  ASSERT_EQ(written.size(), 3U);
  EXPECT_EQ(field(fields_of(written[2]), 2), "7");
  EXPECT_THAT(scalars_of(written[2]),
              ElementsAre(Pair("decoder.layers.1.mlp.linear_fc1/activation/cur_amax", 0.75F),
                          Pair("decoder.layers.1.mlp.linear_fc1/activation/eval/cur_amax", 0.75F)));
}

TEST_F(TensorboardSink, AHistogramHasABucketForEachPowerOfTwo) {
  auto sink = open();
  StatRecord record = record_at(0);
  record.stats = {{.name = "histogram_zero", .value = 5},
                  {.name = "histogram_nan", .value = 1},
                  {.name = "histogram_below_2^-3", .value = 2, .detail = true},
                  {.name = "histogram_2^-2", .value = 10, .detail = true},
                  {.name = "histogram_2^1", .value = 4, .detail = true},
                  {.name = "l1_norm", .value = 12}};
  sink->record(record);
  sink->end_of_step(0);
  const std::string event = records().at(2);
  EXPECT_THAT(scalars_of(event),
              ElementsAre(Pair("decoder.layers.1.mlp.linear_fc1/activation/histogram_nan", 1.0F),
                          Pair("decoder.layers.1.mlp.linear_fc1/activation/l1_norm", 12.0F)));
  std::string histogram;
  for (const auto& [key, value] : fields_of(field(fields_of(event), 5))) {
    const auto members = fields_of(value);
    if (members.at(1).first == 5) {
      EXPECT_EQ(members[0].second, "decoder.layers.1.mlp.linear_fc1/activation/histogram");
      histogram = members[1].second;
    }
  }
  const auto fields = fields_of(histogram);
  // Below 1/8: 5 zeros and 2 more. [1/8, 1/4) nothing, [1/4, 1/2) 10, up to 2 nothing, [2, 4) 4.
  EXPECT_THAT(doubles(field(fields, 6)), ElementsAre(0.125, 0.25, 0.5, 2, 4));
  EXPECT_THAT(doubles(field(fields, 7)), ElementsAre(7, 0, 10, 0, 4));
  EXPECT_EQ(number_at<double>(field(fields, 2), 0), 4);
  EXPECT_EQ(number_at<double>(field(fields, 3), 0), 21);
  EXPECT_EQ(number_at<double>(field(fields, 4), 0), 12);
}

TEST_F(TensorboardSink, AStepIsOneWriteAndARefusalLeavesWholeRecords) {
  auto sink = open(3);
  for (int step = 0; step < 3; ++step) {
    sink->record(record_at(step));
    sink->end_of_step(step);
  }
  EXPECT_EQ(testing::WriteProbe::calls(), 3U);
  EXPECT_EQ(records().size(), 5U);
  EXPECT_THAT(files()[0].string(), ::testing::HasSubstr("/rank_3/"));
}

TEST(NoTensorboardSink, ABuildWithoutItSaysWhatIsMissing) {
  if (has_tensorboard_sink()) GTEST_SKIP() << "this build has it";
  EXPECT_THROW(make_tensorboard_sink("x", 0), Error);
}

}  // namespace
}  // namespace amaxscope
