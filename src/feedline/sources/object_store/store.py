"""A bucket, a container or a web server as a place.

Takes: a URL, credentials and the like (passed on to obstore, which also looks for them in the environment), time
limits.
Gives: objects, ranges, many at a time, lists.
Promises: requests that fail for a temporary reason (5xx, throttling, resets, time-outs, bodies that end early) are
repeated with growing pauses, for at most `retry_for` seconds; a host that cannot be reached is an error within seconds;
what is read is complete; errors name the URL.
Not its job: obstore in this process (driver), words for errors (telling), samples (object_dataset).
"""

from __future__ import annotations

import os
import re
import time
from builtins import list as list_of
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_seconds, check_whole
from feedline.errors.masking import address, masked, without
from feedline.sources.object_store import driver
from feedline.sources.object_store.store_errors import interrupted, is_busy, told
from feedline.sources.places import REMOTE, StoredFile

CONCURRENCY = 64
"""64 persistent threads with one request at a time each took 160 to 400 µs of CPU per request and gave 2,000 requests a
second at 20 ms latency; new threads for each batch took 380 to 550 µs and gave 500 to 1,300; as many coroutines on one
event loop 300 to 520 µs and 1,500. (obstore 0.12, 20 kB each, two busy cores; a sketch of
benchmarks/object_store.py.)"""
FIRST = 5.0
"""Seconds to reach the host for the first time: nobody wants to wait a minute to learn of a typing error."""
CONNECT = 3.0
WHOLE = 20
"""How many times `timeout` one request may take in total: a large object may take long."""
OF_ONE_OBJECT = (FileNotFoundError, OptionError)
"""Errors that say nothing about other objects. After any other one it would be in vain to wait for them, too."""
CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
TELLING_APART = {
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "base_url": "endpoint",
    "account_name": "account_name",
    "storage_account_name": "account_name",
}
"""Options that decide which bucket a name means, without the cloud's prefix, and our names for them."""
ATTEMPTS = 3
"""Attempts for what obstore does not retry itself: a body that ended early, if the server gives no ETag."""


