"""A user's script with a fault in it, under torch's loader or feedline's. Run by `faults.py`, in a process of its own.

Takes: a case, a side, the loader's options as JSON. Gives: events, one JSON line each, as they happen, so that a
script that hangs has said how far it came.
Promises: the same dataset and loop for both sides. Not its job: time limits, and what to make of it (faults).
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import logging
import os
import re
import resource
import signal
import statistics
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE, BATCH, BAD = 1000, 100, 613
"""BAD is a number that is no line of this file: where a message has it, it names the sample."""
PIDS, ONCE = Path("pids"), Path("once")
"""In the scratch folder that the script runs in."""

Make = Callable[..., Any]


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **facts}), flush=True)


class Faulty:
    """1000 small samples; sample BAD does `how`, always or only the first time."""

    def __init__(self, how: str = "nothing", once: bool = False, shape: tuple[int, ...] = (8, 8)) -> None:
        self.how = how
        self.once = once
        self.shape = shape

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        if index == BAD and not (self.once and ONCE.exists()):
            ONCE.touch()
            # By then what its worker had finished is taken. If not, torch at times loses that too, or waits for ever.
            time.sleep(0.5)
            getattr(self, self.how)()
        return np.full(self.shape, index, np.float32), index

    def nothing(self) -> None:
        pass

    def endless_loop(self) -> None:
        while True:
            pass

    def hold_gil(self) -> None:
        re.match("(a+)+$", "a" * 60 + "b")

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def crash(self) -> None:
        ctypes.string_at(0)

    def leave(self) -> None:
        os._exit(3)

    def corrupt(self) -> None:
        raise ValueError("truncated file")

    def local_exception(self) -> None:
        class UnreadableImage(Exception):
            pass

        raise UnreadableImage("truncated file")

    def odd_exception(self) -> None:
        raise Odd("truncated file", code=7)


class Odd(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


class LongSample(Faulty):
    """Says who reads it, and takes long."""

    def __getitem__(self, index: int) -> Any:
        if index >= BATCH:
            with PIDS.open("a") as file:
                print(os.getpid(), file=file)
            time.sleep(40)
        return index


class Drawing(Faulty):
    """Augments with NumPy's global generator, or with one of its own."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0) if own else None

    def __getitem__(self, index: int) -> float:
        return float(self.rng.random() if self.rng is not None else np.random.random())


class Locking(Faulty):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def __getitem__(self, index: int) -> int:
        with self.lock:
            return index


class Leaky(Faulty):
    """Keeps 100 kB for each sample it is asked for, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        self.cache.append(np.ones(12_500))
        return index, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class SixteenArrays(Faulty):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> Any:
        return [np.full((64, 64), index, np.float32) for _ in range(16)]


def unpicklable_batch(samples: list[Any]) -> Any:
    return threading.Lock(), samples


def loop(loader: Any, keep: Callable[[Any], Any] = len) -> list[Any]:
    """Go through an epoch and tell of it; after an error `next()` is called again, after a second one no more."""
    kept, errors = [], 0
    batches = iter(loader)
    while errors < 2:
        try:
            batch = next(batches)
            kept.append(keep(batch))
            say("batch", size=len(batch[-1]) if isinstance(batch, (list, tuple)) else len(batch))
        except StopIteration:
            say("end")
            break
        except Exception as error:
            errors += 1
            say("error", name=type(error).__name__, text=text_of(error))
    return kept


def text_of(error: Exception) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as another:  # torch's signal handler raises wherever the main thread happens to be
        return "".join(traceback.format_exception(another))


def one_epoch(how: str, **more: Any) -> Callable[[Make], None]:
    def case(make: Make) -> None:
        loop(make(Faulty(how, **more), BATCH))

    return case


def long_sample(make: Make) -> None:
    for _ in make(LongSample(), BATCH):
        pass


def bad_collate(make: Make) -> None:
    loop(make(Faulty(), BATCH, collate_fn=unpicklable_batch))


def few_descriptors(make: Make) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    loop(make(SixteenArrays(), 4), keep=lambda batch: batch)


def leave_early(make: Make) -> None:
    """50 times; the first round is not counted, since it starts what a library keeps for good."""
    loader = make(Faulty(), BATCH)
    seconds = []
    before = {}
    for number in range(51):
        batches = iter(loader)
        next(batches)
        began = time.perf_counter()
        del batches
        seconds.append(time.perf_counter() - began)
        if number == 0:
            before = in_hand()
    gc.collect()
    after = in_hand()
    left = {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]}
    say("left", median=statistics.median(seconds[1:]), left=left)
    say("end")


def in_hand() -> dict[str, int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as children:
        processes = len(children.read().split())
    return {
        "processes": processes,
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def draw(own: bool) -> Callable[[Make], None]:
    def case(make: Make) -> None:
        loader = make(Drawing(own), BATCH)
        epochs = [[float(x) for batch in loader for x in batch] for _ in range(2)]
        say("draws", alike=SIZE - len(set(epochs[0])), again=len(set(epochs[0]) & set(epochs[1])), of=SIZE)
        say("end")

    return case


def held_lock(make: Make) -> None:
    data, holding, done = Locking(), threading.Event(), threading.Event()

    def hold() -> None:
        with data.lock:
            holding.set()
            done.wait()

    threading.Thread(target=hold, daemon=True).start()
    holding.wait()
    batches = make(data, BATCH)
    started = iter(batches)
    done.set()  # the lock is free again here; in a forked worker nobody is left to free it
    loop(started)


def leak(make: Make) -> None:
    loader = make(Leaky(), BATCH, persistent_workers=True)
    peaks = [max(int(peak) for _, peaks in loader for peak in peaks) for _ in range(7)]
    say("grown", megabytes=(peaks[-1] - peaks[0]) / 1e3, epochs=len(peaks) - 1)
    say("end")


CASES: dict[str, Callable[[Make], None]] = {
    "endless_loop": one_epoch("endless_loop"),
    "hold_gil": one_epoch("hold_gil"),
    "kill_once": one_epoch("kill", once=True),
    "crash": one_epoch("crash"),
    "leave_once": one_epoch("leave", once=True),
    "local_exception": one_epoch("local_exception"),
    "odd_exception": one_epoch("odd_exception"),
    "corrupt": one_epoch("corrupt"),
    "large_batches": one_epoch("nothing", shape=(3, 128, 128)),
    "bad_collate": bad_collate,
    "few_descriptors": few_descriptors,
    "long_sample": long_sample,
    "leave_early": leave_early,
    "draw_global": draw(own=False),
    "draw_own": draw(own=True),
    "held_lock": held_lock,
    "leak": leak,
}


class Told(logging.Handler):
    """Warnings and log lines become events."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", text=record.getMessage())


def tell_all() -> None:
    def note(message: Any, *rest: Any, **more: Any) -> None:
        say("warning", text=str(message))

    warnings.showwarning = note
    warnings.simplefilter("always")
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # of a machine with few cores
    logging.getLogger("feedline").addHandler(Told())


def main(case: str, side: str, options: dict[str, Any]) -> None:
    import torch

    library: Any = importlib.import_module("torch.utils.data" if side == "torch" else "feedline.torch")
    torch.manual_seed(0)
    np.random.seed(0)
    tell_all()
    say("begin", torch=torch.__version__)
    CASES[case](lambda *given, **more: library.DataLoader(*given, **more, **options))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
