# SPDX-License-Identifier: Apache-2.0
# Which packages are needed for what, and how they get here. Sourced by tests/run and examples/run.

packages_build="git cmake ninja-build g++ pkg-config libuv1-dev nlohmann-json3-dev libcli11-dev"
packages_test="$packages_build libgtest-dev libcmocka-dev python3 iproute2"
packages_all="$packages_test clang clang-format clang-tidy python3-torch libgloo-dev openmpi-bin libopenmpi-dev mpich libmpich-dev
python3-venv python3-dev luajit dpkg-dev spin ccache"

# Prints those of the given packages that are not installed.
packages_missing() {
    local package
    for package in "$@"; do
        case "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" in
        installed) ;;
        *) echo "$package" ;;
        esac
    done
}

# install_packages PACKAGE...: returns when all are there. Quiet unless something fails. Exits 3 with the one command to
# run where it may not install, and 1 with the name of a package that cannot be had.
install_packages() {
    local missing log run=()
    if ! command -v dpkg-query >/dev/null; then
        # Not Debian or Ubuntu: the build names what it does not find.
        return 0
    fi
    missing=$(packages_missing "$@" | tr '\n' ' ')
    missing=${missing% }
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            run=(sudo -n)
        else
            echo "Packages are missing, and this user may not install them. Please run:" >&2
            echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing" >&2
            exit 3
        fi
    fi
    log=$(mktemp)
    # shellcheck disable=SC2086
    if ! apt_install $missing >"$log" 2>&1 &&
        ! { "${run[@]}" apt-get update >>"$log" 2>&1 && apt_install $missing >>"$log" 2>&1; }; then
        cat "$log" >&2
        name_unavailable $missing
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
}

# Uses `run` of install_packages.
apt_install() {
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}

name_unavailable() {
    local package
    for package in "$@"; do
        if ! apt-cache show "$package" >/dev/null 2>&1; then
            echo "error: package $package cannot be had: no configured package source has it" >&2
        elif [ -n "$(packages_missing "$package")" ]; then
            echo "error: package $package could not be installed (see above)" >&2
        fi
    done
}
