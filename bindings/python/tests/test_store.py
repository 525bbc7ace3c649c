# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pathlib
import threading

import pytest
from conftest import DEADLINE, unique

import ujoin
from ujoin import Store


def test_set_get_add_prefix() -> None:
    store = Store("memory://" + unique("store"))
    store.set("text", "h\u00e9")
    store.set("bytes", bytearray(b"\0\1"))
    assert store.get("text") == "h\u00e9".encode()
    assert store.get("bytes") == b"\0\1"
    assert store.add("count") == 1
    assert store.add("count", 41) == 42
    assert store.add("count", 0) == 42
    assert store.get("count") == b"42"
    view = store.prefix("a/")
    view.set("key", b"x")
    assert store.get("a/key") == b"x"
    big = bytes(range(256)) * 1024
    store.set("big", big)
    assert store.get("big") == big
    assert store.url == ""


def test_running_out_of_time_is_no_error() -> None:
    store = Store("memory://" + unique("store"))
    assert store.get("nothing", timeout=0.01) is None
    store.set("a", b"")
    assert store.get("a", timeout=0) == b""
    assert store.wait(["a", "b"], timeout=0.01) is False
    store.set("b", b"")
    assert store.wait(["a", "b"]) is True
    assert store.wait([]) is True
    with pytest.raises(ujoin.MismatchError):
        store.add("a")


def test_waits_for_another_thread_and_is_aborted() -> None:
    name = "memory://" + unique("store")
    store = Store(name)
    setter = threading.Thread(target=lambda: Store(name).set("late", b"value"))
    setter.start()
    assert store.get("late", DEADLINE) == b"value"
    setter.join(DEADLINE)
    aborter = threading.Thread(target=store.abort)
    aborter.start()
    with pytest.raises(ujoin.AbortedError):
        store.get("never")
    aborter.join(DEADLINE)


def test_file_and_tcp(tmp_path: pathlib.Path) -> None:
    for url, options in ((f"file://{tmp_path}/store", {}), ("tcp://127.0.0.1:0", {"listen": True})):
        server = Store(url, secret="s" if options else None, **options)
        client = Store(server.url, secret="s" if options else None, timeout=DEADLINE)
        client.set("key", b"value")
        assert server.get("key") == b"value"
        assert ":0" not in server.url[-2:]


def test_errors(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ujoin.InvalidError, match="mars"):
        Store("mars://x")
    with pytest.raises(ujoin.SystemError) as failed:
        Store(f"file://{tmp_path}/no/such/directory/store", timeout=0.1)
    assert failed.value.errno == 2
    with pytest.raises(ujoin.TimeoutError, match=r"127\.0\.0\.1"):
        Store("tcp://127.0.0.1:9", timeout=0.1)
