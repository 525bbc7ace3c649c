// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace harness {

/// Hosts on one wire, as far as the network is concerned: a network namespace each, with the address 10.77.0.(h + 1), and a
/// switch between them. They go with this object and the processes that have entered them.
class Hosts {
  public:
    explicit Hosts(int count);
    ~Hosts();
    Hosts(const Hosts &) = delete;
    Hosts &operator=(const Hosts &) = delete;

    /// Why there are none: no root, or a kernel without what it takes. "" = all is well.
    const std::string &why_not() const { return why_not_; }
    /// The calling thread, and what it starts from now on, is on that host.
    void enter(int host) const;
    /// What starts a program there: "nsenter", ...
    std::vector<std::string> prefix(int host) const;
    static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
    /// Pulls the host's cable out of the switch.
    void cut(int host) const;

  private:
    void run(int where, const std::string &command);

    std::vector<int> namespaces_; ///< the switch is the last one
    std::string why_not_;
};

} // namespace harness
