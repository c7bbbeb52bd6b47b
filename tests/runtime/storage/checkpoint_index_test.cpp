#include "runtime/storage/checkpoint_index.hpp"

#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

class CheckpointIndexTest : public testing::StorageTest {
 protected:
  CheckpointIndexTest() {
    const Tensor a = Tensor::of<float>({1, 2}, Shape{2});
    const Tensor b = Tensor::of<float>({3}, Shape{1});
    const Tensor c = Tensor::of<BF16>({BF16{0x4080}}, Shape{1, 1});
    write_safetensors(folder_ / "part-1.safetensors", {{{"b", b}, {"a", a}}});
    write_safetensors(folder_ / "part-2.safetensors", {{{"c", c}}});
  }
  [[nodiscard]] std::string refusal(const std::string& index) const {
    const std::filesystem::path path = write("model.safetensors.index.json", index);
    return error_of([&] { const ShardedCheckpoint checkpoint(path); });
  }
};

TEST_F(CheckpointIndexTest, FindsTensorsInTheirFiles) {
  const std::filesystem::path path =
      write("model.safetensors.index.json",
            R"({"metadata":{"total_size":14,"by":"test"},"weight_map":{"c":"part-2.safetensors",)"
            R"("a":"part-1.safetensors","b":"part-1.safetensors"}})");
  const std::unique_ptr<TensorFile> file = open_tensor_file(path);
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_THAT(file->read(file->at("a")).values<float>(), ElementsAre(1, 2));
  EXPECT_THAT(file->read(file->at("b")).values<float>(), ElementsAre(3));
  EXPECT_EQ(file->read(file->at("c")).values<BF16>()[0].bits, 0x4080);
  EXPECT_EQ(file->metadata().at("total_size"), "14");
  EXPECT_EQ(file->metadata().at("by"), "test");
}

TEST_F(CheckpointIndexTest, RefusesWhatIsNoIndex) {
  EXPECT_THAT(refusal("{"), AllOf(HasSubstr("input: "), HasSubstr("index.json: is not JSON at byte")));
  EXPECT_THAT(refusal("[]"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("is nested deeper than 4 levels"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":1}})"), HasSubstr("tensor \"a\" is mapped to number"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"part-1.safetensors","a":"part-2.safetensors"}})"),
              HasSubstr("has the key \"a\" twice"));
}

TEST_F(CheckpointIndexTest, NoFileNameLeavesTheFolder) {
  for (const std::string name :
       {"../part-1.safetensors", "/etc/passwd", "sub/part-1.safetensors", "part-1.bin", ""}) {
    EXPECT_THAT(refusal(R"({"weight_map":{"a":")" + name + "\"}}"),
                HasSubstr("a .safetensors file in the folder of the index is needed"));
  }
}

TEST_F(CheckpointIndexTest, NamesWhatItsFilesLack) {
  EXPECT_THAT(refusal(R"({"weight_map":{"z":"part-1.safetensors"}})"),
              HasSubstr("tensor \"z\" is not in part-1.safetensors"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a":"part-3.safetensors"}})"),
              HasSubstr("part-3.safetensors: there is no such file"));
}

TEST_F(CheckpointIndexTest, AFileIsOpenedByItsName) {
  EXPECT_EQ(open_tensor_file(folder_ / "part-2.safetensors")->tensors().size(), 1U);
  write("x.bin", "");
  EXPECT_THAT(error_of([&] { static_cast<void>(open_tensor_file(folder_ / "x.bin")); }),
              HasSubstr("must end in .safetensors, .npy or .safetensors.index.json"));
}

}  // namespace
}  // namespace amaxscope
