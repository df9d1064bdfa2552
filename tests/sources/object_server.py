"""A real S3 server (moto, which checks signatures), and before it a proxy that answers badly when told to.

Run as a program, it prints one line of JSON (ports, keys) and then takes commands, one line of JSON each:
`{"do": [...]}` says what befalls the next requests, in their order (after those that were sent before have been met);
`{"tell": true}` asks what was requested since.
`ObjectServer` is the tests' side of it. It is a process of its own: the tests' process forks without its threads.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlencode
from urllib.request import Request, urlopen

import obstore
import obstore.store

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
MISSING = {"truncate without etag": ("etag",), "truncate without length": ("content-length",)}
BUCKETS = ("pictures", "samples", "pictures/train/", "pictures/train/a/")
"""…and empty objects that stand for folders, as S3's web pages make them."""
PATIENCE = 300  # seconds for requests that wait for one another: nobody waits as long unless something is broken


class ObjectServer:
    """The server as tests see it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": str(3 + len(BUCKETS))},
        )
        told = self._answer()
        self.key, self.secret = told["key"], told["secret"]
        self.direct, self.endpoint, self.files = told["direct"], told["proxy"], told["files"]
        self.options = {
            "endpoint": self.endpoint,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }

    def put(self, bucket: str, objects: dict[str, bytes]) -> None:
        """Objects into one of the BUCKETS, past the proxy."""
        config = {**self.options, "endpoint": self.direct}
        store = obstore.store.S3Store(bucket, config=config, client_options={"allow_http": True})
        for name, data in objects.items():
            obstore.put(store, name, data)

    def befall(self, *what: Any, page: int = 1000) -> None:
        """What happens to the next requests, and to none after them; forgets what was requested before.

        Lists come in pages of so many names.
        """
        self._ask({"do": what, "page": page})

    def requested(self) -> list[str]:
        """Method and path of every request since `befall`."""
        return self._ask({"tell": True})["requested"]

    def most_at_once(self) -> int:
        """Requests that waited for an answer at the same time since `befall`."""
        return self._ask({"tell": True})["most"]

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline()).startswith(b"{"):  # moto has something to say, too
            assert line, "the server ended"
        return json.loads(line)


class Proxy(ThreadingHTTPServer):
    """Hands requests on, unless something befalls them."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, behind: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = behind
        self.lock = threading.Lock()
        self.round = Round([])
        self.connections: set[Handler] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections end in all manners here."""

    def begin(self, fate: list[Any]) -> None:
        """A new round, when all that was sent before has been met: nothing of it belongs to what follows."""
        self.round.never.set()  # whoever hangs is let go, and whoever waits for others
        self.round.barrier.abort()
        with socket.create_connection(self.server_address[:2]) as last:
            self.await_quiet(last.getsockname())
        with self.lock:
            self.round = Round(fate)

    def await_quiet(self, last: Any) -> None:
        """A client that was tired of waiting may have hung up before its request was even looked at."""
        accepted = False  # connections are accepted in the order in which they were made
        while True:
            with self.lock:
                accepted = accepted or any(each.client_address == last for each in self.connections)
                if accepted and all(each.is_quiet() for each in self.connections):
                    return
            time.sleep(0.0005)  # what lies unread in a socket tells nobody


class Round:
    """What befalls requests, and what is known of them, until the next time that somebody decides on that."""

    def __init__(self, fate: list[Any]) -> None:
        self.fate = deque(fate)
        self.requested: list[str] = []
        self.barrier = threading.Barrier(max(1, fate.count("meet")))
        self.never = threading.Event()
        self.now = self.most = 0

    def next_fate(self, request: str) -> Any:
        self.requested.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        return self.fate.popleft() if self.fate else "pass"


class Handler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    server: Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body at once: a body that comes later is held back until the head is acknowledged

    def handle(self) -> None:
        self.reading = True
        with self.server.lock:
            self.server.connections.add(self)
        try:
            super().handle()
        finally:
            with self.server.lock:
                self.server.connections.remove(self)

    def is_quiet(self) -> bool:
        """It waits for a request, of which nothing has come."""
        return self.reading and not select.select([self.connection], [], [], 0)[0]

    def parse_request(self) -> bool:
        self.reading = False  # the first line is here
        return super().parse_request()

    def do_GET(self) -> None:
        with self.server.lock:
            self.round = self.server.round
            fate = self.round.next_fate(f"{self.command} {self.path}")
        self.waits = True
        try:
            self.meet(fate)
        finally:
            self.is_answered()
            self.reading = True

    def is_answered(self) -> None:
        """To be said before the answer is out: whoever has it may send the next request."""
        if self.waits:
            self.waits = False
            with self.server.lock:
                self.round.now -= 1

    def meet(self, fate: Any) -> None:
        if isinstance(fate, int):
            self.answer(fate, SLOW_DOWN)
        elif fate == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        elif fate == "hang":
            self.round.never.wait()
            self.close_connection = True
        else:
            if fate == "meet":  # go on only together with all others that are to meet
                self.round.barrier.wait(PATIENCE)
            self.hand_on(fate)

    do_HEAD = do_GET

    def hand_on(self, fate: str) -> None:
        connection = http.client.HTTPConnection(*self.server.behind)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "connection":
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        headers = [pair for pair in answer.getheaders() if pair[0].lower() not in ("connection", "transfer-encoding")]
        connection.close()
        self.is_answered()
        self.send_response_only(answer.status)
        for name, value in headers:
            if name.lower() not in MISSING.get(fate, ()):
                self.send_header(name, value)
        if fate == "truncate" or fate in MISSING:
            body = body[: len(body) // 2]
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self, status: int, body: bytes) -> None:
        self.is_answered()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing to say."""


