"""What is loaded: a dataset, or a loader of any front, in one form.

Takes: a dataset, a `feedline.DataLoader`, a torch DataLoader (ours or torch's own), the user's options.
Gives: `TuneSubject`: loaders for settings, and the code that makes such a loader, to be pasted.
Promises: the user's loader is not iterated, and its own generator not drawn from; its dataset, batches and collate_fn
are used unchanged. torch is used only if already imported.
Not its job: measuring (running).
"""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from feedline.diagnose.user_loader import JAXS, OURS, TORCHS, front_for, is_jaxs, is_torchs, options_of, seeded_loader
from feedline.errors import OptionError
from feedline.loader import DataLoader
from feedline.observe.window import USUAL_PREFETCH, Setting
from feedline.workers.one_thread import threads_per_worker

GUESSED_BATCH = 32


@dataclass(frozen=True)
class TuneSubject:
    """A dataset with all options except those that are tuned."""

    dataset: Any
    front: str
    """The module of its DataLoader: feedline or feedline.torch."""
    options: Mapping[str, Any]
    shown: Mapping[str, str] = field(default_factory=dict)
    """The same as code, without defaults."""
    start_method: Any = None
    init: Callable[[int], None] | None = None
    timeout: float = 0
    """The user's: trials have their own."""
    pins: bool = False
    """Is `pin_memory` tuned? Then it is none of the options."""
    pasted_front: str = ""
    """The module in the lines to paste, if it is not the front: a loader of JAX's is tried without devices."""

    @property
    def name(self) -> str:
        """Its name for messages."""
        return type(self.dataset).__qualname__

    def loader(self, setting: Setting, seed: int, timeout: float) -> Any:
        """A loader with that setting, whose workers stay from epoch to epoch; another seed reads in another order."""
        options: dict[str, Any] = {**self.options, "num_workers": setting.workers, "stall_warning": 0}
        if setting.workers:
            options |= {"prefetch_factor": setting.prefetch, "persistent_workers": True, "timeout": timeout}
            init = threads_per_worker(setting.threads, then=self.init) if setting.threads > 1 else self.init
            options |= {"workers": setting.kind, "worker_init_fn": init}
            if setting.kind == "process" and self.start_method is not None:
                options["multiprocessing_context"] = self.start_method
        if self.pins:
            options["pin_memory"] = setting.pinned
        return seeded_loader(self.front, self.dataset, seed, **options)

    def code(self, setting: Setting) -> str:
        """The lines to paste."""
        arguments = {**self.shown, **({"pin_memory": "True"} if setting.pinned else {})}
        arguments["num_workers"] = str(setting.workers)
        if setting.workers:
            if setting.kind == "thread":
                arguments["workers"] = '"thread"'
            if setting.prefetch != USUAL_PREFETCH:
                arguments["prefetch_factor"] = str(setting.prefetch)
            arguments["persistent_workers"] = "True"
            if self.timeout:
                arguments["timeout"] = repr(self.timeout)
            if setting.kind == "process" and self.start_method is not None:
                arguments["multiprocessing_context"] = _as_code("multiprocessing_context", self.start_method)
            if setting.threads > 1:
                then = "" if self.init is None else f", then={_as_code('worker_init_fn', self.init)}"
                arguments["worker_init_fn"] = f"feedline.threads_per_worker({setting.threads}{then})"
            elif self.init is not None:
                arguments["worker_init_fn"] = _as_code("worker_init_fn", self.init)
        inside = ", ".join(["dataset", *(f"{name}={value}" for name, value in arguments.items())])
        more = "import feedline\n" if setting.threads > 1 else ""
        return f"{more}from {self.pasted_front or self.front} import DataLoader\n\nloader = DataLoader({inside})"


def for_gpu(subject: TuneSubject) -> TuneSubject:
    """The subject where there is a GPU: `pin_memory` is tuned, unless the loader puts its batches there itself."""
    if subject.front != TORCHS or subject.options.get("device") is not None:
        return subject
    options, shown = dict(subject.options), dict(subject.shown)
    for given in (options, shown):
        given.pop("pin_memory", None)
    return replace(subject, options=options, shown=shown, pins=True)


def subject_of(what: Any, batch_size: int | None, shuffle: bool | None) -> TuneSubject:
    """The subject for a dataset or a loader; OptionError if it is neither, or if a loader's options would change."""
    if not isinstance(what, DataLoader) and not is_torchs(what):
        return _of_dataset(what, batch_size or GUESSED_BATCH, shuffle)
    for name, value in {"batch_size": batch_size, "shuffle": shuffle}.items():
        if value is not None:
            raise OptionError(f"{name} is for a dataset: the loader has its own; leave {name} out")
    return _of_loader(what)


