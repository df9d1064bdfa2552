"""Kafka topics as a stream.

Takes: brokers, topics, and where to begin and end. Gives: `KafkaStream`.
Promises: partitions are shared out over ranks and workers, each read by one of them; the state holds the offset after
the last record of the last delivered batch, so a resumed run continues exactly there. Brokers that cannot be reached
and missing topics or partitions are errors when the stream is made.
Not its job: reading partitions (kafka_reading), waiting and decoding (live).

Why partitions are assigned and never balanced by the brokers: a rebalance in the middle of an epoch would give records
that were read ahead, but not yet delivered, to another worker a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.errors.checks import check_choice, check_function
from feedline.errors.masking import address, without
from feedline.sources.kafka_reading import KafkaRecord, Partition, Partitions, driver
from feedline.sources.live import DealtStream, Seekable, check_idle, check_wait

QUEUED_KB = 16_384
"""What librdkafka reads ahead for a worker, in kilobytes. Its own default is 64 MB, for each of many workers."""


class KafkaStream(DealtStream):
    """The records of one or more topics.

    `start` is "earliest", "latest", or an offset for each partition that is read (`{0: 1500}`; with several topics
    `{("clicks", 0): 1500}`); `end` is None (endless) or "now", the records that existed when the epoch began. Without
    `decode` a sample is the record's value, as bytes; `decode` gets a `KafkaRecord`. `idle` seconds without a record
    end the epoch.

    `group`: begin at this consumer group's offsets instead (at `start` if it has none yet). At its end an epoch commits
    its offsets to the group, so that the next epoch continues with later records; `commit(loader.state_dict())` commits
    those of a state. `config` is passed to librdkafka unchanged: `{"security.protocol": "SASL_SSL", …}`.

    >>> from feedline.sources.kafka import KafkaStream
    >>> KafkaStream("localhost:1", "clicks", timeout=0.2)
    Traceback (most recent call last):
        ...
    feedline.errors.SourceError: no Kafka broker answers at localhost:1 within 0.2 s: ...
    """

    def __init__(
        self,
        servers: str,
        topic: str | Sequence[str],
        *,
        partitions: Sequence[int] | None = None,
        group: str | None = None,
        start: str | Mapping[Any, int] = "earliest",
        end: str | None = None,
        decode: Callable[[KafkaRecord], Any] | None = None,
        idle: float | None = None,
        config: Mapping[str, Any] | None = None,
        timeout: float = 10.0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(num_replicas, rank)
        self.servers = servers
        self.topics = _topics(topic)
        self.group = group
        self.start = start if isinstance(start, str) else _offsets(start, self.topics)
        if isinstance(start, str):
            check_choice("start", start, ("earliest", "latest"))
        self.end = end if end is None else check_choice("end", end, ("now",))
        self.decode = check_function("decode", decode)
        self.idle = check_idle(idle)
        self.config = dict(config or {})
        self.timeout = check_wait(timeout)
        self.partitions = self._found(partitions)
        self._check_start()

    @property
    def mine(self) -> list[Partition]:
        """The partitions that this rank's worker reads."""
        return self.dealt(self.partitions)

    def __iter__(self) -> Seekable:
        return Seekable(Partitions(self, self.mine), _value if self.decode is None else self.decode, self.idle)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Commit the offsets of a loader's state to the consumer group: what was delivered, and nothing more."""
        if self.group is None:
            raise OptionError("commit() needs a stream that was made with group=…")
        found = list(_in_state(state))
        if found:
            consumer = self.consumer()
            try:
                self.committed(consumer, dict(found))
            finally:
                consumer.close()

    def committed(self, consumer: Any, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets to the group."""
        kafka = driver()
        places = [kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except kafka.KafkaException as error:
            raise SourceError(
                f"the offsets of group {self.group!r} could not be committed at {self.servers}: {error}"
            ) from None

    def consumer(self, **settings: Any) -> Any:
        """A connection."""
        kafka = driver()
        wanted = {
            "bootstrap.servers": self.servers,
            "group.id": self.group or "feedline",  # librdkafka needs one, even if it is not used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": QUEUED_KB,
            "log_level": 0,
            **self.config,
            **settings,
        }
        try:
            return kafka.Consumer(wanted)
        except (kafka.KafkaException, TypeError, ValueError) as error:
            raise OptionError(f"librdkafka does not accept config: {without(str(error), self.config)}") from None

    def _found(self, wanted: Sequence[int] | None) -> list[Partition]:
        """The existing partitions; if some are wanted, only those."""
        said: list[Any] = []
        consumer = self.consumer(error_cb=said.append)
        try:
            found = [(topic, number) for topic in self.topics for number in self._partitions(consumer, topic, said)]
        finally:
            consumer.close()
        if wanted is None:
            return found
        missing = set(wanted) - {number for _, number in found}
        if missing:
            there = sorted({number for _, number in found})
            raise OptionError(f"partitions {sorted(missing)} are not in {', '.join(self.topics)}, which has {there}")
        return [partition for partition in found if partition[1] in set(wanted)]

    def _check_start(self) -> None:
        """Offsets must be given for exactly the partitions that are read: else records would be skipped silently."""
        if isinstance(self.start, str):
            return
        missing, strange = (
            sorted(each) for each in (set(self.partitions) - set(self.start), set(self.start) - set(self.partitions))
        )
        if missing or strange:
            what = f"has no offset for {missing}" if missing else f"has offsets for {strange}"
            raise OptionError(
                f"start {what}, but the stream reads the partitions {self.partitions}: give an offset for each of "
                "them (0 for the first record ever), or choose some with partitions=[…]"
            )

    def _partitions(self, consumer: Any, topic: str, said: list[Any]) -> list[int]:
        kafka = driver()
        try:
            known = consumer.list_topics(topic, timeout=self.timeout).topics[topic]
        except kafka.KafkaException as error:
            consumer.poll(0)  # this makes it call `said` with what it knows: a refused password, say
            why = "; ".join(dict.fromkeys(each.str() for each in (error.args[0], *said)))
            raise SourceError(
                f"no Kafka broker answers at {self.servers} within {self.timeout:g} s: {why}; look at the address, and "
                "at config= if the brokers ask for TLS or a password"
            ) from None
        if known.error is not None or not known.partitions:
            why = known.error.str() if known.error is not None else "it has no partitions"
            raise SourceError(f"the topic {topic!r} cannot be read at {self.servers}: {why}")
        return sorted(known.partitions)

    def __repr__(self) -> str:
        return f"KafkaStream({address(self.servers)!r}, {', '.join(self.topics)})"


def _value(record: KafkaRecord) -> bytes | None:
    return record.value


def _topics(topic: Any) -> tuple[str, ...]:
    topics = (topic,) if isinstance(topic, str) else tuple(topic) if isinstance(topic, list | tuple) else ()
    if not topics or not all(isinstance(each, str) and each for each in topics):
        raise OptionTypeError(f"topic must be the name of a topic, or a list of names; got {topic!r}")
    return topics


def _offsets(start: Mapping[Any, int], topics: tuple[str, ...]) -> dict[Partition, int]:
    try:
        given = {(key if isinstance(key, tuple) else (topics[0], int(key))): int(at) for key, at in start.items()}
    except (TypeError, ValueError, AttributeError):
        raise OptionTypeError(
            f"start must be 'earliest', 'latest' or offsets by partition, such as {{0: 1500}}; got {start!r}"
        ) from None
    if len(topics) > 1 and not all(isinstance(key, tuple) for key in start):
        raise OptionError(f"start must name the topic too, such as {{({topics[0]!r}, 0): 1500}}: there are several")
    return given


def _in_state(state: Any) -> Iterator[tuple[Partition, int]]:
    """The offsets in a loader's state, of all workers."""
    for record in state.get("streams", {}).values():
        if isinstance(record.get("state"), dict):
            for topic, number, offset in record["state"].get("kafka", ()):
                yield (topic, number), offset
