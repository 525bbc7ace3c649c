// SPDX-License-Identifier: Apache-2.0
// Saves that somebody has made to do harm: every number and every checksum in them fits, but for what is said. (Damage that
// checksums find is in zero_save_test.cpp, the format of a single file in unit/zero_safetensors_test.cpp.)
#include "base/checksum.hpp"
#include "base/text.hpp"
#include "harness/ddp_kit.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include "zero/safetensors.hpp"
#include <algorithm>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace harness;
using Json = nlohmann::json;

namespace {

const std::vector<size_t> counts{3, 2, 4};

/// No load may take more than a small multiple of its files. (Sanitizers need address space of their own.)
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
#endif
}

/// A save of two ranks, whose files can be changed so that checksums fit.
class ZeroHostile : public testing::Test {
  protected:
    void SetUp() override {
        on_ranks("local", 2, [&](ujoin_group *group, int) {
            Tensors x(counts);
            const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
            optimizer.step();
            ujoin_save_options both{};
            both.size = sizeof both;
            both.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
            both.no_sync = 1;
            ok(zero_save(optimizer.get(), path_.c_str(), &both));
        });
        index_ = Json::parse(read_file(path_ + "/index.json"));
        for (const std::string &name : names_in(path_)) files_[name] = read_file(path_ + "/" + name);
    }

    static std::string sealed(Json index) {
        index.erase("checksum");
        ujoin::Checksum sum;
        sum.text(index.dump());
        index["checksum"] = sum.hex();
        return index.dump();
    }
    std::string file_of(size_t rank) const { return index_["files"][rank]["name"]; }

    /// Loads in a process of its own with little memory. Whatever is refused changes nothing, and names the culprit.
    void expect_refused(const std::string &what, const std::string &culprit, const std::vector<ujoin_status> &codes) {
        const ddp_kit::GroupPtr group = ddp_kit::alone();
        Tensors x(counts, 5);
        const Optimizer optimizer(group.get(), UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.5}});
        optimizer.step();
        const Listed before = listed(state_everywhere(group.get(), optimizer).state);
        const std::vector<std::vector<float>> values = x.data;
        ujoin_save_options both{};
        both.size = sizeof both;
        both.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
        const ujoin_status status = zero_load(optimizer.get(), path_.c_str(), &both, nullptr);
        const std::string text = ujoin_last_error();
        EXPECT_NE(std::find(codes.begin(), codes.end(), status), codes.end())
            << what << ": " << ujoin_status_name(status) << ": " << text;
        EXPECT_NE(text.find(culprit), std::string::npos) << what << ": " << text;
        EXPECT_EQ(x.data, values) << what;
        EXPECT_EQ(listed(state_everywhere(group.get(), optimizer).state), before) << what;
        optimizer.step();
    }
    void refuse_index(const std::string &what, const std::string &text) {
        write_file(path_ + "/index.json", text);
        expect_refused(what, "index.json", {UJOIN_E_MISMATCH, UJOIN_E_UNSUPPORTED});
        write_file(path_ + "/index.json", files_.at("index.json"));
    }
    void refuse_change(const std::string &what, const std::function<void(Json &)> &change) {
        Json index = index_;
        change(index);
        refuse_index(what, sealed(index));
    }
    /// Rank 0's file is written anew with other tensors, and the index follows.
    void refuse_state(const std::string &what, const std::function<void(std::vector<ujoin::FileTensor> &)> &change) {
        const std::string name = file_of(0);
        std::vector<ujoin::FileTensor> tensors;
        std::vector<std::string> data;
        {
            ujoin::SafetensorsReader reader(path_ + "/" + name);
            tensors = reader.tensors();
            for (const ujoin::FileTensor &tensor : tensors) data.emplace_back(tensor.bytes, '\0');
            reader.read([&](size_t i) { return data[i].data(); });
        }
        for (size_t i = 0; i < tensors.size(); i++) tensors[i].data = data[i].data();
        change(tensors);
        std::filesystem::remove(path_ + "/" + name);
        Json index = index_;
        {
            ujoin::NewFile file(path_ + "/" + name);
            index["files"][0]["checksum"] = ujoin::write_safetensors(file, tensors, {});
            file.finish(false);
            file.keep();
            index["files"][0]["bytes"] = file.bytes();
        }
        write_file(path_ + "/index.json", sealed(index));
        expect_refused(what, what.rfind("missing", 0) == 0 ? "" : name, {UJOIN_E_MISMATCH});
        restore();
    }
    void restore() {
        for (const auto &[name, content] : files_) {
            std::filesystem::remove(path_ + "/" + name);
            write_file(path_ + "/" + name, content);
        }
    }

    TempDir dir_;
    std::string path_ = dir_ / "save";
    Json index_;
    std::map<std::string, std::string> files_;
};

