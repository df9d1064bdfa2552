"""A program: stores a sample in processes, each killed at another line of the code; looks at what is left.

Takes: a folder. Gives: how many lines there were, in a folder and in memory, on standard output; ends badly if anything
was damaged.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from killed_at_every_line import die_at_line, in_child

from feedline.arena.segment import to_page
from feedline.sources.samples import pack_folder, pack_memory, packs
from feedline.sources.samples.pack_folder import PackFolder
from feedline.sources.samples.pack_memory import PackMemory
from feedline.sources.samples.packs import Packs

SIZE = 20_000
BOUND = 3 * to_page(SIZE) + 1_000
"""Three of these records fit; each is larger than a pack would be, so it has its own."""


def content(number: int) -> bytes:
    return bytes([number + 1]) * SIZE


class InFolder:
    def __init__(self, path: Path, line: int) -> None:
        self.path, self.line = path, line
        for number in range(3):
            self.opened().write(number, content(number))

    def opened(self) -> Packs:
        """`line` makes the identity: other identities in the folder count for its bound, too."""
        return PackFolder(self.path, "one" if self.line % 2 else "other", 10, BOUND)

    def taken(self) -> int:
        opened = self.opened()._opened()
        assert isinstance(opened, pack_folder._OpenFolder)
        return sum(each[1] for each in opened._packs())


class InMemory:
    def __init__(self, path: Path, line: int) -> None:
        self.packs = PackMemory(f"killed-{line}", 10, BOUND)
        self.before = self.packs._segment.used()
        for number in range(3):
            self.packs.write(number, content(number))

    def opened(self) -> Packs:
        return self.packs

    def taken(self) -> int:
        return self.packs._segment.used() - self.before


def store_one(place: InFolder | InMemory, line: int) -> None:
    die_at_line(line, packs.__file__, pack_folder.__file__, pack_memory.__file__)
    folder = place.opened()
    assert folder.problem is None
    folder.write(5, content(5))
    sys.settrace(None)


def check(place: InFolder | InMemory) -> None:
    """What is there is right and within its bound, and goes on working."""
    folder = place.opened()
    for number in range(10):
        record = folder.read(number)
        assert record is None or bytes(record) == content(number), number
    folder.write(9, content(9))
    assert folder.problem is None
    record = folder.read(9)
    assert record is not None
    assert bytes(record) == content(9)
    assert place.taken() <= BOUND, place.taken()


def lines_of(kind: type[InFolder | InMemory], scratch: Path) -> int:
    line = 0
    while True:
        path = scratch / str(line)
        path.mkdir(exist_ok=True)
        place = kind(path, line)
        ended = in_child(lambda place=place, line=line: store_one(place, line))
        check(place)
        if ended == 0:
            return line
        assert ended == -signal.SIGKILL
        line += 1


if __name__ == "__main__":
    print(*(lines_of(kind, Path(sys.argv[1])) for kind in (InFolder, InMemory)))