class Files(BaseHTTPRequestHandler):
    """A plain web server of a few made-up files: /files/<n> has n bytes. It knows ranges, and no listing."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body at once: a body that comes later is held back until the head is acknowledged

    def do_GET(self) -> None:
        match = re.search(r"[/](\d+)$", unquote(self.path.partition("?")[0]))
        body = bytes(index % 251 for index in range(int(match[1]))) if match else b"no such file"
        status, about = (200, "") if match else (404, "")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match and asked:
            start, end, size = int(asked[1]), int(asked[2]) + 1, len(body)
            status, body = 206, body[start:end]
            about = f"bytes {start}-{start + len(body) - 1}/{size}"
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.send_header("ETag", '"1"')
        if about:
            self.send_header("Content-Range", about)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing to say."""


def main() -> None:
    """The server's own process."""
    from moto.server import ThreadedMotoServer  # takes a second, which the tests' own process can do without

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    port = moto.get_host_and_port()[1]
    key, secret = make_user(f"http://127.0.0.1:{port}")
    proxy = Proxy(("127.0.0.1", port))
    files = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    files.daemon_threads = True
    through = Proxy(("127.0.0.1", files.server_port))
    for server in (proxy, files, through):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    say(
        {
            "key": key,
            "secret": secret,
            "direct": f"http://127.0.0.1:{port}",
            "proxy": f"http://127.0.0.1:{proxy.server_port}",
            "files": f"http://127.0.0.1:{through.server_port}",
        }
    )
    for line in sys.stdin:
        command = json.loads(line)
        if "do" in command:
            os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = str(command["page"])
            for each in (proxy, through):
                each.begin(command["do"])
        rounds = (proxy.round, through.round)
        requested = [request for each in rounds for request in each.requested]
        say({"requested": requested, "most": max(each.most for each in rounds)})
    os._exit(0)


def make_user(endpoint: str) -> tuple[str, str]:
    """The few requests that moto lets pass without asking who it is: a user who may do everything, and buckets."""
    ask(endpoint, "iam", {"Action": "CreateUser", "UserName": "tests"})
    policy = {"PolicyName": "all", "PolicyDocument": json.dumps(POLICY)}
    ask(endpoint, "iam", {"Action": "PutUserPolicy", "UserName": "tests", **policy})
    made = ask(endpoint, "iam", {"Action": "CreateAccessKey", "UserName": "tests"})
    for bucket in BUCKETS:
        ask(f"{endpoint}/{bucket}", "s3", None)
    key, secret = (re.search(rf"<{name}>(.*?)</{name}>", made) for name in ("AccessKeyId", "SecretAccessKey"))
    assert key
    assert secret
    return key[1], secret[1]


def ask(url: str, service: str, form: dict[str, str] | None) -> str:
    """A request of nobody's."""
    signed = f"AWS4-HMAC-SHA256 Credential=-/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=-"
    data = None if form is None else urlencode({**form, "Version": "2010-05-08"}).encode()
    method = "PUT" if form is None else "POST"
    with urlopen(Request(url, data, {"Authorization": signed}, method=method)) as answer:
        return str(answer.read().decode())


def say(what: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
