# SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core's, except that an sdist gets the C++ sources of the repository, in `cpp/`, so that a
wheel builds from the sdist alone."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from typing import Any

from scikit_build_core.build import (
    build_editable,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from scikit_build_core.build import build_sdist as _build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

CPP = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "include", "src", "pkgconfig", "bindings/swig")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", ".git*", "dist", "build", ".*_cache")


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Of a copy of this folder and the C++ sources; of an unpacked sdist as it is."""
    here = pathlib.Path.cwd()
    target = os.path.abspath(sdist_directory)
    if (here / "cpp").is_dir():
        return _build_sdist(target, config_settings)
    with tempfile.TemporaryDirectory(prefix="ujoin-sdist-") as folder:
        copy = pathlib.Path(folder) / "ujoin"
        shutil.copytree(here, copy, ignore=LEFT_OUT)
        for name in CPP:
            _copy(here.parent.parent / name, copy / "cpp" / name)
        os.chdir(copy)
        try:
            return _build_sdist(target, config_settings)
        finally:
            os.chdir(here)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=LEFT_OUT)
    else:
        shutil.copy2(source, target)
