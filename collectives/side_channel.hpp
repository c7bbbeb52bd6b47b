// Short texts between the ranks of a group, outside of its collectives: for those that wait in one which does
// not complete.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace amaxscope {

struct SideMessage {
  int from = 0;  ///< rank in the group
  std::string text;
};

/// Used by the thread that uses the communicator it came from, which it may outlive. Nothing here blocks or
/// throws: what cannot be sent is lost.
class SideChannel {
 public:
  static constexpr std::size_t kLongest = 480;  ///< bytes: small enough to go without anybody receiving it

  virtual ~SideChannel() = default;
  /// Longer texts are cut. to: rank in the group.
  virtual void send(int to, std::string_view text) noexcept = 0;
  /// The next text that has come, of any rank.
  virtual std::optional<SideMessage> receive() noexcept = 0;
};

}  // namespace amaxscope
