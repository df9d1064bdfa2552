"""A stream under several ranks: who shares it out is seen, said where nobody does, and refused where two would."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from kinds import INLINE, QUICK, THREADS, ours
from shared_streams import Stream, as_rank

from feedline import DataLoader, OptionError
from feedline.sources import GeneratorStream, SocketStream


class Dividing(Stream):
    """Shares itself out over ranks."""

    def __iter__(self) -> Iterator[Any]:
        rank, ranks = int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", 1))
        return iter(range(rank, self.length, ranks))


class Logging(Stream):
    def __iter__(self) -> Iterator[Any]:
        if os.getenv("RANK") == "0":
            pass
        return iter(range(self.length))


class SplitByNode(Stream):
    """As Hugging Face's split_dataset_by_node leaves it."""

    _distributed = object()


def said(dataset: Any, kind: dict[str, Any], ranks: int = 2, **options: Any) -> list[str]:
    with as_rank(0, ranks), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="the IterableDataset neither asks")
        with DataLoader(dataset, batch_size=2, **kind, **options) as loader:
            for _ in range(2):  # epochs
                list(loader)
    return [str(each.message) for each in ours(told)]


@pytest.mark.parametrize("kind", QUICK)
def test_a_stream_that_every_rank_reads_whole_is_warned_of_once(kind: dict[str, Any]) -> None:
    (message,) = said(Stream(20), kind)
    assert message.startswith("there are 2 ranks, and each of them reads every element")
    assert "ranks='shard'" in message
    assert "ranks='all'" in message


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("dataset", [Dividing(20), Logging(20), SplitByNode(20)], ids=lambda each: type(each).__name__)
def test_one_that_asks_for_its_rank_or_was_told_it_is_not(dataset: Any, kind: dict[str, Any]) -> None:
    assert said(dataset, kind) == []


def test_nobody_is_warned_who_has_said_what_is_meant_or_is_alone() -> None:
    assert said(Stream(20), INLINE, ranks=1) == []
    with as_rank(0, 2), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(DataLoader(Stream(20), batch_size=2, ranks="all"))) == 10
        assert len(list(DataLoader(np.arange(20), batch_size=2))) == 10


@pytest.mark.parametrize("variables", [{"RANK": "3", "WORLD_SIZE": "2"}, {"RANK": "", "WORLD_SIZE": "two"}])
def test_variables_that_mean_something_else_do_not_matter_to_who_has_not_asked(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert len(list(DataLoader(Stream(20), batch_size=2))) == 10
    with pytest.raises(ValueError, match=r"num_replicas|invalid literal"):
        iter(DataLoader(Stream(20), batch_size=2, ranks="shard"))


def test_a_warning_of_its_own_is_not_hidden_with_the_one_about_workers() -> None:
    with as_rank(0, 2), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        list(DataLoader(Stream(20), batch_size=2, **THREADS))
    assert sorted(str(each.message)[:9] for each in told) == ["the Itera", "there are"]


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("dataset", [Dividing(20), SplitByNode(20)], ids=lambda each: type(each).__name__)
def test_a_stream_is_not_shared_out_twice(dataset: Any, kind: dict[str, Any]) -> None:
    persistent = {"persistent_workers": True} if kind else {}
    with as_rank(0, 2), DataLoader(dataset, batch_size=2, ranks="shard", **kind, **persistent) as loader:
        for _ in range(2):
            with pytest.raises(OptionError, match=r"does so itself.*elements are lost"):
                next(iter(loader))


def test_one_that_asks_for_its_rank_alone_is_shared_out_with_a_warning() -> None:
    with as_rank(0, 2), pytest.warns(UserWarning, match="asks for its rank, too"):
        assert len(list(DataLoader(Logging(20), batch_size=2, ranks="shard"))) == 5


class Copying(Stream):
    """Hands the launcher's variables on, as one does to a child process."""

    def __iter__(self) -> Iterator[Any]:
        assert {**os.environ, "LANG": "C"}["RANK"] == os.environ.copy()["RANK"] == dict(os.environ.items())["RANK"]
        if "RANK" not in list(os.environ):
            return iter(())
        return iter(range(self.length))


def test_to_copy_all_variables_is_no_question_but_one_asked_afterwards_is() -> None:
    class Asking(Copying):
        def __iter__(self) -> Iterator[Any]:
            elements = super().__iter__()
            assert os.environ["WORLD_SIZE"] == "2"
            return elements

    assert len(said(Copying(20), INLINE)) == 1
    assert said(Asking(20), INLINE) == []


def test_what_a_library_looks_up_when_it_is_imported_is_no_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library_that_looks.py").write_text("import os\nRANKS = int(os.environ.get('WORLD_SIZE', 1))\n")
    monkeypatch.syspath_prepend(tmp_path)

    class Importing(Stream):
        def __iter__(self) -> Iterator[Any]:
            import library_that_looks  # type: ignore[import-not-found]

            return iter(range(library_that_looks.RANKS * self.length))

    with as_rank(0, 2):
        assert len(list(DataLoader(Importing(10), batch_size=2, ranks="shard"))) == 5
    monkeypatch.delitem(sys.modules, "library_that_looks")
    assert len(said(Importing(10), INLINE)) == 1


def test_what_a_library_asks_itself_while_it_computes_is_no_question() -> None:
    library: Any = ModuleType("jax.computing")
    exec("def process_count():\n    return 2\ndef compute():\n    return process_count()", library.__dict__)

    class Computing(Stream):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(10 * library.compute()))

    class Asking(Stream):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(10 * library.process_count()))

    assert len(said(Computing(20), INLINE)) == 1
    assert said(Asking(20), INLINE) == []
    with as_rank(0, 2):
        assert len(list(DataLoader(Computing(20), batch_size=2, ranks="shard"))) == 5
        with pytest.raises(OptionError, match="it asks for the number of ranks"):
            list(DataLoader(Asking(20), batch_size=2, ranks="shard"))


def test_worker_init_fn_may_ask_for_the_stream() -> None:
    def give(worker: int) -> None:
        os.environ.get("WORLD_SIZE")

    assert said(Stream(20), THREADS, worker_init_fn=give) == []


def test_a_source_of_ours_that_deals_itself_out_is_not_shared_out_twice_and_one_that_cannot_is_warned_of() -> None:
    with as_rank(0, 2), pytest.raises(OptionError, match=r"does so itself.*a SocketStream finds out its rank"):
        next(iter(DataLoader(SocketStream(["127.0.0.1:1", "127.0.0.1:2"]), ranks="shard")))
    assert len(said(GeneratorStream(lambda: iter(range(4))), INLINE)) == 1


def test_a_profiler_of_the_users_stays() -> None:
    seen: list[Any] = []

    def profile(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    sys.setprofile(profile)
    try:
        said(Stream(4), INLINE)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert seen
    assert said(Stream(4), INLINE)
    assert sys.getprofile() is None

    class Profiling(Stream):
        def __iter__(self) -> Iterator[Any]:
            sys.setprofile(profile)
            return iter(range(4))

    try:
        said(Profiling(4), INLINE)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
