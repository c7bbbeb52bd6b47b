#include "capi/calls.hpp"
#include "capi/handles.hpp"

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

void amaxscope_device_free(amaxscope_device* device) { delete device; }

amaxscope_status amaxscope_begin_capture(amaxscope_session* session, amaxscope_device* device, void* stream) {
  return capi::call([&] {
    capi::required(session, "session")
        .session->begin_capture({stream, capi::required(device, "device").backend.get()});
  });
}

amaxscope_status amaxscope_end_capture(amaxscope_session* session) {
  return capi::call([&] { capi::required(session, "session").session->end_capture(); });
}

int amaxscope_needs_capture(amaxscope_session* session) {
  int needed = 0;
  static_cast<void>(
      capi::call([&] { needed = capi::required(session, "session").session->needs_capture() ? 1 : 0; }));
  return needed;
}

amaxscope_status amaxscope_before_replay(amaxscope_session* session) {
  return capi::call([&] { capi::required(session, "session").session->before_replay(); });
}

}  // extern "C"
