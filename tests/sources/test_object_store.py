"""Object storage as a place, against a real server (moto, with signatures checked) and all that can befall requests."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer
from warm_host import host

from feedline import FeedlineError, OptionError, SourceError
from feedline.errors import MissingPackage
from feedline.sources import ObjectStore
from feedline.sources.object_store import driver, store
from feedline.sources.places import StoredFile, place_of

DATA = bytes(range(256)) * 40
HELD = {
    "train/a/1.bin": DATA,
    "train/a/10.bin": b"ten",
    "train/a/2.bin": b"two",
    "train/b.bin": b"",
    "train/odd/ü x%+#?&=.bin": b"odd",
    "other/c.bin": b"elsewhere",
}


@pytest.fixture(scope="module")
def server(objects: ObjectServer) -> ObjectServer:
    objects.put("pictures", HELD)
    return objects


@pytest.fixture
def bucket(server: ObjectServer) -> Iterator[ObjectStore]:
    server.befall()
    with closing(ObjectStore("s3://pictures/train", **server.options)) as store:
        yield store


def opened(server: ObjectServer, url: str = "s3://pictures/train", **options: Any) -> ObjectStore:
    server.befall()
    return ObjectStore(url, **{**server.options, **options})


class TestAsAPlace:
    def test_lists_what_begins_so(self, bucket: ObjectStore) -> None:
        assert bucket.list() == [
            StoredFile("a/1.bin", len(DATA)),
            StoredFile("a/10.bin", 3),
            StoredFile("a/2.bin", 3),
            StoredFile("b.bin", 0),
            StoredFile("odd/ü x%+#?&=.bin", 3),
        ]
        assert [entry.name for entry in bucket.list("a/1")] == ["a/1.bin", "a/10.bin"]
        assert [entry.name for entry in bucket.list("a/")] == ["a/1.bin", "a/10.bin", "a/2.bin"]
        assert bucket.list("nothing") == []

    def test_lists_come_in_pages(self, server: ObjectServer, bucket: ObjectStore) -> None:
        server.befall(page=3)
        assert len(bucket.list()) == 5
        assert len(server.requested()) == 3  # of three each, with what stands for folders

    def test_reads(self, bucket: ObjectStore) -> None:
        names = [entry.name for entry in bucket.list()]
        for place in (bucket, pickle.loads(pickle.dumps(bucket))):
            assert place.read_many(names[::-1]) == [HELD[f"train/{name}"] for name in names[::-1]]
            assert place.read_many([]) == []
            assert place.read("a/1.bin") == DATA
            assert [place.size(name) for name in names] == [len(HELD[f"train/{name}"]) for name in names]

    @pytest.mark.parametrize(
        ("start", "end"), [(0, 1), (5, 300), (len(DATA) - 2, len(DATA)), (len(DATA) - 2, 99_999), (99_999, 100_000)]
    )
    def test_reads_parts(self, bucket: ObjectStore, start: int, end: int) -> None:
        assert bucket.read_range("a/1.bin", start, end) == DATA[start:end]

    def test_a_part_of_nothing_asks_nobody(self, server: ObjectServer, bucket: ObjectStore) -> None:
        assert bucket.read_range("a/1.bin", 7, 7) == b""
        assert server.requested() == []

    @pytest.mark.parametrize("name", ["", "/a/1.bin", "../other/c.bin", "a/../../other/c.bin"])
    def test_names_stay_inside(self, bucket: ObjectStore, name: str) -> None:
        with pytest.raises(OptionError, match="leads out of s3://pictures/train"):
            bucket.read(name)
        with pytest.raises(OptionError):
            bucket.read("a//1.bin")

    def test_by_its_url_and_the_environment(self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        server.befall()
        for name, option in (
            ("AWS_ACCESS_KEY_ID", "access_key_id"),
            ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
            ("AWS_REGION", "region"),
            ("AWS_ENDPOINT_URL", "endpoint"),
        ):
            monkeypatch.setenv(name, server.options[option])
        assert place_of("s3://pictures/other").read("c.bin") == b"elsewhere"

    def test_credentials_from_a_function(self, server: ObjectServer) -> None:
        server.befall()
        keys = {name: server.options[name] for name in ("access_key_id", "secret_access_key")}
        options = {name: server.options[name] for name in ("endpoint", "region")}
        provided = ObjectStore(
            "s3://pictures", credential_provider=lambda: {**keys, "token": None, "expires_at": None}, **options
        )
        assert provided.read("other/c.bin") == b"elsewhere"

    def test_what_tells_places_apart_is_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However it is given: a cache keeps the objects of different places apart by this."""
        for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AZURE_STORAGE_ACCOUNT_NAME"):
            monkeypatch.delenv(name, raising=False)
        here = "ObjectStore('s3://pictures', endpoint='http://here:1')"
        assert repr(ObjectStore("s3://pictures", endpoint_url="http://here:1")) == here
        assert repr(ObjectStore("s3://pictures", AWS_ENDPOINT="http://ann:hush@here:1")) == here
        assert repr(ObjectStore("s3://pictures", endpoint="")) == "ObjectStore('s3://pictures')"
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:1")
        assert repr(ObjectStore("s3://pictures")) == here
        assert repr(ObjectStore("s3://pictures", endpoint="http://there:1")) == here.replace("here", "there")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "ours")
        assert repr(ObjectStore("az://pictures")) == "ObjectStore('az://pictures', account_name='ours')"
        assert repr(ObjectStore("https://here/pictures")) == "ObjectStore('https://here/pictures')"

    def test_no_secret_is_shown(self, server: ObjectServer, bucket: ObjectStore) -> None:
        assert repr(bucket) == f"ObjectStore('s3://pictures/train', endpoint='{server.endpoint}', region='us-east-1')"
        assert server.secret not in f"{bucket} {bucket!r}"