class ObjectStore:
    """Objects under a URL: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `https://host/path`.

    At most `concurrency` requests run at a time, in each process. A server that is silent for `timeout` seconds is
    asked again. What fails for a temporary reason is retried for `retry_for` seconds. Other options go to obstore:
    `region`, `endpoint`, `access_key_id`, `secret_access_key`, `skip_signature` (a public bucket), `account_name`, … ;
    options that are not given are looked up in the environment (`AWS_ACCESS_KEY_ID`, …). `client` has obstore's options
    for connections (proxies, certificates, headers), and `credential_provider` is a function that returns credentials.
    Web servers cannot list their objects.

    >>> store = ObjectStore("s3://pictures/train", region="eu-west-1", access_key_id="me", secret_access_key="hush")
    >>> store
    ObjectStore('s3://pictures/train', region='eu-west-1')
    >>> store.url_of("cat.jpg")
    's3://pictures/train/cat.jpg'
    """

    def __init__(
        self,
        url: str,
        *,
        concurrency: int = CONCURRENCY,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        client: Mapping[str, Any] | None = None,
        credential_provider: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        self.url = _checked_url(url)
        self.concurrency = check_whole("concurrency", concurrency, least=1)
        self.timeout = check_seconds("timeout", timeout, zero="")
        if not self.timeout:
            raise OptionError("timeout must be a positive number of seconds; got 0")
        self.retry_for = check_seconds("retry_for", retry_for, zero="never try again")
        if client is not None and not isinstance(client, Mapping):
            raise OptionTypeError(f"client must be a dict of obstore's client options or None; got {type(client)}")
        self._client = dict(client or {})
        self._provider = credential_provider
        self._options = options
        self._where = _where(self._scheme, options)
        self._opened()  # wrong options are an error here, not in a worker

    def read(self, name: str) -> bytes:
        """A whole object."""
        return self.read_many([name])[0]

    def read_many(self, names: Sequence[str]) -> list_of[bytes]:
        """Several objects at the same time."""
        return self._together(_whole, [(self._checked(name),) for name in names])

    def read_each(self, names: Sequence[str]) -> list_of[bytes | Exception]:
        """Several objects at the same time; in the place of one that is not there, or cannot be, the error."""
        wrong: dict[str, Exception] = {}
        for name in names:
            try:
                self._checked(name)
            except OptionError as error:
                wrong[name] = error.with_traceback(None)
        answers = iter(self._together(_whole, [(name,) for name in names if name not in wrong], OF_ONE_OBJECT))
        return [wrong[name] if name in wrong else next(answers) for name in names]

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """A part of an object, by a request for that part only."""
        part: bytes = self._together(_part, [(self._checked(name), start, end)])[0]
        return part

    def size(self, name: str) -> int:
        """The size of an object, by a request for its header."""
        return int(self._together(_size, [(self._checked(name),)])[0])

    def list(self, prefix: str = "") -> list_of[StoredFile]:
        """All objects whose names begin with `prefix`."""
        if self.url.startswith("http"):
            raise OptionError(f"{self.url}: a web server does not list its objects; give their names")
        found: list_of[StoredFile] = self._together(_listed, [("", prefix)])[0]
        return found

    def url_of(self, name: str) -> str:
        """An object's URL.

        >>> ObjectStore("https://example.org/data/").url_of("a.bin")
        'https://example.org/data/a.bin'
        """
        return masked(f"{self.url}/{name}") if name else self.url

    def close(self) -> None:
        """End this process's threads and connections, as dropping the store does; the next use opens it again."""
        driver.close(self)

    def _together(
        self, do: Callable[..., Any], each: Sequence[tuple[Any, ...]], kept: tuple[type[Exception], ...] = ()
    ) -> list_of[Any]:
        """`do` for each, at the same time; errors of a `kept` type are answers, too.

        Uses threads even for one: a thread that waits in obstore ignores Ctrl-C.
        """
        opened = self._opened()
        running = deque(opened.pool.submit(self._ask, opened, do, *one) for one in each)
        answers = []
        try:
            # The future gets no name: its error would form a reference cycle, and keep the caller's variables.
            while running:
                try:
                    answers.append(running.popleft().result())
                except kept as error:
                    answers.append(error.with_traceback(None))
        finally:
            for one in running:
                one.cancel()
        return answers

    def _ask(self, opened: driver.Opened, do: Callable[..., Any], name: str, *rest: Any) -> Any:
        began = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            first = not opened.proven.is_set()
            try:
                answer = do(opened.functions, opened.first if first else opened.later, name, *rest)
            except Exception as error:
                busy, failed = is_busy(error), told(error, self.url_of(name))
                cut_short = interrupted(error) and time.monotonic() - began < self.retry_for
                if busy:  # the host is right: from now on the longer time limits apply
                    opened.proven.set()
                met = busy and first and self.retry_for > 0
                if attempt == ATTEMPTS or not (cut_short or met):
                    break
            else:
                opened.proven.set()
                return answer
        try:
            raise failed  # without obstore's error as its cause: that has whole URLs, with secrets in them
        finally:
            del failed  # otherwise the error would refer to itself, and keep all frames it passed alive

    def _checked(self, name: str) -> str:
        if not isinstance(name, str):
            raise OptionTypeError(f"the name of an object must be a string; got {name!r}")
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise OptionError(f"the name {name!r} leads out of {self.url}")
        return name

    def _opened(self) -> driver.Opened:
        return driver.opened(self, self._open)

    def _open(self, library: driver.Library) -> driver.Opened:
        pool = ThreadPoolExecutor(self.concurrency, "feedline-objects")
        first = self._connect(library, min(FIRST, self.retry_for))
        return driver.Opened(library.functions, first, self._connect(library, self.retry_for), pool, Event())

    def _connect(self, library: driver.Library, retry_for: float) -> Any:
        stores = library.stores
        kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}.get(self._scheme)
        client = {
            "connect_timeout": timedelta(seconds=min(CONNECT, self.timeout)),
            "read_timeout": timedelta(seconds=self.timeout),
            "timeout": timedelta(seconds=self.timeout * WHOLE),
            **self._client,
        }
        if any(each.startswith("http://") for each in (self.url, *self._endpoints())):
            client.setdefault("allow_http", True)  # the user asked for http:// explicitly
        retry = {
            "max_retries": 1000,  # limited by time only
            "retry_timeout": timedelta(seconds=retry_for),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5)},
        }
        try:
            if kind is None:
                if self._options:
                    raise ValueError(f"a web server has no option {next(iter(self._options))!r}")
                return stores.HTTPStore.from_url(self.url, client_options=client, retry_config=retry)
            provided = {} if self._provider is None else {"credential_provider": self._provider}
            config = self._options
            return kind.from_url(self.url, config=config, client_options=client, retry_config=retry, **provided)
        except Exception as error:
            failed = OptionError(f"{self.url}: {without(str(error).partition(chr(10))[0], self._options)}")
        raise failed

    def _endpoints(self) -> Iterator[str]:
        yield from (str(value) for key, value in self._options.items() if "endpoint" in key or "url" in key)
        yield from (value for key, value in os.environ.items() if key.startswith(CLOUDS) and "ENDPOINT" in key)

    @property
    def _scheme(self) -> str:
        return self.url.partition("://")[0]

    def __repr__(self) -> str:
        # Nothing else: most options are secret. Places with equal reprs hold the same objects (cached needs this).
        return f"ObjectStore({self.url!r}{''.join(f', {key}={value!r}' for key, value in self._where.items())})"


