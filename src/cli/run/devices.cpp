// SPDX-License-Identifier: Apache-2.0
#include "run/devices.hpp"
#include "run/options.hpp"
#include <algorithm>
#include <cstdlib>
#include <dirent.h>

namespace ujoin_run {

std::vector<std::string> visible_devices() {
    const char *given = std::getenv("UJOIN_DEV_DIR");
    std::vector<int> numbers;
    if (DIR *directory = opendir(given && *given ? given : "/dev")) {
        while (const dirent *entry =
                   readdir(directory)) { // NOLINT(concurrency-mt-unsafe): the stream is this function's own
            const std::string name = entry->d_name;
            if (name.size() < 7 || name.size() > 10 || name.compare(0, 6, "nvidia") != 0) continue;
            if (std::all_of(name.begin() + 6, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
                numbers.push_back(std::stoi(name.substr(6)));
        }
        closedir(directory);
    }
    std::sort(numbers.begin(), numbers.end());
    std::vector<std::string> devices;
    if (numbers.empty()) return devices; // whatever the variable says
    if (const char *visible = std::getenv("CUDA_VISIBLE_DEVICES")) return split(visible, ',');
    for (const int number : numbers) devices.push_back(std::to_string(number));
    return devices;
}

} // namespace ujoin_run
