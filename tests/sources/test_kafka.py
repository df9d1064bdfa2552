"""Kafka over TCP, with librdkafka's own broker stand-in in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from contract import StreamContract, as_list
from patience import idle_only_after
from warm_host import host

from feedline import DataLoader, OptionError, OptionTypeError, SourceError, StateError
from feedline.sources import KafkaRecord, KafkaStream, kafka_reading
from feedline.sources.kafka_reading import Partitions

BROKER = """
import json, sys
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "any", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=300).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
for line in sys.stdin:  # [topic, partition, value], …
    for topic, partition, value in json.loads(line):
        producer.produce(topic, value.encode(), key=b"key", partition=partition)
    assert producer.flush(300) == 0
    print("done", flush=True)
"""


class Broker:
    """Four partitions a topic, made when something is sent to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(BROKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def send(self, *records: tuple[str, int, str]) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(records) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.stop()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own, with 14 records in two of its partitions."""
    name = f"t{abs(hash(request.node.nodeid))}"
    broker.send(*((name, partition, f"{partition}-{number}") for number in range(7) for partition in (0, 1)))
    return name


SASL = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "hidden"}
ALL = sorted(f"{partition}-{number}".encode() for number in range(7) for partition in (0, 1))


class TestKafka(StreamContract):
    ordered = False  # between partitions

    @pytest.fixture
    def source(self, broker: Broker, topic: str) -> KafkaStream:
        return KafkaStream(broker.address, topic, end="now", timeout=300)

    @pytest.fixture
    def expected(self) -> list[bytes]:
        return ALL


def test_within_a_partition_the_order_is_kept(broker: Broker, topic: str) -> None:
    stream = KafkaStream(broker.address, topic, partitions=[1], end="now", timeout=300)
    assert list(stream) == [f"1-{number}".encode() for number in range(7)]


def test_records_tell_where_they_are_from(broker: Broker, topic: str) -> None:
    stream = KafkaStream(broker.address, topic, partitions=[1], end="now", decode=lambda record: record, timeout=300)
    record = next(iter(stream))
    assert isinstance(record, KafkaRecord)
    assert (record.topic, record.partition, record.offset, record.key) == (topic, 1, 0, b"key")
    assert record.timestamp > 1_600_000_000_000


def test_where_to_begin(broker: Broker, topic: str) -> None:
    terms: dict[str, Any] = {"partitions": [0, 1], "end": "now", "timeout": 300}
    assert sorted(KafkaStream(broker.address, topic, start={0: 5, 1: 6}, **terms)) == [b"0-5", b"0-6", b"1-6"]
    assert list(KafkaStream(broker.address, topic, start="latest", **terms)) == []
    both = KafkaStream(broker.address, [topic], start={(topic, 0): 5, (topic, 1): 7}, **terms)
    assert sorted(both) == [b"0-5", b"0-6"]


def test_what_comes_later_belongs_to_no_epoch_that_ends_now(broker: Broker, topic: str) -> None:
    reading: Any = iter(KafkaStream(broker.address, topic, end="now", timeout=300))
    reading._feed._open()
    for partition in (0, 1):  # as if the last two of each had come later
        reading._feed._ends[topic, partition] = 5
    assert sorted(reading) == [each for each in ALL if each[-1:] < b"5"]


def test_an_endless_one_waits_for_what_comes(broker: Broker, topic: str) -> None:
    reading = iter(KafkaStream(broker.address, topic, timeout=300))
    assert sorted(islice(reading, 14)) == ALL
    broker.send((topic, 3, "later"))
    assert next(reading) == b"later"
    reading.close()
    assert list(reading) == []


def test_nothing_for_a_while_ends_it(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_only_after(len(ALL), monkeypatch)
    with DataLoader(KafkaStream(broker.address, topic, idle=0.2, timeout=300), 20, collate_fn=as_list) as loader:
        (batch,) = loader
    assert sorted(batch) == ALL
    assert f"{topic}): nothing came for 0.2 s (idle), so the epoch ends here" in caplog.text


def test_nothing_for_a_while_is_an_end_for_a_group_too(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_only_after(1, monkeypatch)
    stream = KafkaStream(broker.address, topic, group="idle", idle=0.2, timeout=300)
    seen = list(stream)
    assert seen
    broker.send((topic, 1, "new"))
    rest = list(KafkaStream(broker.address, topic, group="idle", end="now", timeout=300))
    assert sorted(seen + rest) == sorted([*ALL, b"new"])


def test_without_idle_it_waits_however_long_it_takes(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only for as long as librdkafka is asked to wait at once."""
    polls: list[float] = []
    original = Partitions._fill

    def fill(self: Partitions, wait: float) -> bool:
        polls.append(wait)
        if len(polls) == 4:
            broker.send((topic, 3, "late"))
        return original(self, wait)

    monkeypatch.setattr(kafka_reading, "LONG", 0.05)
    monkeypatch.setattr(Partitions, "_fill", fill)
    reading = iter(KafkaStream(broker.address, topic, partitions=[3], timeout=300))
    assert next(reading) == b"late"
    reading.close()


def test_a_resumed_run_has_each_record_once(broker: Broker, topic: str) -> None:
    """With records read ahead by processes, and new ones coming meanwhile."""
    stream = KafkaStream(broker.address, topic, end="now", timeout=300)
    with DataLoader(stream, 3, collate_fn=as_list, num_workers=2) as loader:
        seen = list(islice(loader, 2))
        state = json.loads(json.dumps(loader.state_dict()))
    broker.send((topic, 0, "new"))
    stream = KafkaStream(broker.address, topic, end="now", timeout=300)
    with DataLoader(stream, 3, collate_fn=as_list, num_workers=1) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert sorted(each for batch in seen + rest for each in batch) == sorted([*ALL, b"new"])


def test_a_group_goes_on_where_it_was(broker: Broker, topic: str) -> None:
    stream = KafkaStream(broker.address, topic, group="training", end="now", timeout=300)
    with DataLoader(stream, 4, collate_fn=as_list, num_workers=2, workers="thread") as loader:
        assert sorted(each for batch in loader for each in batch) == ALL
        broker.send((topic, 1, "new"))
        assert [each for batch in loader for each in batch] == [b"new"]
    assert list(KafkaStream(broker.address, topic, group="training", end="now", timeout=300)) == []
    assert len(list(KafkaStream(broker.address, topic, group="other", end="now", timeout=300))) == 15


def test_a_group_is_told_what_was_delivered(broker: Broker, topic: str) -> None:
    stream = KafkaStream(broker.address, topic, group="told", partitions=[0], timeout=300)
    with DataLoader(stream, 2, collate_fn=as_list, num_workers=1) as loader:
        batches = iter(loader)
        assert list(islice(batches, 2)) == [[b"0-0", b"0-1"], [b"0-2", b"0-3"]]
        stream.commit(loader.state_dict())
    assert next(iter(KafkaStream(broker.address, topic, group="told", partitions=[0], timeout=300))) == b"0-4"
    with pytest.raises(OptionError, match="group="):
        KafkaStream(broker.address, topic, timeout=300).commit({})


def test_poison_is_named_and_passed_over(broker: Broker, topic: str) -> None:
    broker.send((topic, 2, "12"), (topic, 2, "poison"), (topic, 2, "13"))
    stream = KafkaStream(
        broker.address, topic, partitions=[2], end="now", decode=lambda record: int(record.value or b""), timeout=300
    )
    with DataLoader(stream, 2, on_error="skip") as loader:
        assert [each for batch in loader for each in batch.tolist()] == [12, 13]
        (bad,) = loader.errors()
    assert f"offset 1 of partition 2 of topic '{topic}'" in bad.what


def test_partitions_are_shared_out(broker: Broker, topic: str) -> None:
    parts = [
        KafkaStream(broker.address, topic, num_replicas=2, rank=rank, timeout=300).shard(index, 3).mine
        for rank in range(2)
        for index in range(3)
    ]
    assert sorted(each for part in parts for each in part) == [(topic, number) for number in range(4)]
    assert max(map(len, parts)) == 1


def test_a_place_that_is_not_kept_is_an_error(broker: Broker, topic: str) -> None:
    stream = KafkaStream(broker.address, topic, start={0: 1000}, partitions=[0], timeout=300)
    with pytest.raises(SourceError, match=rf"offset 1000 of partition 0 of topic '{topic}' does not exist"):
        next(iter(stream))


def test_a_state_of_other_partitions_is_refused(broker: Broker, topic: str) -> None:
    reading = iter(KafkaStream(broker.address, topic, partitions=[0], timeout=300))
    next(reading)
    state = reading.state_dict()
    reading.close()
    with pytest.raises(StateError, match="partitions that are not read here"):
        iter(KafkaStream(broker.address, topic, partitions=[1], timeout=300)).load_state_dict(state)


def test_each_rank_goes_on_with_its_own_state(broker: Broker, topic: str) -> None:
    """That of one rank says nothing of what the other has delivered: alone, it would have that again."""
    reading = iter(KafkaStream(broker.address, topic, num_replicas=2, rank=0, timeout=300))
    next(reading)
    state = json.loads(json.dumps(reading.state_dict()))
    reading.close()
    with pytest.raises(StateError, match=r"the state was saved by rank 0 of 2, and this is rank 0 of 1"):
        iter(KafkaStream(broker.address, topic, timeout=300)).load_state_dict(state)


def test_brokers_that_go_away_are_said_to_be_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told:
        """The `idle` seconds are over when librdkafka has noticed: how long that takes is its own affair."""

        def __init__(self, seconds: float | None) -> None:
            assert seconds == 4

        def left(self, most: float) -> float:
            return 0.0 if "waits for its brokers" in caplog.text else 0.1

    monkeypatch.setattr(kafka_reading, "Deadline", Told)
    own = Broker()
    try:
        own.send(("t", 0, "a"), ("t", 0, "b"))
        reading = iter(KafkaStream(own.address, "t", partitions=[0], idle=4, timeout=300))
        assert list(islice(reading, 2)) == [b"a", b"b"]
        own.stop()
        assert list(reading) == []
    finally:
        own.stop()
    assert "waits for its brokers" in caplog.text
    assert "nothing came for 4 s" in caplog.text


def test_bad_input(broker: Broker, topic: str) -> None:
    with pytest.raises(SourceError, match=r"the topic 'nowhere' cannot be read at .*Unknown topic"):
        KafkaStream(broker.address, "nowhere", timeout=300)
    with pytest.raises(SourceError, match=r"no Kafka broker answers at 127\.0\.0\.1:9 within 0\.3 s"):
        KafkaStream("127.0.0.1:9", "t", timeout=0.3)
    with pytest.raises(OptionError, match=r"partitions \[9\] are not in .*, which has \[0, 1, 2, 3\]"):
        KafkaStream(broker.address, topic, partitions=[0, 9], timeout=300)
    with pytest.raises(OptionError, match="start must be one of 'earliest', 'latest'"):
        KafkaStream(broker.address, topic, start="beginning")
    with pytest.raises(OptionTypeError, match="start must be 'earliest', 'latest' or offsets"):
        KafkaStream(broker.address, topic, start=[5])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=rf"start has no offset for \[\('{topic}', 1\)\], but the stream reads"):
        KafkaStream(broker.address, topic, partitions=[0, 1], start={0: 5}, timeout=300)
    with pytest.raises(OptionError, match=rf"start has offsets for \[\('{topic}', 1\)\], but the stream reads"):
        KafkaStream(broker.address, topic, partitions=[0], start={0: 5, 1: 5}, timeout=300)
    for wrong in (0, -1, float("nan")):
        with pytest.raises(OptionError, match="timeout must be a positive number of seconds"):
            KafkaStream(broker.address, topic, timeout=wrong)
    for nothing in (3, [], [""]):
        with pytest.raises(OptionTypeError, match="topic must be the name of a topic"):
            KafkaStream(broker.address, nothing)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="name the topic too"):
        KafkaStream(broker.address, [topic, "t"], start={0: 5})
    with pytest.raises(OptionError, match=r"librdkafka does not accept config.*no\.such\.setting"):
        KafkaStream(broker.address, topic, config={"no.such.setting": 1})
    secret = KafkaStream(broker.address, topic, config={"sasl.password": "hidden"}, timeout=300)
    assert "hidden" not in repr(secret)


def test_why_nobody_answers_is_told(broker: Broker, topic: str) -> None:
    """A password that is refused, say: this broker takes none at all."""
    for seconds in (1, 5, 30):  # the first will do, on all but the busiest machines
        with pytest.raises(
            SourceError, match=r"no Kafka broker answers .* at config= if the brokers ask for"
        ) as caught:
            KafkaStream(broker.address, topic, config={"security.protocol": "SASL_PLAINTEXT", **SASL}, timeout=seconds)
        assert "hidden" not in str(caught.value)
        if "SASL Handshake not supported by broker" in str(caught.value):
            return
    raise AssertionError(str(caught.value))


def test_the_driver_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, feedline.sources; feedline.sources.SocketStream; assert 'confluent_kafka' not in sys.modules"
    host("feedline").run(["-c", code], check=True)
