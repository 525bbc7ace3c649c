// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "os/spawn.hpp"
#include "os/warden_protocol.hpp"
#include <string>
#include <vector>

namespace ujoin {

/// The launcher's side of os/warden_protocol.hpp. One thread at a time.
class WardenClient {
  public:
    /// Finds and starts the helper executable. UJOIN_E_SYSTEM lists where it was looked for.
    WardenClient(bool new_session, char *const *envp);
    /// Starts another program that serves the protocol.
    WardenClient(const std::string &program, bool new_session, char *const *envp);

    /// As os::spawn, but the worker becomes the warden's child. UJOIN_E_SYSTEM if the warden died.
    os::SpawnResult spawn(int index, const os::SpawnRequest &request);
    /// Asks it to make a cgroup and to put into it the workers that come; 0 or the errno of what failed.
    int hold(const std::string &path);
    /// Ends of workers that were told during spawn(), oldest first.
    std::vector<os::warden::Event> take_early() { return std::move(early_); }

    int socket() const { return socket_.get(); }
    int pidfd() const { return pidfd_.get(); }
    enum class Got { event, nothing, lost };
    /// The next event, without waiting; `pidfd` gets the descriptor that came with it.
    Got receive(os::warden::Event &event, os::Fd *pidfd = nullptr);
    /// Asks it to kill what is left and to exit.
    void end();

  private:
    os::warden::Event ask(const os::warden::Request &head, const std::vector<int> &fds, os::warden::Kind answer,
                          os::Fd *pidfd);

    os::Fd socket_;
    os::Fd pidfd_;
    std::vector<os::warden::Event> early_;
};

} // namespace ujoin
