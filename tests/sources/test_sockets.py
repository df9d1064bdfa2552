"""Records from sockets: whole, once, and never waited for without end."""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import types
from collections.abc import Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import pytest
from contract import StreamContract, as_list
from hypothesis import given
from hypothesis import strategies as st
from patience import idle_only_after
from servers import framed, from_number, reset, serving, until_hung_up

from feedline import DataLoader, OptionError, SourceError
from feedline.sources import SocketStream, live, sockets
from feedline.sources import framing as framing_module
from feedline.sources.sockets import _Line

RECORDS = [[b"a%d-%d" % (part, number) for number in range(7)] for part in range(2)]


def ask(received: int) -> bytes:
    return b"%d\n" % received


class TestSockets(StreamContract):
    ordered = False  # two lines are read as they bring something

    @pytest.fixture
    def source(self) -> Iterator[SocketStream]:
        with serving(from_number(RECORDS[0])) as one, serving(from_number(RECORDS[1])) as other:
            yield SocketStream([one, other], request=ask, timeout=300)

    @pytest.fixture
    def expected(self) -> list[bytes]:
        return RECORDS[0] + RECORDS[1]


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.integers(1, 12), min_size=1), st.data())
def test_records_are_cut_alike_however_they_arrive(records: list[bytes], sizes: list[int], data: Any) -> None:
    framing = data.draw(st.sampled_from(["length", "line"]))
    if framing == "line":
        records = [record.replace(b"\n", b"").replace(b"\r", b"") for record in records]
        sent = b"".join(record + data.draw(st.sampled_from([b"\n", b"\r\n"])) for record in records)
    else:
        sent = b"".join(map(framed, records))
    line = _Line(SocketStream("localhost:1", framing=framing), "localhost:1", 0)
    here, there = socket.socketpair()
    with here, there:
        line._socket = there
        at = 0
        for size in sizes * (len(sent) // len(sizes) + 1):
            if at < len(sent):
                here.sendall(sent[at : at + size])
                at += size
                assert line.read()
        here.shutdown(socket.SHUT_WR)
        assert not line.read()
    assert list(line.records) == records


@pytest.mark.parametrize("framing", ["line", "length"])
def test_the_work_grows_with_the_bytes_and_not_with_their_square(framing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes that are copied or searched, of a record that comes in 1024 pieces."""
    touched = 0

    class Counting(bytearray):
        def __init__(self, of: Any = b"") -> None:
            nonlocal touched
            touched += len(of)
            super().__init__(of)

        def __iadd__(self, more: Any) -> Counting:
            nonlocal touched
            touched += len(more)
            super().__iadd__(more)
            return self

        def __getitem__(self, at: Any) -> Any:
            nonlocal touched
            touched += len(range(len(self))[at]) if isinstance(at, slice) else 1
            return super().__getitem__(at)

        def split(self, *by: Any) -> Any:
            nonlocal touched
            touched += len(self)
            return super().split(*by)

    for module in (sockets, framing_module):
        monkeypatch.setattr(module, "bytearray", Counting, raising=False)
    monkeypatch.setattr(sockets, "CHUNK", 64)
    record = b"x" * (1 << 16)
    line = _Line(SocketStream("localhost:1", framing=framing), "localhost:1", 0)
    here, there = socket.socketpair()
    with here, there:
        line._socket = there
        here.sendall(framed(record) if framing == "length" else record + b"\n")
        here.shutdown(socket.SHUT_WR)
        while line.read():
            pass
    assert list(line.records) == [record]
    assert touched < 4 * len(record)


def test_a_last_line_need_not_end(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda line, _: line.sendall(b"one\ntwo")) as address:
        assert list(SocketStream(address, framing="line", timeout=300)) == [b"one", b"two"]
    assert f"{address} ended within a line; the incomplete line is delivered: b'two'" in caplog.text


def test_half_a_line_is_no_record_where_there_is_more_to_come() -> None:
    def talk(line: socket.socket, number: int) -> None:
        start = int(line.makefile("rb").readline())
        line.sendall(b"10\n11\n1" if number == 0 else b"".join(b"%d\n" % each for each in range(10 + start, 15)))

    with serving(talk) as address:
        reading = iter(SocketStream(address, framing="line", decode=int, request=ask, ends=False, timeout=300))
        assert list(islice(reading, 5)) == [10, 11, 12, 13, 14]
        reading.close()


def test_a_unix_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        reading = iter(SocketStream(f"unix:{tmp_path}/s", timeout=300))
        reading._feed._begin()
        line, _ = server.accept()
        line.sendall(framed(b"x"))
        line.close()
        assert list(reading) == [b"x"]


def test_a_broken_line_is_made_anew_after_what_was_received() -> None:
    asked: list[int] = []
    records = [b"record %d" % number for number in range(10)]

    def talk(line: socket.socket, number: int) -> None:
        start = int(line.makefile("rb").readline())
        asked.append(start)
        sent = b"".join(map(framed, records[start:]))
        if number < 3:  # ends within a record, twice by closing and once by dying
            line.sendall(sent[: len(framed(records[0])) * (number + 1) + 5])
            line.shutdown(socket.SHUT_WR)
            until_hung_up(line)
        else:
            line.sendall(sent)

    with serving(talk) as address:
        assert list(SocketStream(address, request=ask, retries=1, timeout=300)) == records
    assert asked == [0, 1, 3, 6]


def test_a_server_that_dies_is_no_end() -> None:
    def talk(line: socket.socket, number: int) -> None:
        line.recv(100)
        line.sendall(framed(b"x") if number else b"\0")
        if not number:
            reset(line)

    with serving(talk) as address:
        assert list(SocketStream(address, request=ask, timeout=300)) == [b"x"]


def test_a_line_that_only_breaks_is_given_up() -> None:
    def talk(line: socket.socket, _: int) -> None:
        line.sendall(b"\0")

    with serving(talk) as address, pytest.raises(SourceError, match=rf"{address} broke 3 times without a record"):
        list(SocketStream(address, retries=2, timeout=300))


def test_a_closed_line_is_connected_to_again_if_it_is_no_end() -> None:
    def talk(line: socket.socket, number: int) -> None:
        if number == 3:
            until_hung_up(line)
        line.sendall(framed(b"%d" % number))

    with serving(talk) as address:
        stream = SocketStream(address, ends=False, timeout=300)
        reading = iter(stream)
        assert list(islice(reading, 3)) == [b"0", b"1", b"2"]
        reading.close()


def test_nothing_for_a_while_ends_it_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_only_after(2, monkeypatch)

    def talk(line: socket.socket, _: int) -> None:
        line.sendall(framed(b"x") + framed(b"y") + b"\0\0")
        until_hung_up(line)

    with serving(talk) as address:
        with DataLoader(SocketStream(address, idle=0.2, timeout=300), 4, collate_fn=as_list) as loader:
            assert list(loader) == [[b"x", b"y"]]
    assert "nothing came for 0.2 s (idle), so the epoch ends here" in caplog.text
    assert address in caplog.text


def test_a_peer_that_sends_is_not_idle(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the clock is looked at, a second has passed; a byte comes every few, and the record has 40 of them."""
    seconds = count()
    monkeypatch.setattr(sockets, "CHUNK", 1)
    monkeypatch.setattr(live, "time", types.SimpleNamespace(monotonic=lambda: next(seconds)))
    sent = framed(bytes(40)) + b"\0\0"
    told = threading.Event()

    def talk(line: socket.socket, _: int) -> None:
        line.sendall(sent)
        told.set()
        until_hung_up(line)

    class AfterAll(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            assert told.wait(300)  # by then all is there: who waits meanwhile, waits for nothing
            return super().select(min(timeout or 0.0, 0.01))

    monkeypatch.setattr(selectors, "DefaultSelector", AfterAll)
    with serving(talk) as address:
        reading = iter(SocketStream(address, idle=9, timeout=3600))
        assert next(reading) == bytes(40)
        with pytest.raises(StopIteration):  # two more bytes come, and then none
            next(reading)
    assert "nothing came for 9 s" in caplog.text


def test_without_idle_it_waits_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only for as long as the system is asked to wait at once."""
    monkeypatch.setattr(sockets, "LONG", 0.01)
    waited = threading.Event()

    class Counting(selectors.DefaultSelector):
        times = 0

        def select(self, timeout: float | None = None) -> Any:
            self.times += 1
            if self.times == 4:
                waited.set()
            return super().select(timeout)

    def talk(line: socket.socket, _: int) -> None:
        assert waited.wait(300)
        line.sendall(framed(b"late"))

    monkeypatch.setattr(selectors, "DefaultSelector", Counting)
    with serving(talk) as address:
        assert list(SocketStream(address, timeout=300)) == [b"late"]


def test_poison_is_named_and_passed_over() -> None:
    records = [b"1", b"two", b"3"]
    with serving(from_number(records)) as address:
        stream = SocketStream(address, request=ask, decode=int, timeout=300)
        with DataLoader(stream, 2, on_error="skip") as loader:
            assert [each for batch in loader for each in batch.tolist()] == [1, 3]
            (bad,) = loader.errors()
        assert f"record 1 of {address}" in str(bad) or f"record 1 of {address}" in bad.trace
        with DataLoader(stream, 2) as loader, pytest.raises(ValueError, match="invalid literal") as raised:
            list(loader)
        assert any(f"record 1 of {address}" in note for note in raised.value.__notes__)


def test_what_is_too_long_is_an_error_before_it_is_read() -> None:
    with serving(lambda line, _: line.sendall(b"GET / HTTP/1.1\r\n")) as address:
        with pytest.raises(SourceError, match=r"record 0 of .* has 1,195,725,856 bytes or more, above max_record"):
            list(SocketStream(address, timeout=300))
    with serving(lambda line, _: line.sendall(b"x" * 100)) as address:
        with pytest.raises(SourceError, match="max_record=50"):
            list(SocketStream(address, framing="line", max_record=50, timeout=300))


def test_a_whole_line_can_be_too_long() -> None:
    with serving(lambda line, _: line.sendall(b"one\n" + bytes(100) + b"\n")) as address:
        reading = iter(SocketStream(address, framing="line", max_record=99, timeout=300))
        with pytest.raises(SourceError, match=rf"record \d of {address} has 100 bytes or more, above max_record=99"):
            list(reading)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_no_time_at_all_is_an_error(timeout: float) -> None:
    with pytest.raises(OptionError, match="timeout must be a positive number of seconds"):
        SocketStream("localhost:1", timeout=timeout)


def test_going_on_where_the_server_cannot_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda line, _: line.sendall(framed(b"x") * 3)) as address:
        with DataLoader(SocketStream(address, timeout=300), 1, collate_fn=as_list) as loader:
            next(iter(loader))
            state = json.loads(json.dumps(loader.state_dict()))
        with DataLoader(SocketStream(address, timeout=300), 1, collate_fn=as_list) as loader:
            loader.load_state_dict(state)
            assert len(list(loader)) == 3
    assert "continues with what the server sends now" in caplog.text


def test_bad_input(tmp_path: Path) -> None:
    for address in ("localhost", "localhost:", ":80", "host:http", 80):
        with pytest.raises(OptionError, match="'host:port' or 'unix:/path'"):
            SocketStream(address)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="idle must be a positive number"):
        SocketStream("localhost:1", idle=0)
    with socket.socket() as taken:  # bound and not listening: refused at once
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SourceError, match=rf"cannot connect to {nobody} \(2 tries\): .*refused"):
            next(iter(SocketStream(nobody, retries=1)))
    with pytest.raises(SourceError, match=r"cannot connect to .*no/such/socket"):
        next(iter(SocketStream(f"unix:{tmp_path}/no/such/socket", retries=0)))
    with pytest.raises(SourceError, match=r"cannot connect to no\.such\.host\.invalid:1"):
        next(iter(SocketStream("no.such.host.invalid:1", retries=0)))


def test_addresses_are_shared_out_over_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"h:{port}" for port in range(1, 6)]
    read = [
        list(iter(SocketStream(addresses, num_replicas=2, rank=rank).shard(index, 2))._feed._received)
        for rank in range(2)
        for index in range(2)
    ]
    assert sorted(chain.from_iterable(read)) == addresses
    parts = [SocketStream(addresses).shard(own, 2).shard(index, 2) for own in range(2) for index in range(2)]
    assert sorted(chain.from_iterable(iter(part)._feed._received for part in parts)) == addresses  # each once
    monkeypatch.setitem(os.environ, "RANK", "1")
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "2")
    assert SocketStream("h:1").rank == 1
