"""Streams of Hugging Face's datasets: whatever they are made of, exactly the elements that iterating them gives."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
from hf_without_torch import datasets
from kinds import THREADS, thorough
from made_media import recorded, tones
from shared_streams import as_rank

from feedline import DataLoader, MixtureStream, OptionError, StateError
from feedline.sources import Decoders, SoundWindow, from_hf

COUNT = 23


def stream(first: int = 0, count: int = COUNT, shards: int = 4, name: str = "x") -> Any:
    return datasets.Dataset.from_dict({name: range(first, first + count)}).to_iterable_dataset(num_shards=shards)


def generated(firsts: list[int]) -> Any:
    for first in firsts:
        yield from ({"x": number} for number in range(first, first + 3))


def doubled(row: Any) -> Any:
    return {"x": 2 * row["x"]}


def is_odd(row: Any) -> bool:
    return bool(row["x"] % 2)


def summed(batch: Any) -> Any:
    return {"x": [sum(batch["x"])]}


def each_doubled(batch: Any) -> Any:
    return {"x": [2 * x for x in batch["x"]]}


MANY: dict[str, Callable[[], Any]] = {
    "generator": lambda: datasets.IterableDataset.from_generator(generated, gen_kwargs={"firsts": [0, 10, 20]}),
    "map, filter": lambda: stream().map(doubled).filter(lambda row: row["x"] % 3),
    "columns": lambda: stream().map(lambda row: {"y": row["x"]}).rename_column("x", "z").remove_columns("y"),
    "cast": lambda: stream().cast_column("x", datasets.Value("float32")).select_columns(["x"]),
    "concatenate": lambda: datasets.concatenate_datasets([stream(), stream(100, 5, shards=2).map(doubled)]),
    "tables": lambda: stream().with_format("arrow").map(lambda table: table).with_format(None),
    "shuffle": lambda: stream().shuffle(seed=3, buffer_size=7),
}
WHOLE: dict[str, tuple[str, Callable[[], Any]]] = {
    "take": (r"take\(n\)", lambda: stream().take(7)),
    "skip": (r"skip\(n\)", lambda: stream().skip(7)),
    "take, within": (r"take\(n\)", lambda: stream().take(7).filter(is_odd)),
    "skip, shuffled": (r"skip\(n\)", lambda: stream().skip(7).shuffle(seed=1, buffer_size=5)),
    "take, concatenated": (r"take\(n\)", lambda: datasets.concatenate_datasets([stream(50).take(7), stream(80, 4)])),
    "batched": ("batched=True", lambda: stream().map(summed, batched=True, batch_size=4)),
    "batched filter": (
        "batched=True",
        lambda: stream().filter(lambda batch: [x == max(batch["x"]) for x in batch["x"]], batched=True, batch_size=4),
    ),
    "dropped": ("drop_last", lambda: stream().map(each_doubled, batched=True, batch_size=4, drop_last_batch=True)),
    "batch by column": ("with_indices", lambda: stream().map(lambda row: {"k": row["x"] // 4}).batch(by_column="k")),
    "batch": (r"batch\(…\)", lambda: stream().batch(4)),
    "indices": ("with_indices", lambda: stream().map(lambda row, at: {"at": at}, with_indices=True)),
    "column": ("add_column", lambda: stream().add_column("y", list(range(COUNT)))),
    "interleave": ("interleave", lambda: datasets.interleave_datasets([stream(), stream(100, 9, shards=3)])),
    "interleave, drawn": (
        "interleave",
        lambda: datasets.interleave_datasets([stream(), stream(100, 9)], probabilities=[0.7, 0.3], seed=1),
    ),
    "interleave, all": (
        "interleave",
        lambda: datasets.interleave_datasets([stream(), stream(100, 9)], stopping_strategy="all_exhausted"),
    ),
    "repeat": (r"repeat\(n\)", lambda: stream(count=5).repeat(3)),
}
SIDE = {"axis=1": lambda: datasets.concatenate_datasets([stream(), stream(100, name="y")], axis=1)}
MADE = MANY | {name: make for name, (_, make) in WHOLE.items()} | SIDE


def keys(elements: Any) -> list[str]:
    return sorted(map(repr, elements))


@pytest.mark.parametrize("name", MADE)
def test_elements_are_those_of_the_dataset_for_any_readers(name: str) -> None:
    expected = list(MADE[name]())
    got = list(from_hf(MADE[name]()))
    assert got == expected or ("shuffle" in name and keys(got) == keys(expected))
    parts = [from_hf(MADE[name]()).shard(index, 3) for index in range(3)]
    assert keys(element for part in parts for element in part) == keys(expected)
    whole = from_hf(MADE[name]())
    assert keys(by_turns([whole.shard(0, 2), whole.shard(1, 2)])) == keys(expected)


def by_turns(parts: list[Any]) -> list[Any]:
    """All elements, read as threads would: none may move another's place."""
    turns = zip_longest(*parts)
    return [element for turn in turns for element in turn if element is not None]


@pytest.mark.parametrize("name", MADE)
def test_continues_exactly_from_any_element(name: str) -> None:
    expected = list(part := from_hf(MADE[name]()).shard(0, 2))
    reading, states = iter(part), []
    for _ in expected:
        states.append(json.dumps(reading.state_dict()))
        next(reading)
    for place, state in enumerate(states):
        again = iter(from_hf(MADE[name]()).shard(0, 2))
        again.load_state_dict(json.loads(state))
        assert list(again) == expected[place:]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[thorough] * (name != "skip")) for name in WHOLE])