class TestManyAtOnce:
    def test_all_are_in_flight(self, server: ObjectServer, bucket: ObjectStore) -> None:
        server.befall(*["meet"] * 40)  # none is answered before all of them have come
        assert bucket.read_many(["a/2.bin"] * 40) == [b"two"] * 40
        assert server.most_at_once() == 40

    def test_not_more_than_allowed(self, server: ObjectServer) -> None:
        with closing(opened(server, concurrency=3)) as few:
            server.befall("meet", "meet", "meet")
            assert few.read_many(["a/2.bin"] * 30) == [b"two"] * 30
        assert server.most_at_once() == 3

    def test_the_first_that_fails_is_told(self, bucket: ObjectStore) -> None:
        with pytest.raises(FileNotFoundError, match=r"train/none\.bin"):
            bucket.read_many(["a/1.bin", "none.bin", "neither.bin"])

    def test_ctrl_c_is_heard(self, server: ObjectServer, bucket: ObjectStore) -> None:
        server.befall("hang")

        def press() -> None:
            while not server.requested():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            bucket.read("a/1.bin")
        presser.join()
        server.befall()  # lets go of the request


class TestPassingFaults:
    @pytest.mark.parametrize("fault", [500, 503, 429, "reset", "truncate", "truncate without etag"])
    def test_tried_again(self, server: ObjectServer, bucket: ObjectStore, fault: Any) -> None:
        bucket.read("b.bin")
        server.befall(fault)
        assert bucket.read("a/1.bin") == DATA
        assert server.requested() == ["GET /pictures/train/a/1.bin"] * 2

    @pytest.mark.parametrize("fault", [500, "reset"])
    def test_of_every_request(self, server: ObjectServer, bucket: ObjectStore, fault: Any) -> None:
        for ask, answer in (
            (lambda: bucket.read_range("a/1.bin", 1, 3), DATA[1:3]),
            (lambda: bucket.size("a/1.bin"), len(DATA)),
            (lambda: bucket.list("b"), [StoredFile("b.bin", 0)]),
        ):
            server.befall(fault)
            assert ask() == answer
            first, second, *_ = server.requested()
            assert first == second

    def test_several_of_a_batch(self, server: ObjectServer, bucket: ObjectStore) -> None:
        server.befall(503, "truncate", "pass", "reset", 500, "pass", "truncate without etag", 429)
        assert bucket.read_many(["a/1.bin"] * 8) == [DATA] * 8

    def test_a_silent_server_is_asked_again(self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "WHOLE", 10_000)  # large objects may take long; silence may not
        hasty = opened(server, timeout=0.5)
        server.befall("hang")
        assert hasty.read("a/1.bin") == DATA
        assert len(server.requested()) >= 2