def _of_dataset(dataset: Any, batch_size: int, shuffle: bool | None) -> TuneSubject:
    stream = DataLoader(dataset).options.stream
    options: dict[str, Any] = {"batch_size": batch_size}
    if not stream:
        options["shuffle"] = True if shuffle is None else shuffle  # as in training
    elif shuffle:
        raise OptionError("shuffle is for a map-style dataset: a stream comes in its own order")
    shown = {name: repr(value) for name, value in options.items() if value is not False}
    return TuneSubject(dataset, front_for(dataset, stream), options, shown)


_TUNED = {
    *("num_workers", "workers", "prefetch_factor", "persistent_workers", "multiprocessing_context"),
    *("timeout", "worker_init_fn", "seed", "generator", "pin_memory_device"),
}
"""Options that trials set themselves. All others are as in the user's loader…"""
_KEPT = {"stall_warning", "on_stall", "error_log", "on_epoch_end"}
"""…except these, which trials replace, but which the pasted line should keep."""


def _of_loader(loader: Any) -> TuneSubject:
    given, front = options_of(loader), OURS if isinstance(loader, DataLoader) else TORCHS
    untuned = {name: value for name, value in given.items() if name not in _TUNED}
    shown = _shown(untuned, _defaults(importlib.import_module(front).DataLoader))
    if front == OURS and loader.options.seeded:
        shown["seed"] = str(loader.options.seed)
    init = given["worker_init_fn"]
    if isinstance(init, threads_per_worker):  # threads are tuned: the user's number would override what is tried
        init = init.then
    options = {name: value for name, value in untuned.items() if name not in _KEPT}
    if "sampler" in options:
        options["sampler"] = _apart(options["sampler"])
    if not is_jaxs(loader) and (whole := getattr(loader, "global_batch_size", None)):
        shown = {
            "global_batch_size": str(whole),
            **{name: code for name, code in shown.items() if name != "batch_size"},
        }
    start_method, timeout = given["multiprocessing_context"], given["timeout"]
    if not is_jaxs(loader):
        return TuneSubject(loader.dataset, front, options, shown, start_method, init, timeout)
    shown = _as_jaxs(loader, shown)
    return TuneSubject(loader.dataset, front, options, shown, None, init, timeout, pasted_front=JAXS)


def _as_jaxs(loader: Any, shown: Mapping[str, str]) -> dict[str, str]:
    """The options as JAX's front has them. Its workers are started in a way of its own; where batches go, only the user
    has a name for."""
    given = {name: getattr(loader, name) for name in ("global_batch_size", "pad_last", "device_prefetch", "batch_key")}
    own = _shown(given, _defaults(type(loader)))
    if not loader.options.drop_last and not loader.pad_last and loader.options.batch_sampler is None:
        own["drop_last"] = "False"
    others = {name: code for name, code in shown.items() if name not in ("batch_size", "drop_last")}
    return {**own, **others, "sharding": "sharding"}


def _apart(sampler: Any) -> Any:
    """The same sampler with a copy of its generator."""
    torch, generator = sys.modules.get("torch"), getattr(sampler, "generator", None)
    if torch is None or not isinstance(generator, torch.Generator):
        return sampler
    own = copy.copy(sampler)
    own.generator = torch.Generator(generator.device).set_state(generator.get_state())
    return own


def _defaults(kind: type[Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(kind.__init__).parameters.items()}


_PLAIN = (bool, int, float, str, type(None))
"""Defaults that can be written as code; any other may not be comparable."""


def _shown(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    return {name: _as_code(name, value) for name, value in given.items() if not _is_usual(value, defaults.get(name))}


def _is_usual(value: Any, default: Any) -> bool:
    """Is it the default? False counts as None (shuffle); but None (batch_size) and 0 (max_errors) have a meaning."""
    return isinstance(value, _PLAIN) and ((default is None and value is False) or value == default)


def _as_code(name: str, value: Any) -> str:
    """The value as code, or else the option's own name, if only the user has a name for it."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if name == "multiprocessing_context":  # most contexts can be made from their name
        return repr(value.get_start_method())
    if name == "device":
        return repr(str(value))
    called = getattr(value, "__name__", "")
    return called if called.isidentifier() else name