def test_what_cannot_be_divided_is_told_once(name: str) -> None:
    words, make = WHOLE[name]
    expected = keys(make())
    with DataLoader(from_hf(make()), batch_size=2, collate_fn=list, **THREADS) as loader:
        with pytest.warns(UserWarning, match=f"{words}.* the 2 readers .* reads the whole stream") as told:
            epochs = [[element for batch in loader for element in batch] for _ in range(2)]
    assert [keys(epoch) for epoch in epochs] == [expected, expected]
    assert len([each for each in told if "readers" in str(each.message)]) == 1


def test_what_is_divided_or_has_one_reader_is_not_told_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for made, options in ((stream().take(7), {}), (stream().filter(is_odd), THREADS), (stream(shards=1), THREADS)):
            with DataLoader(from_hf(made), batch_size=2, **options) as loader:
                list(loader)


def test_ranks_and_mixtures_are_told_as_well() -> None:
    with as_rank(1, 2), DataLoader(from_hf(stream().take(7)), batch_size=2) as loader:
        with pytest.warns(UserWarning, match="each of the 2 readers"):
            assert sum(len(batch["x"]) for batch in loader) == 3
    mixture = MixtureStream({"a": from_hf(stream().take(8)), "b": from_hf(stream())}, {"a": 1, "b": 1})
    with DataLoader(mixture, batch_size=2, **THREADS) as loader:
        with pytest.warns(UserWarning, match=r"take\(n\).* each of the 2 readers"):
            list(loader)


def test_rows_that_validation_reads_are_not_trained_on() -> None:
    held = [row["x"] for row in stream().take(10)]
    assert [row["x"] for row in from_hf(stream().skip(10))] == list(range(len(held), COUNT))


def test_functions_that_work_row_by_row_are_no_reason() -> None:
    made = stream().map(each_doubled, batched=True, batch_size=4)
    by_shards = from_hf(made, row_by_row=True)
    assert [row["x"] for row in by_shards] == [row["x"] for row in made]
    assert len(by_shards.units(0)) == 4  # type: ignore[union-attr]
    assert len(from_hf(made.take(3), row_by_row=True).units(0)) == 1  # type: ignore[union-attr]
    assert len(from_hf(made.batch(3), row_by_row=True).units(0)) == 1  # type: ignore[union-attr]


def test_a_stage_that_is_not_known_is_read_by_all_and_again() -> None:
    class Later(type(stream().filter(is_odd)._ex_iterable)):  # type: ignore[misc]
        """Of a version that is not out yet."""

    made = stream().filter(is_odd)
    made._ex_iterable.__class__ = Later
    got = from_hf(made)
    assert len(got.units(0)) == 1  # type: ignore[union-attr]
    reading = iter(got)
    first = next(reading)
    assert reading.state_dict()["place"] == {"row": 1, "state": None}  # type: ignore[attr-defined]
    assert [first, *reading] == list(made)


def test_another_epoch_has_another_order() -> None:
    got = from_hf(stream().shuffle(seed=3, buffer_size=3))
    orders = []
    for epoch in (0, 1, 1, 2):
        got.set_epoch(epoch)  # type: ignore[union-attr]
        orders.append([row["x"] for row in got])
    assert orders[1] == orders[2]
    assert orders[0] != orders[1] != orders[3]
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(COUNT))}
    firsts = [[number // 6 for number in order[::6]] for order in orders]
    assert len({str(order) for order in firsts}) > 1  # shards, too


def test_a_shuffle_without_a_seed_is_not_continued_with_another() -> None:
    reading = iter(from_hf(stream().shuffle(buffer_size=3)))
    next(reading)
    with pytest.raises(StateError, match="other files"):
        iter(from_hf(stream().shuffle(buffer_size=3))).load_state_dict(reading.state_dict())  # type: ignore[attr-defined]


def test_recordings_in_a_stream_are_decoded_by_our_decoders() -> None:
    """As in a table, but in the stream's map: `datasets` itself would need torchcodec."""
    sound = {"bytes": recorded(tones(0.5, 8_000, seed=9), 8_000, "FLAC"), "path": None}
    table = datasets.Dataset.from_dict({"audio": [sound] * 4}).cast_column("audio", datasets.Audio())
    made = table.to_iterable_dataset(num_shards=2).cast_column("audio", datasets.Audio(decode=False))
    made = made.map(lambda row: {"audio": SoundWindow(rate=16_000)(row["audio"]["bytes"])})
    with DataLoader(from_hf(made), batch_size=2, **THREADS) as loader:
        assert [batch["audio"].samples.shape for batch in loader] == [(2, 8_000, 2)] * 2


def test_what_does_not_fit_a_stream_is_named() -> None:
    begun = stream()
    begun.load_state_dict(begun.state_dict())
    for made, options, match in (
        (begun, {}, "begin in the middle"),
        (stream(), {"decoders": Decoders()}, "decoders is for a table"),
        (datasets.Dataset.from_dict({"x": [1]}), {"row_by_row": True}, "row_by_row is for a streamed dataset"),
    ):
        with pytest.raises(OptionError, match=match):
            from_hf(made, **options)  # type: ignore[arg-type]
