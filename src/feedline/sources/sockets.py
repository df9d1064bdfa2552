"""Records from sockets: separated by their length or by lines; broken connections are made again.

Takes: addresses. Gives: `SocketStream`.
Promises: a server that cannot be reached is an error within `timeout` seconds; a broken connection is made again, and
if the server can be asked (`request`), it continues after the records received so far; half a record is never given
(but the last line of a server that has ended need not have a line feed: it is given, with a warning); a record longer
than `max_record` is an error, and does not fill the memory. Addresses are shared out over ranks and workers. Only the
system's own buffers read ahead: everything else stays with the sender until it is requested.
Not its job: waiting and decoding (live).
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from feedline.errors import OptionError, SourceError, StateError
from feedline.errors.checks import check_choice, check_flag, check_function, check_whole
from feedline.errors.counting import counted
from feedline.errors.masking import address as shown
from feedline.sources.framing import FRAMINGS, Framing, LineTooLong
from feedline.sources.live import Deadline, DealtStream, Seekable, check_idle, check_wait

log = logging.getLogger("feedline")

CHUNK = 1 << 18
"""Bytes requested at once: more than a pipe or a socket usually has."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to reconnect, doubled each time."""
LONG = 3600.0


class SocketStream(DealtStream):
    r"""Records that a server sends: `"host:port"`, or `"unix:/path"`; several addresses are read at the same time.

    `framing` is "length" (each record follows its length in four bytes, highest byte first) or "line". A server that
    closes the connection after a whole record has ended its part; with `ends=False` it is connected to again.
    `request(received)` returns the bytes to send for each new connection, from the number of records received before: a
    server that begins there makes reconnecting and resuming exact. Without `request`, reading continues with whatever
    comes.

    >>> import socket, threading
    >>> server = socket.create_server(("127.0.0.1", 0))
    >>> def serve():
    ...     line, _ = server.accept()
    ...     line.sendall(b"one\ntwo\nthree\n")
    ...     line.close()
    >>> thread = threading.Thread(target=serve)
    >>> thread.start()
    >>> list(SocketStream("127.0.0.1:%d" % server.getsockname()[1], framing="line", idle=60))
    [b'one', b'two', b'three']
    >>> thread.join(); server.close()
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        framing: str = "length",
        decode: Callable[[bytes], Any] | None = None,
        request: Callable[[int], bytes] | None = None,
        idle: float | None = None,
        ends: bool = True,
        retries: int = 5,
        timeout: float = 10.0,
        max_record: int = 64 << 20,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(num_replicas, rank)
        self.addresses = tuple(address) if isinstance(address, list | tuple) else (address,)
        for each in self.addresses:
            _endpoint(each)
        self.framing = check_choice("framing", framing, ("length", "line"))
        self.decode = check_function("decode", decode)
        self.request = check_function("request", request)
        self.idle = check_idle(idle)
        self.ends = check_flag("ends", ends)
        self.retries = check_whole("retries", retries, least=0)
        self.timeout = check_wait(timeout)
        self.max_record = check_whole("max_record", max_record, least=1)

    def __iter__(self) -> Seekable:
        return Seekable(_Lines(self, self.dealt(self.addresses)), self.decode, self.idle)

    def __repr__(self) -> str:
        return f"SocketStream({', '.join(map(shown, self.addresses))})"


class _Line:
    """One connection, and what has come over it."""

    def __init__(self, stream: SocketStream, address: str, received: int) -> None:
        self.address = address
        self.received = received
        self.records: deque[bytes] = deque()
        self._stream = stream
        self._socket: socket.socket | None = None
        self._framing: Framing = FRAMINGS[stream.framing](stream.max_record)

    def connect(self) -> socket.socket:
        """Connect, with as many attempts as the stream allows. (At this point all received records have been given.)"""
        deadline, tries = Deadline(self._stream.timeout), 0
        while True:
            try:
                return self._connect(deadline.left(LONG))
            except OSError as error:
                pause = deadline.left(FIRST_PAUSE * 2**tries)
                tries += 1
                if tries > self._stream.retries or not pause:
                    raise SourceError(
                        f"cannot connect to {self.address} ({counted(tries, 'try')}): {error}; is the server running?"
                    ) from None
            time.sleep(pause)

    def _connect(self, seconds: float) -> socket.socket:
        family, where = _endpoint(self.address)
        if family == socket.AF_UNIX:
            self._socket = line = socket.socket(family, socket.SOCK_STREAM)
            line.settimeout(seconds)
            try:
                line.connect(where)
            except OSError:
                line.close()
                raise
        else:
            self._socket = line = socket.create_connection(where, seconds)
        self._framing.rest.clear()
        if self._stream.request is not None:
            line.sendall(self._stream.request(self.received))
        line.setblocking(False)
        return line

    def read(self) -> bool:
        """Receive what has come. False if the server has ended the connection, between two records."""
        assert self._socket is not None
        part = self._socket.recv(CHUNK)
        if not part:
            self._end(self._framing.rest)
            return False
        try:
            self.records.extend(self._framing.cut(part))
        except LineTooLong as error:
            self.records.extend(error.whole)
            raise self._too_long(error.size) from None
        return True

    def _end(self, rest: bytearray) -> None:
        """The server has closed the connection, and `rest` is left."""
        if rest and self._stream.framing == "line" and self._stream.ends:
            log.warning("%s ended within a line; the incomplete line is delivered: %r", self.address, bytes(rest[:60]))
            self.records.append(bytes(rest))  # the last line needs no line feed
            rest.clear()
        if rest:
            raise ConnectionError(f"the connection was closed within a record, after {len(rest)} bytes of it")

    def _too_long(self, size: int) -> SourceError:
        number = self.received + len(self.records)
        return SourceError(
            f"record {number} of {self.address} has {size:,} bytes or more, above "
            f"max_record={self._stream.max_record:,}: does the server really frame records by {self._stream.framing!r}?"
        )

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Lines:
    """Several connections, read at the same time."""

    def __init__(self, stream: SocketStream, addresses: Sequence[str]) -> None:
        self._stream = stream
        self._received = dict.fromkeys(addresses, 0)
        self._open: dict[str, _Line] | None = None
        self._full: deque[_Line] = deque()
        self._selector: selectors.BaseSelector | None = None
        self._broken = 0
        """How often in a row a connection broke without bringing a record."""

    def next(self, wait: float | None) -> tuple[bytes, str] | None:
        """The next record of any connection."""
        if self._open is None:
            self._begin()
        deadline = Deadline(wait)
        while not self._full:
            if not self._open:
                raise StopIteration
            left = deadline.left(LONG)
            if left <= 0:
                return None
            if self._wait(left):  # a server is sending: a long record takes time
                deadline = Deadline(wait)
        line = self._full[0]
        record = line.records.popleft()
        if not line.records:
            self._full.popleft()
        number, line.received = line.received, line.received + 1
        self._received[line.address] = line.received
        return record, f"record {number} of {line.address}"

    def state(self) -> dict[str, Any]:
        """How many records have been received from each address."""
        return {"received": dict(self._received)}

    def load(self, state: dict[str, Any]) -> None:
        """Continue after those numbers of records."""
        if set(state["received"]) != set(self._received):
            raise StateError(
                f"the state is for the addresses {sorted(state['received'])}; this stream reads "
                f"{sorted(self._received)}"
            )
        self._received = dict(state["received"])
        if self._stream.request is None and any(self._received.values()):
            log.warning("%r has no request=…, so it continues with what the server sends now", self._stream)

    def close(self) -> None:
        """Close all connections."""
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        for line in (self._open or {}).values():
            line.close()
        self._open = {}
        self._full.clear()

    def __str__(self) -> str:
        return repr(self._stream)

    def _begin(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._open = {address: _Line(self._stream, address, count) for address, count in self._received.items()}
        for line in self._open.values():
            self._connect(line)

    def _connect(self, line: _Line) -> None:
        assert self._selector is not None
        self._selector.register(line.connect(), selectors.EVENT_READ, line)

    def _wait(self, seconds: float) -> bool:
        """Wait until something comes on any connection; did it?"""
        assert self._selector is not None
        came = [self._receive(key.data, key.fileobj) for key, _ in self._selector.select(seconds)]
        return any(came)

    def _receive(self, line: _Line, at: Any) -> bool:
        """Receive what has come on a connection; was it at least one byte, and not the end?"""
        assert self._selector is not None
        assert self._open is not None
        had = len(line.records)
        broken: OSError | None = None
        try:
            going = line.read()
        except BlockingIOError:
            return False
        except OSError as error:
            going, broken = True, error
        if line.records and not had:
            self._full.append(line)
        if len(line.records) > had:
            self._broken = 0
        if going and broken is None:
            return True
        self._selector.unregister(at)
        line.close()
        if broken is None and self._stream.ends:
            del self._open[line.address]
        else:
            self._again(line, broken)
        return False

    def _again(self, line: _Line, broken: OSError | None) -> None:
        self._broken += 1
        if broken is not None:
            if self._broken > self._stream.retries:
                raise SourceError(f"{line.address} broke {counted(self._broken, 'time')} without a record: {broken}")
            log.warning("%s: %s; connecting again", line.address, broken)
        time.sleep(min(FIRST_PAUSE * 2 ** min(self._broken, 8), LONGEST_PAUSE) if self._broken > 1 else 0)
        self._connect(line)


def _endpoint(address: Any) -> tuple[socket.AddressFamily, Any]:
    """An address in the form that the system needs.

    >>> _endpoint("localhost:9000"), _endpoint("[::1]:9000")[1]
    ((<AddressFamily.AF_INET: 2>, ('localhost', 9000)), ('::1', 9000))
    """
    if isinstance(address, str):
        if address.startswith("unix:"):
            return socket.AF_UNIX, address.removeprefix("unix:")
        host, _, port = address.rpartition(":")
        if host and port.isdigit():
            return socket.AF_INET, (host.strip("[]"), int(port))
    raise OptionError(f"address must be 'host:port' or 'unix:/path'; got {shown(address)!r}")
