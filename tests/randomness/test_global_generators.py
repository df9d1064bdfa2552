"""The global generators around a task: draws follow from its number, and the user's stream goes on untouched."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import THREADS
from made_datasets import Numbers

from feedline import DataLoader, rng
from feedline.randomness import global_generators, task_generators
from feedline.randomness.global_generators import (
    GLOBAL_SOURCES,
    NumPyGenerator,
    OwnState,
    PythonGenerator,
)
from feedline.randomness.redirection import (
    BySample,
    SampleGenerators,
    ThreadGenerators,
    VisitingGenerators,
    being_read,
    switch,
)
from feedline.randomness.task_generators import BorrowedGenerators, OwnedGenerators, TaskGenerators
from feedline.randomness.twister import Words, seed_python

NUMBERS = st.integers(0, 2**64 - 1)

DRAWS: dict[str, Callable[[], Any]] = {
    "random.random": lambda: random.random(),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.randrange": lambda: random.randrange(10**9),
    "random.shuffle": lambda: shuffled(random.shuffle),
    "random.sample": lambda: random.sample(range(1000), 5),
    "random.choices": lambda: random.choices(range(1000), k=5),
    "random.getrandbits": lambda: random.getrandbits(64),
    "random.randbytes": lambda: random.randbytes(8),
    "random.seed": lambda: (random.seed(5), random.random())[1],
    "random.setstate": lambda: random.setstate(random.Random(3).getstate()),
    "np.random.rand": lambda: np.random.rand(3).tolist(),
    "np.random.randn": lambda: np.random.randn(),
    "np.random.normal": lambda: np.random.normal(size=3).tolist(),
    "np.random.random": lambda: np.random.random(),
    "np.random.sample": lambda: np.random.sample(2).tolist(),
    "np.random.ranf": lambda: np.random.ranf(),
    "np.random.randint": lambda: np.random.randint(10**9),
    "np.random.choice": lambda: np.random.choice(1000, 5).tolist(),
    "np.random.shuffle": lambda: shuffled(np.random.shuffle),
    "np.random.permutation": lambda: np.random.permutation(50).tolist(),
    "np.random.bytes": lambda: np.random.bytes(8),
    "np.random.seed": lambda: (np.random.seed(5), np.random.rand())[1],
    "np.random.set_state": lambda: np.random.set_state(np.random.RandomState(3).get_state()),
}


def shuffled(shuffle: Callable[[Any], Any]) -> list[int]:
    items = list(range(50))
    shuffle(items)
    return items


def some_draws() -> list[Any]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), np.random.randint(10**9)]


def state() -> tuple[Any, ...]:
    """Both modules' generators, to the last bit."""
    name, words, *rest = np.random.get_state()
    return random.getstate(), name, words.tolist(), *rest  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def half_used_generators() -> Iterator[None]:
    """Somebody's streams, each with one of a pair of normal numbers still to come; put back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(1234)
    np.random.seed(1234)
    random.gauss(0, 1)
    np.random.randn()
    assert random.getstate()[2] is not None
    assert np.random.get_state()[3] == 1
    yield
    random.setstate(python)
    np.random.set_state(numpy)


def drawn_under(generators: TaskGenerators, number: int, draw: Callable[[], Any] = some_draws) -> Any:
    generators.enter(number)
    try:
        return draw()
    finally:
        generators.leave()


def words_of(number: int) -> Words:
    words = Words()
    words.seed(number)
    return words


def python_of(number: int) -> random.Random:
    generator = random.Random()
    seed_python(generator, None, words_of(number))
    return generator


def in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def opened(generators: TaskGenerators) -> Iterator[TaskGenerators]:
    generators.open()
    try:
        yield generators
    finally:
        generators.close()


def functions() -> dict[tuple[str, str], Any]:
    modules: tuple[ModuleType, ...] = (random, np.random)
    return {(module.__name__, name): getattr(module, name) for module in modules for name in dir(module)}


def isolated_draws(number: int, draw: Callable[[], Any] = some_draws) -> Any:
    with opened(ThreadGenerators()) as generators:
        return drawn_under(generators, number, draw)


# --- the same number, the same draws, whoever draws ---


@given(NUMBERS)
def test_all_three_ways_draw_the_same_for_the_same_number(number: int) -> None:
    drawn = drawn_under(BorrowedGenerators(), number)
    assert drawn_under(BorrowedGenerators(), number) == drawn
    assert drawn_under(OwnedGenerators(), number) == drawn
    assert in_thread(lambda: isolated_draws(number)) == drawn


@pytest.mark.parametrize("make", [OwnedGenerators, BorrowedGenerators, ThreadGenerators])
def test_what_was_drawn_before_does_not_matter(make: Callable[[], TaskGenerators]) -> None:
    def work() -> list[Any]:
        with opened(make()) as generators:
            first = drawn_under(generators, 5)
            drawn_under(generators, 6, lambda: (random.gauss(0, 1), np.random.randn()))
            assert drawn_under(generators, 5) == first
            return first

    assert in_thread(work) == work()


@pytest.mark.parametrize("make", [OwnedGenerators, BorrowedGenerators, ThreadGenerators])
def test_numbers_that_differ_in_any_of_the_lower_32_bits_draw_differently(make: Callable[[], TaskGenerators]) -> None:
    numbers = [0, *(1 << bit for bit in range(64))]
    with opened(make()) as generators:
        pairs = [drawn_under(generators, number, lambda: (random.random(), np.random.rand())) for number in numbers]
    # Both get the lower half, which rng.task_seed makes differ by itself.
    lower = {number & 0xFFFFFFFF for number in numbers}
    assert len({python for python, _ in pairs}) == len({numpy for _, numpy in pairs}) == len(lower)


# --- BorrowedGenerators ---


def test_borrowed_generators_are_put_back_exactly() -> None:
    before = state()
    for name, draw in DRAWS.items():
        drawn_under(BorrowedGenerators(), 5, draw)
        assert state() == before, name


def test_borrowed_generators_are_put_back_after_an_error_and_after_several_entries() -> None:
    before = state()
    generators = BorrowedGenerators()
    with pytest.raises(ZeroDivisionError):
        drawn_under(generators, 5, lambda: np.random.rand() / 0 if random.random() > 2 else 1 / 0)
    assert state() == before
    for number in range(3):  # a stream's batches passed over: seeded again without having left
        generators.enter(number)
    generators.leave()
    assert state() == before
    generators.leave()
    generators.close()
    assert state() == before


@pytest.mark.parametrize("late", [False, True])
def test_generators_are_put_back_after_ctrl_c_between_them(late: bool) -> None:
    class Interrupted:
        def borrow(self, value: int, words: Words, saved: list[Any]) -> None:
            if late:
                saved.append("mine")
            raise KeyboardInterrupt

        def restore(self, saved: Any) -> None:
            restored.append(saved)

    restored: list[Any] = []
    some_draws()
    before, generators = state(), BorrowedGenerators([*GLOBAL_SOURCES, Interrupted()])  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        generators.enter(5)
    generators.leave()
    assert state() == before
    assert restored == ["mine"] * late


@pytest.mark.parametrize("source", [PythonGenerator, NumPyGenerator, None])
def test_generators_are_put_back_though_ctrl_c_comes_while_they_are(
    source: type[Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Drawing:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return some_draws() and index

    def restore(*state: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    before, batches = state(), iter(DataLoader(Drawing()))
    next(batches)
    if source is None:
        monkeypatch.setattr(task_generators, "restore_all", restore)
    else:
        monkeypatch.setattr(global_generators, "_usual", (None, None))  # the long way
        monkeypatch.setattr(source, "restore", restore)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert state() == before


class InterruptedAt:
    """Ctrl-C at the n-th bytecode or line of randomness/ that this thread runs."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "feedline/randomness" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event in ("opcode", "line"):  # Python 3.12.1 has no opcodes of a frame that has begun
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    @contextmanager
    def during(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


def test_ctrl_c_at_any_moment_of_borrowing_and_giving_back_changes_nothing() -> None:
    generators, before = BorrowedGenerators(), state()
    drawn_under(generators, 5)
    at, was_interrupted = 0, True
    while was_interrupted:
        at, was_interrupted = at + 1, False
        interrupted = InterruptedAt(at)
        try:
            with interrupted.during():
                generators.enter(6)
                some_draws()
                generators.leave()
        except KeyboardInterrupt:
            was_interrupted = True
        generators.leave()
        assert state() == before, f"interrupted at bytecode {at}"
    assert at > 20


class Other(random.Random):
    """A generator whose states are of another form: pairs."""

    def getstate(self) -> Any:
        return "other", super().getstate()

    def setstate(self, state: Any) -> None:
        name, inner = state
        assert name == "other"
        super().setstate(inner)


@pytest.mark.parametrize("make", [BorrowedGenerators, OwnedGenerators])
def test_another_generator_behind_the_modules_functions_is_seeded_and_put_back(
    make: Callable[[], TaskGenerators], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Other(3)
    for name in ("random", "gauss", "seed", "getstate", "setstate", "getrandbits"):
        monkeypatch.setattr(random, name, getattr(other, name))
    drawn = drawn_under(make(), 5, random.random)
    was = other.getstate()
    assert drawn_under(make(), 5, random.random) == drawn == Other(5).random()
    if make is BorrowedGenerators:
        assert other.getstate() == was == Other(3).getstate()


@given(NUMBERS)
def test_both_ways_of_borrowing_draw_the_same(number: int) -> None:
    quick = drawn_under(BorrowedGenerators(), number)
    assert drawn_under(BorrowedGenerators(list(GLOBAL_SOURCES)), number) == quick


def test_one_borrowing_inside_another_goes_on_afterwards() -> None:
    """A dataset that loads from another loader."""
    before = state()
    outer = BorrowedGenerators()
    outer.enter(5)
    alone = some_draws() + some_draws()
    outer.enter(5)
    again = some_draws()
    drawn_under(BorrowedGenerators(), 6)
    assert again + some_draws() == alone
    outer.leave()
    assert state() == before


def test_a_users_stream_goes_on_as_if_nothing_had_been_loaded() -> None:
    class Drawing:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> float:
            return random.gauss(0, 1) + float(np.random.randn())

    kept = random.getstate(), np.random.get_state()
    alone = [some_draws() for _ in range(3)]
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    first = []
    loader = DataLoader(Drawing(), batch_size=2, seed=3)
    for batch in loader:
        first.append((batch.tolist(), some_draws()))
    assert [drawn for _, drawn in first] == alone
    loader.set_epoch(0)
    assert [batch.tolist() for batch in loader] == [batch for batch, _ in first]


# --- OwnedGenerators ---


def test_owned_generators_are_left_seeded() -> None:
    generators = OwnedGenerators()
    generators.open()
    drawn = drawn_under(generators, 5)
    generators.enter(5)
    generators.leave()
    generators.close()
    assert some_draws() == drawn


# --- ThreadGenerators ---


def test_a_worker_thread_draws_its_own_and_leaves_the_shared_generators_alone() -> None:
    before = state()
    for name, draw in DRAWS.items():
        drawn = in_thread(lambda draw=draw: isolated_draws(5, draw))
        assert state() == before, name
        assert drawn == drawn_under(BorrowedGenerators(), 5, draw), name


def test_every_function_of_the_shared_generators_is_covered() -> None:
    """Whatever a release of Python or NumPy adds."""
    shared = {
        name
        for name, function in functions().items()
        if getattr(function, "__self__", None) in (random._inst, np.random.mtrand._rand)  # type: ignore[attr-defined]
    }
    assert {
        ("random", "random"),
        ("random", "betavariate"),
        ("numpy.random", "rand"),
        ("numpy.random", "zipf"),
    } <= shared
    before = functions()
    with opened(ThreadGenerators()):
        held = functions()
    assert {name for name in before if held[name] is not before[name]} == shared | {
        ("numpy.random", name) for name in ("seed", "ranf", "sample")
    }


def test_threads_in_lock_step_draw_the_same_and_the_main_thread_goes_on() -> None:
    steps, together = 20, threading.Barrier(3)
    drawn: dict[str, list[Any]] = {}

    def work(name: str) -> None:
        with opened(ThreadGenerators()) as generators:
            generators.enter(5)
            drawn[name] = []
            for _ in range(steps):
                together.wait(600)
                drawn[name].append(some_draws())

    kept = random.getstate(), np.random.get_state()
    alone = [some_draws() for _ in range(steps)]
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    mine = []
    for _ in range(steps):
        together.wait(600)
        mine.append(some_draws())
    for thread in threads:
        thread.join()
    assert mine == alone
    assert drawn["one"] == drawn["two"]
    assert drawn["one"][0] == drawn_under(BorrowedGenerators(), 5)


def in_child(work: Callable[[], Any]) -> Any:
    """In a process forked by this very thread."""
    reading, writing = multiprocessing.get_context("fork").Pipe(duplex=False)
    if (child := os.fork()) == 0:
        try:
            writing.send(work())
        finally:
            os._exit(0)
    with reading, writing:
        assert reading.poll(600)
        result = reading.recv()
    os.waitpid(child, 0)
    return result


def test_in_a_process_forked_beside_worker_threads_the_modules_are_as_they_were() -> None:
    before, visiting = functions(), VisitingGenerators()
    opened_there, done = threading.Event(), threading.Event()

    def live() -> None:
        with opened(ThreadGenerators()):
            opened_there.set()
            done.wait(600)

    thread = threading.Thread(target=live)
    thread.start()
    opened_there.wait(600)
    try:
        visiting.open()

        def look() -> Any:
            is_clean = functions() == before
            visiting.close()  # the child's copy: it takes nothing from who comes next
            with opened(ThreadGenerators()) as generators:
                drawn = drawn_under(generators, 5)
            return is_clean, functions() == before, drawn == drawn_under(BorrowedGenerators(), 5)

        assert in_child(look) == (True, True, True)
        assert functions() != before
    finally:
        visiting.close()
        done.set()
        thread.join()
    assert functions() == before


def test_a_process_that_a_worker_thread_forks_draws_as_the_thread_would() -> None:
    def work() -> None:
        with opened(ThreadGenerators()) as generators:
            generators.enter(5)
            drawn.append(in_child(some_draws))

    drawn: list[Any] = []
    in_thread(work)
    assert drawn == [drawn_under(BorrowedGenerators(), 5)]


def test_a_thread_that_is_no_worker_draws_from_the_shared_generators() -> None:
    kept = random.getstate(), np.random.get_state()
    alone = some_draws()
    random.setstate(kept[0])
    np.random.set_state(kept[1])
    with opened(ThreadGenerators()):
        assert in_thread(some_draws) == alone


def test_the_modules_functions_are_put_back_after_the_last_close() -> None:
    before = functions()
    one, two = ThreadGenerators(), ThreadGenerators()
    one.open()
    two.open()
    held = functions()
    assert held[("random", "random")] is not before[("random", "random")]
    one.close()
    assert functions() == held
    two.close()
    after = functions()
    assert all(after[name] is before[name] for name in before)


def test_they_can_be_opened_again() -> None:
    before = functions()
    drawn = [in_thread(lambda: isolated_draws(5)) for _ in range(3)]
    assert drawn[0] == drawn[1] == drawn[2]
    assert all(function is before[name] for name, function in functions().items())


def test_closing_twice_takes_nothing_from_another_thread() -> None:
    before = functions()
    held = ThreadGenerators()
    held.open()
    hasty = ThreadGenerators()
    hasty.open()
    hasty.close()
    hasty.close()
    assert functions()[("random", "random")] is not before[("random", "random")]
    held.close()
    held.close()
    assert in_thread(lambda: isolated_draws(5)) == drawn_under(BorrowedGenerators(), 5)
    assert all(function is before[name] for name, function in functions().items())


def test_somebody_elses_patch_is_left_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def patched() -> float:
        return 0.5

    original = random.random
    generators = ThreadGenerators()
    generators.open()
    kept = random.random
    monkeypatch.setattr(random, "random", patched)
    generators.close()
    assert random.random is patched
    monkeypatch.undo()
    assert random.random is kept
    random.random = original


def test_a_function_fetched_while_held_still_works_afterwards() -> None:
    with opened(ThreadGenerators()):
        fetched = random.random, np.random.rand
    before = state()
    numbers = [fetch() for fetch in fetched]
    random.setstate(before[0])
    np.random.set_state((before[1], np.array(before[2], np.uint32), *before[3:]))
    assert numbers == [random.random(), np.random.rand()]


def test_borrowing_inside_a_worker_thread_borrows_the_threads_own() -> None:
    """A dataset, read by a worker thread, that loads from another loader."""

    def work() -> tuple[list[Any], list[Any]]:
        with opened(ThreadGenerators()) as generators:
            alone = drawn_under(generators, 5, lambda: some_draws() + some_draws())
            generators.enter(5)
            first = some_draws()
            with opened(BorrowedGenerators()) as within:
                drawn_under(within, 6)
            return alone, first + some_draws()

    before = state()
    alone, around = in_thread(work)
    assert around == alone
    assert state() == before


class LoadsFromAnother:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        first = random.random()
        list(DataLoader(np.arange(4).tolist(), batch_size=2, seed=index))
        return first, np.random.rand()


def test_a_sample_that_loads_from_another_loader_draws_the_same_in_a_worker_thread() -> None:
    alone, threads = (
        [[part.tolist() for part in batch] for batch in DataLoader(LoadsFromAnother(), batch_size=4, seed=1, **options)]
        for options in ({}, THREADS)
    )
    assert threads == alone


def test_the_sample_that_loads_is_gone_back_to_once() -> None:
    sample, generators = SampleGenerators(), BorrowedGenerators()
    sample.enter(1, 2)
    token = being_read.set(sample)
    try:
        generators.enter(3)
        generators.enter(3)  # read in another way
        assert being_read.get() is None
        generators.leave()
        assert being_read.get() is sample
    finally:
        being_read.reset(token)
    generators.leave()  # of a task that was never entered: it failed before
    assert being_read.get() is None


def test_while_other_threads_have_their_own_the_shared_ones_are_kept_the_short_way() -> None:
    before, visiting, saved = state(), VisitingGenerators(), []
    visiting.open()
    try:
        for source in GLOBAL_SOURCES[:2]:
            source.borrow(3, words_of(3), saved)
        assert [type(each) for each in saved] == [OwnState, OwnState]
        assert list(map(len, saved)) == [2, 3]  # the quick way
        assert random.random() == python_of(3).random()
        some_draws()
        visiting.enter(5)  # now this thread has its own, too: they are what is seeded and saved
        for source in GLOBAL_SOURCES[:2]:
            source.seed(6, words_of(6))
            own: list[Any] = []
            source.borrow(7, words_of(7), own)
            source.restore(own[0])
        assert visiting.draw() == (python_of(6).getrandbits(64), np.random.RandomState(6).bytes(8))
        visiting.leave()
        for source, each in zip(GLOBAL_SOURCES, saved, strict=False):
            source.restore(each)
    finally:
        visiting.close()
    assert state() == before


def test_closing_from_another_thread_leaves_a_batch_under_way_its_numbers() -> None:
    before, generators = state(), BorrowedGenerators()
    generators.enter(5)
    first = some_draws()
    in_thread(generators.close)
    assert first + some_draws() == drawn_under(BorrowedGenerators(), 5, lambda: some_draws() + some_draws())
    generators.leave()
    assert state() == before


def test_so_it_does_in_a_thread_of_the_users() -> None:
    before, generators, held = state(), BorrowedGenerators(), set(switch.holders)

    def read() -> list[Any]:
        generators.enter(5)
        first = some_draws()
        in_thread(generators.close)
        again = some_draws()
        generators.enter(5)  # as where samples are read once more, one by one
        anew = some_draws()
        generators.leave()
        return [first + again, anew, first]

    whole, anew, first = in_thread(read)
    assert whole == drawn_under(BorrowedGenerators(), 5, lambda: some_draws() + some_draws())
    assert anew == first
    assert state() == before
    assert switch.holders == held


def test_a_thread_draws_from_the_shared_generators_after_its_loader_was_closed_in_the_middle_of_a_batch() -> None:
    generators, others = BorrowedGenerators(), BySample()

    def read() -> Any:
        generators.enter(5)
        in_thread(generators.close)
        generators.leave()
        others.open()  # somebody else's: the modules' functions look who calls them
        try:
            return some_draws()
        finally:
            others.close()

    saved: list[Any] = []
    for source in GLOBAL_SOURCES:
        source.borrow(7, words_of(7), saved)
    expected = some_draws()
    for source in GLOBAL_SOURCES:
        source.seed(7, words_of(7))
    try:
        assert in_thread(read) == expected
    finally:
        for source, each in zip(GLOBAL_SOURCES, saved, strict=True):
            source.restore(each)


def test_loading_in_another_thread_leaves_everybodys_randomness_alone() -> None:
    class Drawing(Numbers):
        def __getitem__(self, index: int) -> Any:
            return random.random(), np.random.rand(), rng().random()

    def load() -> list[bytes]:
        return [np.stack(batch).tobytes() for batch in DataLoader(Drawing(200), 2, shuffle=True, seed=1)]

    alone = load()
    random.seed(5)
    expected = [random.random() for _ in range(300)]
    results: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: results.append(load())) for _ in range(2)]
    random.seed(5)
    for thread in threads:
        thread.start()
    drawn = [random.random() for _ in range(300)]
    for thread in threads:
        thread.join()
    assert results == [alone, alone]
    assert drawn == expected
    assert random.random.__self__ is random._inst  # the module's own functions are back
