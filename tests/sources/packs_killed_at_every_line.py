"""A program: stores a sample in processes, each killed at another line of the code; looks at what is left.

Takes: a folder. Gives: how many lines there were, on standard output; ends badly if anything was damaged.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from killed_at_every_line import die_at_line, in_child

from feedline.sources.samples import pack_folder
from feedline.sources.samples.pack_folder import PackFolder

BOUND, SIZE = 64_000, 20_000
"""Three of these records fit; each is larger than a pack would be, so it has its own."""


def content(number: int) -> bytes:
    return bytes([number + 1]) * SIZE


def folder_at(path: Path, line: int) -> PackFolder:
    """`line` makes the identity: other identities in the folder count for its bound, too."""
    return PackFolder(path, "one" if line % 2 else "other", 10, BOUND)


def store_one(path: Path, line: int) -> None:
    die_at_line(line, pack_folder.__file__)
    folder = folder_at(path, line)
    assert folder.problem is None
    folder.write(5, content(5))
    sys.settrace(None)


def check(path: Path, line: int) -> None:
    """What is there is right and within its bound, and goes on working."""
    folder = folder_at(path, line)
    for number in range(10):
        record = folder.read(number)
        assert record is None or bytes(record) == content(number), number
    folder.write(9, content(9))
    assert folder.problem is None
    record = folder.read(9)
    assert record is not None
    assert bytes(record) == content(9)
    assert sum(each[1] for each in folder._packs()) <= BOUND


def main(scratch: Path) -> int:
    line = 0
    while True:
        path = scratch / str(line)
        path.mkdir()
        for number in range(3):
            folder_at(path, line).write(number, content(number))
        ended = in_child(lambda path=path, line=line: store_one(path, line))
        check(path, line)
        if ended == 0:
            return line
        assert ended == -signal.SIGKILL
        line += 1


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
