# SPDX-License-Identifier: Apache-2.0
"""What the tests of the text trainers share: the word text and the table of losses of examples/train_text.md, section 8."""
import json
import pathlib
import re
import struct

WORDS = "the join of many ranks is even when their work was not and each one waits".split()
SPECIFICATION = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_text.md"


def splitmix64(state):
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        yield z ^ z >> 31


def word_text():
    numbers, text, count = splitmix64(7), "", 0
    while len(text) < 40_000:
        count += 1
        text += WORDS[next(numbers) >> 60] + (".\n" if count % 12 == 0 else " ")
    return text[:40_000]


def first_losses():
    """{(ranks, rank): the first five losses}"""
    rows = re.findall(r"^\| (\d) \| (\d) \| \d+ \| ([\d. ]+) \|$", SPECIFICATION.read_text(), re.MULTILINE)
    return {(int(ranks), int(rank)): [float(x) for x in losses.split()] for ranks, rank, losses in rows}


def tensors(path):
    """{name: values} of a safetensors file of f32."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = {k: v["data_offsets"] for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
    return {name: struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
            for name, (begin, end) in header.items()}
