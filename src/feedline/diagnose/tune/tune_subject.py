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
from dataclasses import dataclass, field
from typing import Any

from feedline.errors import OptionError
from feedline.loader import DataLoader
from feedline.observe.window import USUAL_PREFETCH, Setting
from feedline.options.option import rows
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

    @property
    def name(self) -> str:
        """Its name for messages."""
        return type(self.dataset).__qualname__

    def loader(self, setting: Setting, seed: int, timeout: float) -> Any:
        """A loader with that setting, whose workers stay from epoch to epoch; another seed reads in another order."""
        options: dict[str, Any] = {**self.options, "num_workers": setting.workers, "stall_warning": 0}
        if setting.workers:
            options |= {"prefetch_factor": setting.prefetch, "persistent_workers": True, "timeout": timeout}
            options |= {"workers": setting.kind, "worker_init_fn": self._init(setting)}
            if setting.kind == "process" and self.start_method is not None:
                options["multiprocessing_context"] = self.start_method
        if self.front == "feedline":
            return DataLoader(self.dataset, seed=seed, **options)
        torch: Any = sys.modules["torch"]
        generator = torch.Generator()
        generator.manual_seed(seed)
        front: Any = importlib.import_module("feedline.torch")
        return front.DataLoader(self.dataset, generator=generator, **options)

    def _init(self, setting: Setting) -> Callable[[int], None] | None:
        return threads_per_worker(setting.threads, then=self.init) if setting.threads > 1 else self.init

    def code(self, setting: Setting) -> str:
        """The lines to paste."""
        arguments = {**self.shown, "num_workers": str(setting.workers)}
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
        return f"{more}from {self.front} import DataLoader\n\nloader = DataLoader({inside})"


def subject_of(what: Any, batch_size: int | None, shuffle: bool | None) -> TuneSubject:
    """The subject for a dataset or a loader; OptionError if it is neither, or if a loader's options would change."""
    torch = sys.modules.get("torch")
    ours, torchs = isinstance(what, DataLoader), torch is not None and isinstance(what, torch.utils.data.DataLoader)
    if ours or torchs:
        for name, value in {"batch_size": batch_size, "shuffle": shuffle}.items():
            if value is not None:
                raise OptionError(f"{name} is for a dataset: the loader has its own; leave {name} out")
        return _of_ours(what) if ours else _of_torchs(what)
    return _of_dataset(what, batch_size or GUESSED_BATCH, shuffle)


def _of_dataset(dataset: Any, batch_size: int, shuffle: bool | None) -> TuneSubject:
    checked = DataLoader(dataset).options
    torch: Any = sys.modules.get("torch")
    is_torchs = torch is not None and (not checked.stream or isinstance(dataset, torch.utils.data.IterableDataset))
    options: dict[str, Any] = {"batch_size": batch_size}
    if not checked.stream:
        options["shuffle"] = True if shuffle is None else shuffle  # as in training
    elif shuffle:
        raise OptionError("shuffle is for a map-style dataset: a stream comes in its own order")
    shown = {name: repr(value) for name, value in options.items() if value is not False}
    return TuneSubject(dataset, "feedline.torch" if is_torchs else "feedline", options, shown)


_TUNED = {
    *("dataset", "num_workers", "workers", "prefetch_factor", "persistent_workers", "multiprocessing_context"),
    *("timeout", "worker_init_fn", "seed"),
}
"""Options that trials set themselves. All others are as in the user's loader…"""
_KEPT = {"stall_warning", "on_stall", "error_log", "on_epoch_end"}
"""…except these, which trials replace, but which the pasted line should keep."""


def _of_ours(loader: DataLoader) -> TuneSubject:
    options = loader.options
    given = _carried(options)
    if options.batch_sampler is not None:
        given["batch_size"] = 1  # the default: the batch sampler decides
    shown = _shown(given, _defaults(DataLoader))
    if options.seeded:
        shown["seed"] = str(options.seed)
    init = _without_threads(options.worker_init_fn)
    given = _for_trials(given)
    return TuneSubject(
        options.dataset, "feedline", given, shown, options.multiprocessing_context, init, options.timeout
    )


def _carried(of: Any) -> dict[str, Any]:
    """The checked options that are not tuned; `collate` has become the collate_fn."""
    return {name: getattr(of, name) for name in rows(type(of)) if name not in _TUNED and name != "collate"}


def _for_trials(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _KEPT}


def _of_torchs(loader: Any) -> TuneSubject:
    torch: Any = sys.modules["torch"]
    data, front = torch.utils.data, importlib.import_module("feedline.torch")
    given: dict[str, Any] = {"in_order": loader.in_order, "pin_memory": loader.pin_memory}
    if hasattr(loader, "_feedline"):
        given |= _carried(loader._feedline.own)
    if loader.collate_fn not in (data.default_collate, data.default_convert):
        given["collate_fn"] = loader.collate_fn
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not data.BatchSampler:
        given["batch_sampler"] = loader.batch_sampler
    else:
        given |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        given |= _order(loader, data)
    shown = _shown(given, _defaults(front.DataLoader))
    init = _without_threads(loader.worker_init_fn)
    start_method, timeout = loader.multiprocessing_context, loader.timeout
    return TuneSubject(loader.dataset, "feedline.torch", _for_trials(given), shown, start_method, init, timeout)


def _without_threads(init: Any) -> Any:
    """Threads per worker are tuned: the user's number would override what is tried."""
    return init.then if isinstance(init, threads_per_worker) else init


def _order(loader: Any, data: Any) -> dict[str, Any]:
    """torch makes a sampler from shuffle=True; it is made anew, so that the user's generator is not used."""
    if isinstance(loader.dataset, data.IterableDataset) or type(loader.sampler) is data.SequentialSampler:
        return {}
    plain = type(loader.sampler) is data.RandomSampler and not loader.sampler.replacement
    if plain and loader.sampler.num_samples == len(loader.dataset):
        return {"shuffle": True}
    return {"sampler": _apart(loader.sampler)}


def _apart(sampler: Any) -> Any:
    """The same sampler with a copy of its generator."""
    torch: Any = sys.modules["torch"]
    generator = getattr(sampler, "generator", None)
    if not isinstance(generator, torch.Generator):
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
