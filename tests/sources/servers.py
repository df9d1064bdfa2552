"""Servers that send records, for tests of streams from sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket, int], None]
"""What to do with a connection, of which this is the number."""


def framed(record: bytes) -> bytes:
    return struct.pack(">I", len(record)) + record


@contextmanager
def serving(talk: Talk) -> Iterator[str]:
    """A server that talks with each who connects, in a thread of its own; its address."""
    server = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        number = 0
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(line, number)))
            threads[-1].start()
            number += 1

    def answer(line: socket.socket, number: int) -> None:
        with line, suppress(OSError):  # whoever it was may hang up
            talk(line, number)

    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for thread in threads:
            thread.join()


def until_hung_up(line: socket.socket) -> None:
    """Say nothing more, and wait."""
    line.recv(1)


def reset(line: socket.socket) -> None:
    """Break the line, as a server does that dies."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def from_number(records: list[bytes]) -> Talk:
    """A server that is asked for the records after the first n (a line with that number), and sends them."""

    def talk(line: socket.socket, _: int) -> None:
        asked = line.makefile("rb").readline()
        line.sendall(b"".join(map(framed, records[int(asked) :])))

    return talk
