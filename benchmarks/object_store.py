"""Small objects in a bucket that takes 20 ms to answer: how many samples come a second?

The server is our own: asyncio, S3's answers to GET, 20 ms after each request. (moto takes 3 ms and more a request:
that would be the limit.) The peer does what its users do: `boto3.get_object` in `__getitem__`, a client in each worker.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

LENGTH, BATCH, SIZE, LATENCY = 256, 64, 20_000, 0.02
NAMES = [f"{number:05}.bin" for number in range(LENGTH)]
KEYS = {"access_key_id": "me", "secret_access_key": "hush"}


class Answering(asyncio.Protocol):
    """A connection: each GET is answered 20 ms later, whatever else is going on."""

    body = bytes(SIZE)
    head = (
        f'HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nETag: "1"\r\nAccept-Ranges: bytes\r\n'
        "Content-Type: binary/octet-stream\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n"
    ).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        *requests, self.received = (self.received + data).split(b"\r\n\r\n")
        for _ in requests:
            asyncio.get_running_loop().call_later(LATENCY, self.answer)

    def answer(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self.head + self.body)


async def answer_for_ever() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def bucket() -> Iterator[str]:
    """A server in a process of its own; its address."""
    server = subprocess.Popen([sys.executable, __file__, "server"], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()


class OneByOne:
    """What people write for torch's loader."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = None

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> np.ndarray:
        if self.client is None:  # in the worker: a client is not to be shared with another process
            import boto3

            named = {f"aws_{key}": value for key, value in KEYS.items()}
            self.client = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", **named)
        body = self.client.get_object(Bucket="bucket", Key=NAMES[index])["Body"].read()
        return np.frombuffer(bytearray(body), np.uint8)


def options(workers: int) -> dict[str, Any]:
    return {"batch_size": BATCH, "num_workers": workers, "persistent_workers": workers > 0}


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader
    from feedline.sources import ObjectDataset

    with bucket() as endpoint:
        data = ObjectDataset("s3://bucket", NAMES, endpoint=endpoint, region="us-east-1", **KEYS)
        with DataLoader(data, **options(workers)) as loader:
            yield from epochs(loader, LENGTH)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader

    with bucket() as endpoint:
        yield from epochs(DataLoader(OneByOne(endpoint), **options(workers)), LENGTH)


WORKLOAD = Workload(
    name="object_store",
    metrics={"samples/s": "more"},
    cases=[
        Case("20 kB objects, 20 ms latency, 2 workers", {"workers": 2}, targets={"torch": 8}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,  # torch takes some seconds for each
)

if __name__ == "__main__":
    if sys.argv[1:] == ["server"]:
        asyncio.run(answer_for_ever())
    else:
        serve(WORKLOAD)
