#include <memory>
#include <utility>

#include "collectives/callback_communicator.hpp"
#include "collectives/loopback_communicator.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {

namespace {

/// What a user of CallbackCommunicator writes, over collectives that are known to work.
CollectiveCallbacks callbacks_over(std::shared_ptr<Communicator> inner) {
  CollectiveCallbacks callbacks;
  callbacks.rank = inner->rank();
  callbacks.size = inner->size();
  callbacks.world_ranks = inner->world_ranks();
  callbacks.all_reduce = [inner](void* io, std::int64_t count, DType dtype, ReduceOp op) {
    inner->all_reduce(MutableTensorView(io, dtype, {count}), op, kTestTag);
  };
  callbacks.all_gather = [inner](const void* in, void* out, std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes);
    inner->all_gather(TensorView(in, DType::kU8, {count}),
                      MutableTensorView(out, DType::kU8, {inner->size(), count}), kTestTag);
  };
  callbacks.broadcast = [inner](void* io, std::size_t bytes, int root) {
    inner->broadcast(MutableTensorView(io, DType::kU8, {static_cast<std::int64_t>(bytes)}), root, kTestTag);
  };
  callbacks.barrier = [inner] { inner->barrier(kTestTag); };
  callbacks.abort = [inner](int status, std::string_view reason) { inner->abort(status, reason); };
  callbacks.send = [inner](const void* in, std::size_t bytes, int to) {
    inner->send(TensorView(in, DType::kU8, {static_cast<std::int64_t>(bytes)}), to, kTestTag);
  };
  callbacks.receive = [inner](void* out, std::size_t bytes, int from) {
    inner->receive(MutableTensorView(out, DType::kU8, {static_cast<std::int64_t>(bytes)}), from, kTestTag);
  };
  callbacks.split = [inner](int color, int key) -> std::unique_ptr<CollectiveCallbacks> {
    std::shared_ptr<Communicator> child = inner->split(color, key, kTestTag);
    return child == nullptr ? nullptr
                            : std::make_unique<CollectiveCallbacks>(callbacks_over(std::move(child)));
  };
  return callbacks;
}

}  // namespace

std::vector<Backend> backends() {
  std::vector<Backend> result;
  for (const int ranks : {1, 2, 4, 8}) {
    result.push_back({.name = "loopback", .ranks = ranks, .run = [ranks](const RankBody& body) {
                        run_loopback_ranks(ranks, body);
                      }});
  }
  for (const int ranks : {1, 2, 4}) {
    result.push_back({.name = "callback",
                      .ranks = ranks,
                      .starts_without_waiting = false,
                      .run = [ranks](const RankBody& body) {
                        run_loopback_ranks(ranks, [&](Communicator& inner) {
                          const std::shared_ptr<Communicator> borrowed(&inner, [](Communicator*) {});
                          const auto world = make_callback_communicator(callbacks_over(borrowed));
                          body(*world);
                        });
                      }});
  }
  result.push_back({.name = "single", .ranks = 1, .run = [](const RankBody& body) {
                      const auto world = make_single_rank_communicator();
                      body(*world);
                    }});
  return result;
}

}  // namespace amaxscope::testing
