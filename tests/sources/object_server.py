"""A real S3 server (moto, which checks signatures), and before it a proxy that answers badly when told to.

Run as a program, it prints one line of JSON (ports, keys) and then takes commands, one line of JSON each:
`{"do": [...]}` says what befalls the next requests, in their order; `{"tell": true}` asks what was requested since.
`ObjectServer` is the tests' side of it. It is a process of its own: the tests' process forks without its threads.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
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
PATIENCE = 30  # seconds for requests that wait for one another: nobody waits as long unless something is broken


class ObjectServer:
    """The server as tests see it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": str(3 + len(BUCKETS)), "MOTO_S3_DEFAULT_MAX_KEYS": "3"},
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

    def befall(self, *what: Any) -> None:
        """What happens to the next requests, and to none after them; forgets what was requested before."""
        self._ask({"do": what})

    def requested(self) -> list[str]:
        """Method and path of every request since `befall`."""
        return self._ask({"tell": True})["requested"]

    def most_at_once(self) -> int:
        """Requests that were being answered at the same time since `befall`."""
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
        self.fate: deque[Any] = deque()
        self.requested: list[str] = []
        self.lock = threading.Lock()
        self.barrier = threading.Barrier(1)
        self.never = threading.Event()
        self.now = self.most = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections end in all manners here."""

    def next_fate(self, request: str) -> Any:
        with self.lock:
            self.requested.append(request)
            self.now += 1
            self.most = max(self.most, self.now)
            return self.fate.popleft() if self.fate else "pass"

    def begin(self, fate: list[Any]) -> None:
        with self.lock:
            self.fate, self.requested = deque(fate), []
            self.never.set()  # whoever hangs is let go
            self.never = threading.Event()
            self.most = self.now
            meeting = sum(each == "meet" for each in fate)
            self.barrier = threading.Barrier(max(1, meeting))


class Handler(BaseHTTPRequestHandler):
    """One connection to the proxy."""

    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        fate = self.server.next_fate(f"{self.command} {self.path}")
        try:
            self.meet(fate)
        finally:
            with self.server.lock:
                self.server.now -= 1

    def meet(self, fate: Any) -> None:
        if isinstance(fate, int):
            self.answer(fate, SLOW_DOWN)
        elif fate == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        elif fate == "hang":
            self.server.never.wait()
            self.close_connection = True
        else:
            if fate == "meet":  # go on only together with all others that are to meet
                self.server.barrier.wait(PATIENCE)
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
        for each in (proxy, through):
            if "do" in command:
                each.begin(command["do"])
        say({"requested": proxy.requested + through.requested, "most": max(proxy.most, through.most)})
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
