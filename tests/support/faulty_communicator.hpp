// A communicator that misbehaves on purpose, for tests of what notices it.
#pragma once

#include <chrono>
#include <cstdint>

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

struct CommunicatorFault {
  enum class Kind : std::uint8_t {
    kSkip,  ///< this rank takes no part in the call; its data stays as it is
    kLate,  ///< this rank comes after `delay`
  };
  Kind kind = Kind::kSkip;
  int call = 0;  ///< which collective of this rank, counted from 0; a split counts as well
  std::chrono::milliseconds delay{0};
};

/// `inner` with one fault on this rank, which must outlive it. Groups split from it are sound.
class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator& inner, CommunicatorFault fault);

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  [[noreturn]] void abort(int status, std::string_view reason) override;

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override;
  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override;
  void do_all_gather(const TensorView& in, const MutableTensorView& out) override;
  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override;
  void do_broadcast(const MutableTensorView& io, int root) override;
  void do_barrier() override;
  void do_send(const TensorView& in, int to) override;
  void do_receive(const MutableTensorView& out, int from) override;
  std::unique_ptr<Communicator> do_split(int color, int key) override;

 private:
  /// Counts, waits if this is the late call, and says whether to take part.
  bool takes_part();

  Communicator& inner_;
  CommunicatorFault fault_;
  int next_call_ = 0;
};

}  // namespace amaxscope::testing
