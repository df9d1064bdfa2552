"""A user's script with a fault in its dataset. Run by `scripts.run`, in a process of its own.

Takes: JSON as its argument. Prints: JSON that says what the loop saw, and what was left behind.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import injected  # noqa: E402
import still  # noqa: E402
from leaving import keep_what_multiprocessing_keeps, leftovers  # noqa: E402

from feedline.supervise import asking  # noqa: E402
from feedline.workers.dialect import NUMPY  # noqa: E402
from feedline.workers.warm import processes_from  # noqa: E402


def start_server(method: str, front: str) -> None:
    """Workers that are started while others run need not wait for it."""
    if method == "fork":
        return
    modules = (*NUMPY.preload, "feedline.torch.dialect") if front == "feedline.torch" else NUMPY.preload
    with processes_from(modules):
        first = multiprocessing.get_context("forkserver").Process(target=int)
        first.start()
        first.join()


def stuck(dataset: dict[str, Any]) -> still.Happened:
    """Is the batch that is waited for held up by the sample at fault, and by nothing else?"""
    bad = injected.DATASETS[dataset["kind"]].stuck  # type: ignore[attr-defined]

    def at_fault(at: Any) -> bool:
        if at.task.indices is None:  # a stream
            return os.path.exists(dataset["once"])
        return int(at.task.indices[at.place]) in bad

    return still.only_held_up(at_fault)


def main(
    front: str, dataset: dict[str, Any], options: dict[str, Any], warn: str, epochs: int, leave: bool
) -> dict[str, Any]:
    library = importlib.import_module(front)
    keep_what_multiprocessing_keeps()
    start_server(options.get("multiprocessing_context", "fork"), front)
    before = {kind: len(found) for kind, found in leftovers().items()}
    seen: dict[str, Any] = {"batches": [], "errors": [], "warnings": [], "after": []}

    def note(message: Any, *rest: Any, **more: Any) -> None:
        seen["warnings"].append(str(message))
        if warn == "raise" and f"dataset[{injected.BAD}]" in str(message):
            raise UserWarning(message)
        if warn == "release" and len(seen["warnings"]) == 2:
            Path(os.environ["RELEASE"]).touch()

    warnings.showwarning = note
    warnings.simplefilter("always")
    warnings.filterwarnings("ignore", "This DataLoader will create")  # torch, where there is one CPU
    if "timeout" in options or "stall_warning" in options:
        still.until(stuck(dict(dataset)))
        still.answered()
    kind = injected.DATASETS[dataset.pop("kind")]
    if kind is not injected.Mute:
        asking.MOMENT = still.LONG  # the dataset answers, however busy the machine is
    if kind is injected.Stream and front == "feedline.torch":
        kind = injected.torch_stream
    data = kind(**dataset)
    loader = library.DataLoader(data, 4, **options)
    for epoch in range(epochs):
        began = time.monotonic()
        iterator = iter(loader)
        if leave and epoch == 0:  # with a worker in the bad sample
            while not os.path.exists(dataset["once"]):
                next(iterator)
            continue
        while True:
            try:
                images, labels = next(iterator)
            except StopIteration:
                break
            except Exception as error:
                if "was ended by an error" in str(error):
                    continue
                seen["errors"].append([type(error).__name__, str(error)])
                seen["after"].append(time.monotonic() - began)
                del error
            else:
                right = all(float(image.min()) == float(image.max()) == label for image, label in zip(images, labels))  # noqa: B905
                seen["batches"].append([int(label) for label in labels] if right else "wrong content")
                images = labels = None
        del iterator
    seen["bad"] = [list(bad)[:4] for bad in getattr(loader, "errors", list)()]
    loader.close()
    del loader, data
    stuck_threads = options.get("workers") == "thread" and dataset["how"] != "until_told"
    seen["left"] = left_since(before, patience=0 if stuck_threads or kind is injected.Mute else 60)
    return seen


def left_since(before: dict[str, int], patience: float) -> dict[str, int]:
    """How much more there is; whoever is about to end may do so."""
    patient_until = time.monotonic() + patience
    while True:
        gc.collect()
        after = {kind: len(found) for kind, found in leftovers().items()}
        left = {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]}
        if not left or time.monotonic() >= patient_until:
            return left
        time.sleep(10 * still.MOMENT)


if __name__ == "__main__":
    print("\n" + json.dumps(main(**json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # a thread that is stuck in a sample would be waited for by C code at times