class TestLastingFaults:
    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            (500, r"kept answering 500 .*retry_for="),
            (503, r"kept answering 503 \(SlowDown: Please reduce your request rate\.\).*concurrency="),
            (429, r"kept answering 429"),
            ("reset", r"connection broke"),
            ("truncate", r"ended in the middle of the object"),
            ("truncate without etag", r"ended in the middle of the object"),
            ("truncate without length", r"Content-Length"),
            ("hang", r"silent for longer than timeout="),
        ],
    )
    def test_told(self, server: ObjectServer, fault: Any, says: str) -> None:
        impatient = opened(server, retry_for=0.05, timeout=300 if fault != "hang" else 0.2)
        server.befall(*[fault] * 100)
        with pytest.raises(SourceError, match=rf"^s3://pictures/train/a/1\.bin: .*{says}"):
            impatient.read("a/1.bin")
        server.befall()

    def test_nothing_is_tried_again_if_so_wished(self, server: ObjectServer) -> None:
        once = opened(server, retry_for=0)
        for fault in (500, "truncate without etag", "reset"):
            server.befall(fault)
            with pytest.raises(SourceError):
                once.read("a/1.bin")
            assert len(server.requested()) == 1

    def test_missing(self, bucket: ObjectStore) -> None:
        for ask in (bucket.read, bucket.size, lambda name: bucket.read_range(name, 0, 1)):
            with pytest.raises(FileNotFoundError, match=r"no such object.*s3://pictures/train/none\.bin"):
                ask("none.bin")

    def test_an_error_keeps_nothing_alive(self, bucket: ObjectStore) -> None:
        class Held:
            """What the caller had."""

        def fails(held: Held) -> None:
            bucket.read("nowhere")

        held, gone = Held(), threading.Event()
        weakref.finalize(held, gone.set)
        gc.disable()
        try:
            with suppress(FileNotFoundError):
                fails(held)
            del held
            assert gone.wait(300)  # the thread that raised it may be about to forget it
        finally:
            gc.enable()

    def test_a_missing_bucket(self, server: ObjectServer) -> None:
        nowhere = opened(server, "s3://nowhere")
        with pytest.raises(SourceError, match=r"^s3://nowhere: .*NoSuchBucket"):
            nowhere.list()
        with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
            nowhere.read("x")

    @pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
    def test_wrong_credentials(self, server: ObjectServer, wrong: str) -> None:
        stranger = opened(server, **{wrong: "AKIAWRONGWRONGWRONG"})
        for ask in (lambda: stranger.read("a/1.bin"), stranger.list, lambda: stranger.size("a/1.bin")):
            with pytest.raises(SourceError, match=r"^s3://pictures/train.*refused.*secret_access_key=") as caught:
                ask()
            told = "".join(traceback.format_exception(caught.value))
            assert server.secret not in told
            assert "AKIAWRONG" not in told
        assert len(server.requested()) == 3  # what is wrong is not tried again

    def test_no_credentials(self, server: ObjectServer) -> None:
        options = {"region": "x", "endpoint": server.endpoint, "metadata_endpoint": server.files, "retry_for": 0}
        with pytest.raises(SourceError, match=r"no credentials; give access_key_id=.*skip_signature=True"):
            ObjectStore("s3://pictures", **options).read("x")

    def test_nobody_there(self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "FIRST", 0)  # not for a minute, as it would be in the middle of a training
        closed = opened(server, endpoint="http://127.0.0.1:9")
        with pytest.raises(SourceError, match=r"^s3://pictures/train/x: the server cannot be reached .*endpoint="):
            closed.read("x")
        unknown = ObjectStore("http://no-such-host.invalid/data")
        with pytest.raises(SourceError, match=r"^http://no-such-host\.invalid/data/x: .*name is not known"):
            unknown.read("x")

    @pytest.mark.parametrize("answer", [503, 429])
    def test_a_busy_server_is_waited_for_from_the_start(
        self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, answer: int
    ) -> None:
        monkeypatch.setattr(store, "FIRST", 0)
        bucket = opened(server)
        server.befall(answer, answer, answer)
        assert bucket.read("a/1.bin") == DATA

    def test_patience_comes_with_the_first_success(self, server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "FIRST", 0)
        bucket = opened(server)
        bucket.read("b.bin")
        server.befall("reset", "reset")
        assert bucket.read("a/1.bin") == DATA