def _whole(functions: Any, store: Any, name: str) -> bytes:
    return bytes(functions.get(store, name).bytes())


def _part(functions: Any, store: Any, name: str, start: int, end: int) -> bytes:
    if end <= start:
        return b""
    try:
        return bytes(functions.get_range(store, name, start=start, end=end))
    except Exception as error:
        if "416 Range Not Satisfiable" in str(error):  # the object ends before `start`
            return b""
        raise


def _size(functions: Any, store: Any, name: str) -> int:
    return int(functions.head(store, name)["size"])


def _listed(functions: Any, store: Any, _: str, prefix: str) -> list[StoredFile]:
    # obstore can list only whole folders.
    found = [
        StoredFile(str(each["path"]), int(each["size"]))
        for chunk in functions.list(store, prefix.rpartition("/")[0] or None, chunk_size=1000)
        for each in chunk
        if each["path"].startswith(prefix)
    ]
    return sorted(_without_folders(found))


def _without_folders(found: Sequence[StoredFile]) -> Iterator[StoredFile]:
    """S3's web console makes an empty object for each folder, which is no data."""
    if all(entry.size for entry in found):
        yield from found
        return
    folders = {name[:at] for name, _ in found for at, letter in enumerate(name) if letter == "/"}
    yield from (entry for entry in found if entry.name and (entry.size or entry.name not in folders))


def _where(scheme: str, options: Mapping[str, Any]) -> dict[str, str]:
    """What distinguishes this place from others of the same URL, given or found in the environment; nothing secret."""
    cloud = {"s3": "aws_", "az": "azure_", "gs": "google_"}.get(scheme)
    if cloud is None:
        return {}
    found = {key.lower(): value for key, value in os.environ.items() if key.lower().startswith(cloud)}
    given = {key.lower(): str(value) for key, value in options.items()}
    where: dict[str, str] = {}
    for key, value in (*found.items(), *given.items()):
        name = TELLING_APART.get(key.removeprefix(cloud))
        if name is not None and value:
            where[name] = re.sub(r"//[^/@]*@", "//", address(value))  # another user is not another place
    return {**where, **({"region": given["region"]} if "region" in given else {})}


def _checked_url(url: str) -> str:
    if not isinstance(url, str):
        raise OptionTypeError(f"url must be a string such as 's3://bucket/prefix'; got {url!r}")
    scheme, separator, rest = url.partition("://")
    known = ", ".join(f"{each}://" for each in REMOTE)
    if not separator or scheme not in REMOTE:
        raise OptionError(f"url must begin with one of {known}; got {address(url)!r}")
    host = rest.partition("/")[0]
    if "@" in host or ("@" in rest and not re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", host)):
        raise OptionError("url has a user or a password in it, which would be printed; give credentials as options")
    if "?" in url or "#" in url:
        place = address(url.partition("?")[0].partition("#")[0])
        raise OptionError(
            f"url has a query or a fragment after {place}; leave it out, because the names of objects are added to "
            "the URL"
        )
    if not host:
        raise OptionError(f"url must name a bucket or a host after {scheme}://; got {address(url)!r}")
    return url.rstrip("/")
