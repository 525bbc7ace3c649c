#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build and uses it as users do: pkg-config, CMake, the archive, dlopen with local scope, ctypes."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import header  # noqa: E402
import tap  # noqa: E402
from results import ROOT  # noqa: E402

BUILD = ROOT / "build" / "dev"
CONSUMERS = ROOT / "tests" / "consumers"
SOURCE = CONSUMERS / "consumer.c"
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
# What the copied file says of itself: no place of the machine that built it.
LOOK_FOR = str(ROOT)


class Failed(Exception):
    pass


def call(command, **more):
    env = dict(os.environ, **more.pop("env", {}))
    try:
        done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, env=env, check=False, **more)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(map(str, command))}: ran past its deadline") from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def check(name, body):
    try:
        body()
    except Failed as error:
        tap.report(name, [str(error)])
        return False
    tap.report(name, [])
    return True


class Installed:
    """The library under a temporary prefix."""

    def __init__(self, place):
        self.place, self.prefix = place, place / "prefix"
        self.library = None

    def install(self):
        call(["cmake", "--install", BUILD, "--prefix", self.prefix])
        found = sorted(self.prefix.rglob("libujoin.so"))
        if not found:
            raise Failed("no libujoin.so was installed")
        self.library = found[0]
        self.env = {"PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig"), "LD_LIBRARY_PATH": str(self.library.parent)}
        for name in ("ujoin.h", "ujoin.pc", "ujoin-config.cmake", "libujoin.a"):
            if not list(self.prefix.rglob(name)):
                raise Failed(f"{name} was not installed")

    def pkg_config(self, *args):
        return call(["pkg-config", *args, "ujoin"], env=self.env).split()

    def by_pkg_config(self):
        program = self.place / "by_pkg_config"
        call(["cc", "-std=c99", *WARNINGS, SOURCE, "-o", program, *self.pkg_config("--cflags", "--libs"), "-pthread"])
        call([program, "threads"], env=self.env)
        if self.pkg_config("--modversion") != [version()]:
            raise Failed("ujoin.pc has another version than the header")

    def by_archive(self):
        program = self.place / "by_archive"
        libraries = [flag for flag in self.pkg_config("--static", "--libs") if flag != "-lujoin"]
        call(["cc", "-std=c99", *WARNINGS, SOURCE, "-o", program, *self.pkg_config("--cflags"),
              self.library.parent / "libujoin.a", *libraries, "-pthread"])
        call([program, "threads"])

    def by_cmake(self):
        build = self.place / "cmake"
        call(["cmake", "-S", CONSUMERS / "cmake", "-B", build, "-G", "Ninja", f"-DSOURCE={SOURCE}",
              f"-DCMAKE_PREFIX_PATH={self.prefix}"])
        call(["cmake", "--build", build])
        call([build / "consumer_c", "threads"])
        call([build / "consumer_cpp", "threads"])

    def by_dlopen(self, *what):
        program = self.place / "by_dlopen"
        if not program.exists():
            call(["cc", "-std=c99", *WARNINGS, "-DBY_DLOPEN", f"-I{self.prefix}/include", SOURCE, "-o", program, "-pthread",
                  "-ldl"])
        call([program, self.library, *what])

    def under_a_host_with_these_names(self):
        """A program whose own functions carry the names of ours, and are visible to every library in it."""
        source, program = self.place / "names.c", self.place / "names"
        names = [name for name in header.functions() if name.startswith(("zero_", "pctx_"))]
        source.write_text("#include <stdlib.h>\n" + "".join(f"void {n}(void);\nvoid {n}(void) {{ abort(); }}\n" for n in names))
        call(["cc", "-std=c99", "-DBY_DLOPEN", f"-I{self.prefix}/include", "-rdynamic", SOURCE, source, "-o", program,
              "-pthread", "-ldl"])
        call([program, self.library, "processes", "threads", "backends"])

    def by_ctypes(self):
        call([sys.executable, CONSUMERS / "group_by_ctypes.py", self.library])

    def ujoin_run(self):
        programs = list(self.prefix.rglob("ujoin-run"))
        if not programs:
            raise Failed("ujoin-run was not installed")
        call([programs[0], "--version"])

    def names_no_machine(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.suffix in (".pc", ".cmake", ".h") and LOOK_FOR in path.read_text():
                raise Failed(f"{path.relative_to(self.prefix)} names the place where it was built")


def version():
    text = header.HEADER.read_text()
    parts = [text.split(f"UJOIN_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(parts)


def main():
    with tempfile.TemporaryDirectory(prefix="ujoin-consumers-") as place:
        used = Installed(pathlib.Path(place))
        if not check("consumers.install", used.install):
            tap.done()
        check("consumers.installed_files_name_no_machine", used.names_no_machine)
        check("consumers.pkg_config", used.by_pkg_config)
        check("consumers.archive", used.by_archive)
        check("consumers.cmake_c_and_cpp", used.by_cmake)
        check("consumers.PACKAGING_01_dlopen_local_scope_threads", lambda: used.by_dlopen("threads"))
        check("consumers.PACKAGING_01_dlopen_local_scope_processes", lambda: used.by_dlopen("processes"))
        check("consumers.PACKAGING_01_python_ctypes", used.by_ctypes)
        check("consumers.host_with_the_same_names", used.under_a_host_with_these_names)
        check("consumers.PACKAGING_02_absent_backends", lambda: used.by_dlopen("backends", "processes"))
        if (BUILD / "bin" / "ujoin-run").exists():
            check("consumers.ujoin_run", used.ujoin_run)
    tap.done()


if __name__ == "__main__":
    main()
