"""Learning from a Kafka topic, stopped in the middle and gone on with: no record twice, none lost.

    python examples/kafka_stream.py

Needs `pip install 'feedline[kafka]'`. It starts librdkafka's own stand-in for a broker; set SERVERS to use yours.
"""

from __future__ import annotations

import json
import os
from itertools import islice

import torch
from confluent_kafka import Producer

from feedline.sources import KafkaRecord, KafkaStream
from feedline.torch import DataLoader

TOPIC, RECORDS, BATCH, WORKERS = "measurements", 2000, 50, 2


def decode(record: KafkaRecord) -> tuple[int, torch.Tensor, torch.Tensor]:
    """A record is JSON: its number, what was measured, and what came of it."""
    sent = json.loads(record.value or b"")
    return sent["number"], torch.tensor(sent["x"]), torch.tensor(sent["y"])


def produce(servers: str | None) -> tuple[Producer, str]:
    """Records of y = 3·x₀ − 2·x₁ + 1, in two partitions."""
    stand_in = {"bootstrap.servers": "any", "test.mock.num.brokers": 1, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers} if servers else stand_in)
    broker = next(iter(producer.list_topics(timeout=60).brokers.values()))
    points = torch.randn(RECORDS, 2, generator=torch.Generator().manual_seed(0))
    for number, (x0, x1) in enumerate(points.tolist()):
        record = {"number": number, "x": [x0, x1], "y": 3 * x0 - 2 * x1 + 1}
        producer.produce(TOPIC, json.dumps(record).encode(), partition=number % 2)
    producer.flush(60)
    return producer, servers or f"{broker.host}:{broker.port}"


def main() -> None:
    producer, servers = produce(os.environ.get("SERVERS"))  # the stand-in lives as long as its producer
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[int] = []

    def train(loader: DataLoader, batches: int | None = None) -> None:
        for numbers, x, y in islice(loader, batches):
            loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.extend(numbers.tolist())

    stream = KafkaStream(servers, TOPIC, end="now", decode=decode, timeout=60)
    loader = DataLoader(stream, batch_size=BATCH, num_workers=WORKERS)
    train(loader, batches=15)
    state = json.dumps(loader.state_dict())  # batches read ahead are not in it
    del loader

    loader = DataLoader(stream, batch_size=BATCH, num_workers=WORKERS)  # as after a crash
    loader.load_state_dict(json.loads(state))
    train(loader)

    (w0, w1), bias = model.weight[0].tolist(), model.bias.item()
    print(f"learned: y = {w0:.2f}·x₀ {w1:+.2f}·x₁ {bias:+.2f}")
    print(f"records: {len(seen):,}; each once: {'yes' if sorted(seen) == list(range(RECORDS)) else 'NO'}")
    del producer


if __name__ == "__main__":
    main()
