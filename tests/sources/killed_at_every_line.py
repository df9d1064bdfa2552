"""A program: stores into a cache folder in processes, each killed at another line of the code; looks at what is left.

Takes: a folder and the cache's bound. Gives: how many lines there were, on standard output; ends badly if anything was.
It is no part of the tests' own process because it forks some hundred times, which is dear in a process that has
imported much.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from feedline.sources import cache_folder
from feedline.sources.cache_folder import HEAD, TOTAL, CacheFolder

SIZE = 1000 - HEAD.size
"""Of an object whose entry takes 1,000 bytes."""


def content(number: int, size: int = SIZE) -> bytes:
    return bytes([number]) * size


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.entry") if path.is_file()]


def taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in entries(folder))


def counted(folder: Path) -> int:
    return int(TOTAL.unpack((folder / "total").read_bytes())[0])


def in_child(do: Any) -> int:
    """Its exit code, negative for a signal. Forked by hand: multiprocessing takes three times as long."""
    child = os.fork()
    if not child:
        try:
            do()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at_line(number: int, *files: str) -> None:
    seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
        return trace

    sys.settrace(trace)


def store_one(path: Path, bound: int, last_line: int) -> None:
    die_at_line(last_line, cache_folder.__file__)
    CacheFolder(path, bound).put(b"3", content(3))
    sys.settrace(None)


def check_whole(path: Path, bound: int) -> None:
    """What is there is right, is within its bound, is counted, and goes on working."""
    folder = CacheFolder(path, bound)
    found = [number for number in range(5) if folder.get(b"%d" % number) is not None]
    assert all(folder.get(b"%d" % number) == content(number) for number in found)
    assert len(found) == len(entries(path))
    assert taken(path) <= bound
    assert taken(path) <= counted(path)
    assert folder.put(b"9", content(9)) is None
    assert folder.get(b"9") == content(9)
    assert list((path / "writing").iterdir()) == []
    assert taken(path) <= bound


def lines_of(folder: Path, bound: int) -> int:
    """Storing an entry, for which others may have to go, a process is killed at each line of the code in turn."""
    line = 0
    while True:
        path = folder / str(line)
        for number in range(3):
            CacheFolder(path, bound).put(b"%d" % number, content(number))
        ended = in_child(lambda path=path, line=line: store_one(path, bound, line))
        check_whole(path, bound)
        if ended == 0:
            return line
        assert ended == -signal.SIGKILL
        line += 1


if __name__ == "__main__":
    print(lines_of(Path(sys.argv[1]), int(sys.argv[2])))