TEST_F(ZeroHostile, SECURITY_02_an_index_that_lies) {
    run_processes(1, [&](int) {
        limit_memory();
        refuse_index("nothing", "");
        refuse_index("no object", "[]");
        refuse_index("deep", std::string(200'000, '['));
        refuse_index("deep objects", [] {
            std::string text;
            for (int i = 0; i < 100'000; i++) text += "{\"a\":";
            return text;
        }());
        refuse_index("names twice", R"({"format":"ujoin-zero","format":"ujoin-zero"})");
        refuse_index("half a character", "{\"\xff\":1}");
        refuse_index("unsealed", [&] {
            Json index = index_;
            index["optimizer"] = "sgd";
            return index.dump();
        }());
        refuse_change("format", [](Json &index) { index["format"] = "other"; });
        refuse_change("version", [](Json &index) { index["version"] = uint64_t{1} << 60; });
        refuse_change("version of another type", [](Json &index) { index["version"] = "1"; });
        for (const char *field : {"optimizer", "groups", "files"}) {
            refuse_change(field, [&](Json &index) { index.erase(field); });
            for (const Json &value : {Json(-1), Json(1.5), Json(nullptr), Json(Json::object()), Json("x")})
                refuse_change(field, [&](Json &index) { index[field] = value; });
        }
        refuse_change("no parameters", [](Json &index) { index.erase("parameters"); });
        for (const char *field : {"name", "bytes", "checksum"}) {
            refuse_change(field, [&](Json &index) { index["files"][0].erase(field); });
            refuse_change(field, [&](Json &index) { index["files"][0][field] = -5; });
        }
        for (const char *field : {"hyper", "parameters", "pieces"}) {
            refuse_change(field, [&](Json &index) { index["groups"][0].erase(field); });
            refuse_change(field, [&](Json &index) { index["groups"][0][field] = Json::array(); });
        }
        refuse_change("no files", [](Json &index) { index["files"] = Json::array(); });
        refuse_change("a hyper-parameter that is text", [](Json &index) { index["groups"][0]["hyper"]["lr"] = "1"; });
        refuse_change("a hyper-parameter out of range", [](Json &index) { index["groups"][0]["hyper"]["lr"] = -1; });
        refuse_change("an unknown hyper-parameter", [](Json &index) {
            index["groups"][0]["hyper"].erase("lr");
            index["groups"][0]["hyper"]["rl"] = 1;
        });
        refuse_change("a parameter twice", [](Json &index) { index["groups"][0]["parameters"][1] = "p0"; });
    });
}

TEST_F(ZeroHostile, SECURITY_02_pieces_that_lie) {
    run_processes(1, [&](int) {
        limit_memory();
        const auto refuse = [&](const std::string &pieces) {
            refuse_change(pieces, [&](Json &index) { index["groups"][0]["pieces"][0] = Json::parse(pieces); });
        };
        for (const char *pieces : {"[]",
                                   "[[]]",
                                   "[[0]]",
                                   "[[0,3,0]]",
                                   "[[0,2]]",
                                   "[[0,4]]",
                                   "[[0,-3]]",
                                   "[[-1,3]]",
                                   "[[0,3.0]]",
                                   "[[0,\"3\"]]",
                                   "[[2,3]]",
                                   "[[1152921504606846976,3]]",
                                   "[[18446744073709551615,3]]",
                                   "[[0,1152921504606846976]]",
                                   "[[0,18446744073709551615]]",
                                   "[[0,18446744073709551615],[1,4]]",
                                   "[[1,2],[0,1]]",
                                   "[[0,1],[0,2]]",
                                   "{}",
                                   "3"})
            refuse(pieces);
        std::string many = "[[0,0]";
        for (int i = 1; i < 100'000; i++) many += ",[" + std::to_string(i) + ",0]";
        refuse(many + "]");
    });
}

TEST_F(ZeroHostile, SECURITY_02_names_that_lead_elsewhere) {
    const std::string secret = dir_ / file_of(0); // beside the save, with a name that a save gives
    write_file(secret, files_.at(file_of(0)));
    run_processes(1, [&](int) {
        limit_memory();
        const std::string plain = file_of(0);
        for (const std::string &name :
             {"../" + plain, "./" + plain, "/" + plain, secret, "save/" + plain, plain + "/../" + plain, plain + "/",
              "." + plain, plain + std::string(1, '\0'), std::string("/dev/zero"), std::string(".."), std::string(""),
              std::string(5000, 'a'), std::string("state-0123456789abcdef-../x.safetensors"),
              std::string("state-0123456789abcdef-99999999999.safetensors"), std::string("index.json")}) {
            refuse_change(name, [&](Json &index) { index["files"][0]["name"] = name; });
            refuse_change(name, [&](Json &index) { index["parameters"]["name"] = name; });
        }
        // One of the save's own files in another's place: all fits, but for what is in it.
        Json index = index_;
        index["parameters"] = index["files"][0];
        write_file(path_ + "/index.json", sealed(index));
        expect_refused("state as parameters", file_of(0), {UJOIN_E_MISMATCH});
        index = index_;
        index["files"][0] = index["files"][1];
        write_file(path_ + "/index.json", sealed(index));
        expect_refused("another rank's state", file_of(1), {UJOIN_E_MISMATCH});
        index["files"][0] = index["parameters"];
        write_file(path_ + "/index.json", sealed(index));
        expect_refused("parameters as state", index_["parameters"]["name"], {UJOIN_E_MISMATCH});
        restore();
    });
}

TEST_F(ZeroHostile, SECURITY_02_sizes_that_lie) {
    run_processes(1, [&](int) {
        limit_memory();
        const std::string path = path_ + "/" + file_of(0);
        for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 60, ~uint64_t{0}}) {
            Json index = index_;
            index["files"][0]["bytes"] = bytes;
            write_file(path_ + "/index.json", sealed(index));
            expect_refused("bytes", file_of(0), {UJOIN_E_MISMATCH});
        }
        // Files without an end: nothing may be taken for them before it is known what is in them.
        std::filesystem::resize_file(path_ + "/index.json", uintmax_t{1} << 33);
        expect_refused("a large index", "index.json", {UJOIN_E_MISMATCH});
        restore();
        std::filesystem::resize_file(path, uintmax_t{1} << 33);
        Json index = index_;
        index["files"][0]["bytes"] = uint64_t{1} << 33;
        write_file(path_ + "/index.json", sealed(index));
        expect_refused("a large file", file_of(0), {UJOIN_E_MISMATCH});
        restore();
    });
}

TEST_F(ZeroHostile, SECURITY_02_tensors_that_do_not_fit) {
    using Tensors = std::vector<ujoin::FileTensor>;
    run_processes(1, [&](int) {
        limit_memory();
        const auto find = [](Tensors &tensors, const std::string &begin) -> ujoin::FileTensor & {
            const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const ujoin::FileTensor &tensor) {
                return tensor.name.rfind(begin, 0) == 0;
            });
            if (found == tensors.end()) throw std::runtime_error(begin);
            return *found;
        };
        refuse_state("another type", [&](Tensors &all) { find(all, "state/exp_avg/").dtype = UJOIN_I32; });
        refuse_state("another shape", [&](Tensors &all) { find(all, "state/exp_avg/").shape.push_back(1); });
        refuse_state("fewer elements", [&](Tensors &all) {
            ujoin::FileTensor &tensor = find(all, "state/exp_avg/");
            tensor.bytes -= 4;
            tensor.shape[0]--;
        });
        refuse_state("an unknown state", [&](Tensors &all) { find(all, "state/exp_avg/").name.insert(6, "x"); });
        refuse_state("an unknown parameter", [&](Tensors &all) { find(all, "state/exp_avg/").name += "x"; });
        for (const char *name : {"state/exp_avg/", "state/", "state//", "/", "", "step", "state/exp_avg/../p0", "program/",
                                 "program/text/", "program/other/x", "program/number/x"})
            refuse_state(ujoin::cat("the name ", name), [&](Tensors &all) { find(all, "state/exp_avg/").name = name; });
        refuse_state("missing tensor",
                     [&](Tensors &all) { all.erase(all.begin() + (&find(all, "state/exp_avg/") - all.data())); });
        for (const int64_t value : {int64_t{-1}, int64_t{1} << 60, INT64_MIN})
            refuse_state("a step count", [&](Tensors &all) { find(all, "state/step/").data = &value; });
        static const double number = 1;
        refuse_state("a step count that is no integer", [&](Tensors &all) {
            find(all, "state/step/").dtype = UJOIN_F64;
            find(all, "state/step/").data = &number;
        });
    });
}

TEST_F(ZeroHostile, SECURITY_02_what_is_no_regular_file_is_refused_at_once) {
    run_processes(1, [&](int) {
        limit_memory();
        for (const std::string &name : {std::string("index.json"), file_of(0)}) {
            const std::string path = path_ + "/" + name;
            const auto replaced = [&](const std::string &what, const std::vector<ujoin_status> &codes) {
                expect_refused(what, name, codes);
                std::filesystem::remove(path);
            };
            std::filesystem::remove(path);
            std::filesystem::create_symlink("/dev/zero", path);
            replaced("a device", {UJOIN_E_MISMATCH});
            ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); // reading it would wait for a writer
            replaced("a pipe", {UJOIN_E_MISMATCH});
            std::filesystem::create_directory(path);
            replaced("a directory", {UJOIN_E_SYSTEM});
            std::filesystem::create_symlink(path, path);
            replaced("a link to itself", {UJOIN_E_SYSTEM});
            restore();
        }
    });
}

TEST_F(ZeroHostile, SECURITY_02_a_save_follows_no_link_that_was_planted) {
    const std::string victim = dir_ / "victim";
    write_file(victim, "mine");
    std::filesystem::remove(path_ + "/index.json");
    std::filesystem::create_symlink(victim, path_ + "/index.json");
    std::filesystem::create_symlink(victim, path_ + "/state-0123456789abcdef-0.safetensors");
    on_ranks("local", 2, [&](ujoin_group *group, int) {
        Tensors x(counts);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {});
        ok(zero_save(optimizer.get(), path_.c_str(), nullptr));
        ok(zero_load(optimizer.get(), path_.c_str(), nullptr, nullptr));
    });
    EXPECT_EQ(read_file(victim), "mine");
    EXPECT_FALSE(std::filesystem::is_symlink(path_ + "/index.json"));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path_ + "/state-0123456789abcdef-0.safetensors")));
}

} // namespace
