"""Partitions of Kafka topics, read one record after the other.

Takes: a stream's settings and this worker's partitions. Gives: records, and the offsets after them.
Promises: if brokers go away, it waits for them, with one warning; offsets that are no longer stored are an error, not a
jump; records that were given are distinguished from those that were only fetched.
Not its job: who reads which partition (kafka), waiting and decoding (live).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from feedline.errors import SourceError, StateError
from feedline.errors.masking import masked
from feedline.errors.missing_packages import extra
from feedline.sources.live import Deadline

if TYPE_CHECKING:
    from feedline.sources.kafka import KafkaStream

log = logging.getLogger("feedline")

AT_ONCE = 256
"""Records taken from librdkafka at a time: 100,000 to 140,000 records/s; one by one 60,000 (2 cores, 100 bytes)."""
LONG = 3600.0

Partition = tuple[str, int]


def driver() -> Any:
    """The package for Kafka."""
    return extra("confluent_kafka", "kafka", "KafkaStream")


class KafkaRecord(NamedTuple):
    """What `decode` gets.

    >>> KafkaRecord("clicks", partition=0, offset=41, key=None, value=b"[1, 2]", timestamp=-1).value
    b'[1, 2]'
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    """In milliseconds since 1970; -1 if there is none."""


class Partitions:
    """Some partitions, read by one connection."""

    def __init__(self, stream: KafkaStream, partitions: list[Partition]) -> None:
        self._stream = stream
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._partitions = partitions
        self._waiting: deque[Any] = deque()
        self._consumer: Any = None
        self._complained = False

    def next(self, wait: float | None) -> tuple[KafkaRecord, str] | None:
        """The next record of any of the partitions."""
        if self._consumer is None:
            self._open()
        deadline = Deadline(wait)
        while not self._is_over():
            if not self._waiting and not self._fill(deadline.left(LONG)) and not deadline.left(LONG):
                self._leave_offsets_if_possible()
                return None
            while self._waiting:
                found = self._take(self._waiting.popleft())
                if found is not None:
                    return found, f"offset {found.offset} of partition {found.partition} of topic {found.topic!r}"
        self._leave_offsets()
        raise StopIteration

    def state(self) -> dict[str, Any]:
        """The offsets after the records that were given, and the rank they belong to."""
        offsets = [[*partition, offset] for partition, offset in self._next.items()]
        return {"kafka": offsets, "ranks": [self._stream.num_replicas, self._stream.rank]}

    def load(self, state: dict[str, Any]) -> None:
        """Continue at the offsets of a state."""
        count, rank = self._stream.num_replicas, self._stream.rank
        if state["ranks"] != [count, rank]:  # with more ranks, the state lacks what the others have delivered
            then = "rank {1} of {0}".format(*state["ranks"])
            raise StateError(
                f"the state was saved by {then}, and this is rank {rank} of {count}: each rank must continue from its "
                "own state, with as many ranks as before"
            )
        self._next = {(topic, number): offset for topic, number, offset in state["kafka"]}
        strange = sorted(set(self._next) - set(self._partitions))
        if strange:
            raise StateError(
                f"the state has partitions that are not read here: {strange}; read here are {self._partitions}"
            )

    def close(self) -> None:
        """Disconnect from the brokers."""
        consumer, self._consumer = self._consumer, None
        self._waiting.clear()
        self._partitions = []
        if consumer is not None:
            consumer.close()

    def __str__(self) -> str:
        return repr(self._stream)

    def _is_over(self) -> bool:
        if self._stream.end is None:
            return not self._partitions
        return all(self._next[each] >= self._ends[each] for each in self._partitions)

    def _fill(self, wait: float) -> bool:
        """Fetch the records that have come; waits for the first."""
        first = self._consumer.poll(wait)
        if first is None:
            return False
        self._waiting.append(first)
        self._waiting.extend(self._consumer.consume(AT_ONCE, 0))
        return True

    def _take(self, message: Any) -> KafkaRecord | None:
        error = message.error()
        partition = (message.topic(), message.partition())
        if error is not None:
            self._judge(error, partition)
            return None
        if self._stream.end is not None and message.offset() >= self._ends[partition]:
            return None
        self._next[partition] = message.offset() + 1
        return KafkaRecord(*partition, message.offset(), message.key(), message.value(), message.timestamp()[1])

    def _judge(self, error: Any, partition: Partition) -> None:
        kafka = driver()
        topic, number = partition
        if error.code() == kafka.KafkaError._PARTITION_EOF:
            if self._stream.end is not None:  # the records before the end may have been compacted away
                self._next[partition] = max(self._next[partition], self._ends[partition])
        elif error.code() == kafka.KafkaError._AUTO_OFFSET_RESET:
            raise SourceError(
                f"offset {self._next.get(partition)} of partition {number} of topic {topic!r} does not exist at "
                f"{self._stream.servers}: the broker has deleted it, or it never existed; begin with "
                "start='earliest', and configure a retention longer than a run may be interrupted"
            )
        elif error.fatal() or not error.retriable():
            raise SourceError(f"partition {number} of topic {topic!r} cannot be read: {error.str()}")

    def _open(self) -> None:
        self._consumer = consumer = self._stream.consumer(error_cb=self._complain)
        kafka = driver()
        try:
            begins = self._begins(consumer)
            for partition in self._partitions:
                low, high = consumer.get_watermark_offsets(
                    kafka.TopicPartition(*partition), timeout=self._stream.timeout
                )
                self._ends[partition] = high
                begin = begins.get(partition, low if self._stream.start == "earliest" else high)
                self._next.setdefault(partition, begin)
        except kafka.KafkaException as error:
            raise SourceError(f"{self._stream} cannot be read: {error.args[0].str()}") from None
        self._next = {partition: self._next[partition] for partition in self._partitions}
        consumer.assign([kafka.TopicPartition(*partition, offset) for partition, offset in self._next.items()])

    def _begins(self, consumer: Any) -> dict[Partition, int]:
        stream = self._stream
        begins = {} if isinstance(stream.start, str) else dict(stream.start)
        if stream.group is not None and self._partitions:
            kafka = driver()
            asked = [kafka.TopicPartition(*partition) for partition in self._partitions]
            for each in consumer.committed(asked, timeout=stream.timeout):
                if each.offset >= 0:
                    begins[each.topic, each.partition] = each.offset
        return begins

    def _leave_offsets(self) -> None:
        if self._stream.group is not None and self._next:
            self._stream.committed(self._consumer, self._next)

    def _leave_offsets_if_possible(self) -> None:
        """If nothing came, the brokers may be gone: the batch that was begun must be delivered all the same."""
        try:
            self._leave_offsets()
        except SourceError as error:
            log.warning("%s; the next epoch of this group will read its last records again", error)

    def _complain(self, error: Any) -> None:
        """librdkafka retries by itself; a user who waits should know why."""
        if not self._complained:
            self._complained = True
            log.warning("%r waits for its brokers: %s", self._stream, masked(error.str()))