class TestOtherServers:
    def test_a_web_server(self, server: ObjectServer) -> None:
        server.befall("reset", "truncate without etag")
        web = pickle.loads(pickle.dumps(place_of(f"{server.files}/data/")))
        assert web.read_many(["3", "300"]) == [b"\0\1\2", bytes(index % 251 for index in range(300))]
        assert web.read_range("300", 250, 253) == bytes([250, 0, 1])
        assert web.size("300") == 300
        with pytest.raises(FileNotFoundError, match=f"{server.files}/data/none"):
            web.read("none")
        with pytest.raises(OptionError, match=r"does not list.*names"):
            web.list()

    def test_azure_and_google_are_asked_in_their_own_ways(self, server: ObjectServer) -> None:
        server.befall()
        options: dict[str, Any] = {"skip_signature": True, "retry_for": 0}
        azure = ObjectStore("az://container/data", account_name="me", endpoint=server.files, **options)
        google = ObjectStore("gs://bucket/data", base_url=server.files, **options)
        assert azure.read("5") == google.read("5") == bytes(range(5))
        assert server.requested() == ["GET /container/data/5", "GET /bucket/data%2F5"]


class TestAfterAFork:
    def test_a_forked_process_reads(self, server: ObjectServer, bucket: ObjectStore) -> None:
        bucket.read("a/2.bin")

        def child(generation: int) -> None:
            assert bucket.read_many(["a/1.bin", "a/2.bin"]) == [DATA, b"two"]
            if generation:
                in_child(child, generation - 1)
                assert bucket.read("a/1.bin") == DATA

        in_child(child, 2)
        assert bucket.read("a/1.bin") == DATA  # what the child had of it was left alone

    def test_what_was_open_before_is_not_touched(self, bucket: ObjectStore) -> None:
        bucket.read("a/2.bin")
        pool = weakref.ref(driver._here.opened[bucket].pool)

        def child() -> None:
            gc.collect()
            assert pool() is not None
            bucket.close()  # there is nothing of this process's own
            assert pool() is not None

        in_child(child)

    def test_without_a_second_copy_it_is_an_error_not_a_hang(self, bucket: ObjectStore) -> None:
        def child() -> None:
            del os.memfd_create
            with pytest.raises(SourceError, match=r"before this process was forked.*multiprocessing_context='spawn'"):
                bucket.read("a/1.bin")

        in_child(child)

    def test_the_copy_is_ours_alone(self, bucket: ObjectStore) -> None:
        def child() -> None:
            before = {name: module for name, module in sys.modules.items() if "obstore" in name}
            bucket.read("a/1.bin")
            assert {name: module for name, module in sys.modules.items() if "obstore" in name} == before

        in_child(child)


def in_child(do: Any, *arguments: Any) -> None:
    process = multiprocessing.get_context("fork").Process(target=do, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    process.close()


class TestOptions:
    @pytest.mark.parametrize(
        ("url", "says"),
        [
            ("pictures/train", "must begin with one of s3://"),
            ("ftp://host/x", "must begin with one of s3://"),
            ("s3://", "must name a bucket"),
            ("https://me:hush@host/x", "user or a password"),
            ("https://host/x?sig=hush", "query or a fragment after https://host/x;"),
            (7, "url must be a string"),
        ],
    )
    def test_urls(self, url: Any, says: str) -> None:
        with pytest.raises(OptionError, match=says) as caught:
            ObjectStore(url)
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"concurrency": 0}, "concurrency must be at least 1"),
            ({"timeout": 0}, "timeout must be a positive"),
            ({"timeout": "1"}, "timeout must be a number"),
            ({"retry_for": -1}, "retry_for must be 0"),
            ({"client": "x"}, "client must be a dict"),
            ({"client": {"no_such": 1}}, "no_such"),
            ({"no_such": 1}, "s3://b: .*no_such"),
        ],
    )
    def test_others(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(OptionError, match=says):
            ObjectStore("s3://b", **options)
        with pytest.raises(FeedlineError):
            ObjectStore("https://host", **{"region": 1, **options})

    def test_without_obstore(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "obstore", None)
        monkeypatch.setattr(driver, "_here", driver._Here(forked=False))
        with pytest.raises(MissingPackage, match=r"feedline\[object-store\]"):
            ObjectStore("s3://b")

    def test_obstore_is_imported_when_a_place_is_made(self) -> None:
        code = (
            "import sys, feedline.sources.object_dataset, feedline.sources.cached; assert 'obstore' not in sys.modules"
        )
        host("feedline").run(["-c", code], check=True)
