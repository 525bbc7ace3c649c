// SPDX-License-Identifier: Apache-2.0
#include "store/store.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "store/core.hpp"
#include <cerrno>
#include <sys/eventfd.h>

namespace ujoin {
namespace store {

Abort::Abort(bool with_descriptor) {
    if (!with_descriptor) return;
    event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) fail_errno(errno, "cannot make an event descriptor for a store");
}

void Abort::set() noexcept {
    set_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    if (event_) (void)!write(event_.get(), &one, sizeof one); // can only fail when it is readable already
}

void Abort::check() const {
    if (is_set()) fail(UJOIN_E_ABORTED, "the store was aborted on this handle");
}

} // namespace store

namespace {

using store::Abort;
using store::Core;

/// One handle: a core, what its keys begin with, and whether it was aborted.
class View final : public Store {
  public:
    View(std::shared_ptr<Core> core, std::string prefix)
        : core_(std::move(core)), prefix_(std::move(prefix)), abort_(core_->waits_on_descriptors()) {}

    const std::shared_ptr<Core> &core() const { return core_; }
    const std::string &prefix() const { return prefix_; }
    const std::string &url() const override { return core_->url(); }

    void set(const std::string &key, const std::string &value) override {
        if (value.size() > max_value)
            fail_invalid("the value of key \"", key, "\" has ", value.size(), " bytes; at most ", max_value,
                         " are possible");
        at(key, [&](const std::string &whole) {
            core_->set(whole, value, abort_);
            return true;
        });
    }
    std::optional<std::string> get(const std::string &key, const Deadline &deadline) override {
        return at(key, [&](const std::string &whole) { return core_->get(whole, deadline, abort_); });
    }
    int64_t add(const std::string &key, int64_t amount) override {
        return at(key, [&](const std::string &whole) { return core_->add(whole, amount, abort_); });
    }
    std::vector<std::string> wait(const std::vector<std::string> &keys, const Deadline &deadline) override {
        for (const std::string &key : keys) check(key);
        std::vector<std::string> missing;
        for (const std::string &key : keys) // one after the other: all must be there anyway
            if (!at(key, [&](const std::string &whole) { return core_->await(whole, deadline, abort_); }))
                missing.push_back(key);
        return missing;
    }
    void abort() override {
        abort_.set();
        core_->wake();
    }

  private:
    std::string check(const std::string &key) const {
        if (key.empty()) fail_invalid("the key is empty");
        if (prefix_.size() + key.size() > max_key)
            fail_invalid("the key \"", key.substr(0, 40), "...\" has ", prefix_.size() + key.size(),
                         " bytes with its prefix; at most ", max_key, " are possible");
        return prefix_ + key;
    }
    /// Errors say which store and key they are about.
    template <class Body> auto at(const std::string &key, Body &&body) -> decltype(body(key)) {
        const std::string whole = check(key);
        try {
            abort_.check();
            auto result = body(whole);
            abort_.check(); // the key may have come after the abort
            return result;
        } catch (Error &error) {
            error.in(cat("store ", url().empty() ? "in memory" : url(), ", key \"", whole, "\""));
            throw;
        }
    }

    const std::shared_ptr<Core> core_;
    const std::string prefix_;
    Abort abort_;
};

bool split_scheme(const std::string &url, std::string_view scheme, std::string &rest) {
    if (url.compare(0, scheme.size(), scheme) != 0) return false;
    rest = url.substr(scheme.size());
    return true;
}

} // namespace

std::shared_ptr<Store> Store::open(const std::string &url, const Options &given) {
    Options options = given;
    if (options.secret.empty()) options.secret = env::text(env::Var::secret).value_or("");
    std::string rest;
    std::shared_ptr<Core> core;
    try {
        if (split_scheme(url, "tcp://", rest)) {
            core = store::open_tcp(rest, options);
        } else if (options.listen) {
            fail_invalid("`listen` is for tcp:// stores");
        } else if (split_scheme(url, "memory://", rest)) {
            core = store::open_memory(rest);
        } else if (split_scheme(url, "file://", rest)) {
            core = store::open_file(rest, options);
        } else {
            fail_invalid("expected memory://name, file:///path or tcp://host:port");
        }
    } catch (Error &error) {
        error.in(cat("store ", url));
        throw;
    }
    return std::make_shared<View>(std::move(core), "");
}

std::shared_ptr<Store> Store::with_prefix(const std::shared_ptr<Store> &store, const std::string &prefix) {
    const auto *view = dynamic_cast<const View *>(store.get());
    if (!view) fail(UJOIN_E_INTERNAL, "a prefix needs a store that Store::open made");
    if (view->prefix().size() + prefix.size() >= max_key)
        fail_invalid("the prefix has ", view->prefix().size() + prefix.size(), " bytes; keys have at most ", max_key);
    return std::make_shared<View>(view->core(), view->prefix() + prefix);
}

} // namespace ujoin
