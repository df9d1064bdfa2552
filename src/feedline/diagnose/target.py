"""The target of a command: `pkg.module:name`, `path/to/script.py:name`, or a script with only one candidate.

Takes: words of the command line, or an object. Gives: a dataset or loader, and what making it took.
Promises: whatever goes wrong (no such module, an import that fails, a name that cannot be loaded from) is an
OptionError of one sentence that says what exists instead. A script that trains when it is imported, because it has no
`if __name__ == "__main__":`, is ended. Nothing in the script, in torch or in feedline is changed for that: iterators of
loaders are found through Python's garbage collector (30 ms a look).
Not its job: how often it looks (deadline), what is done with the target (doctor, tune, bench).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from feedline.diagnose.deadline import TooLong, place_of, within
from feedline.engine.loop import BatchIterator
from feedline.errors import FeedlineError, OptionError, OptionTypeError
from feedline.errors.foreign import ask
from feedline.supervise.walking import is_a
from feedline.supervise.worker_memory import own_memory

GUARD = (
    "What trains must not run when the file is imported: put it under `if __name__ == '__main__':`, and leave what "
    "makes the dataset or loader above that."
)
TARGET = "pkg.module:name or path/to/script.py[:name]; a dataset, a loader, or a function that makes one"
"""Text for the help of commands."""
MOVES = 3
"""How many looks must each see a loader further than the look before: a quick sum over a small dataset is fewer."""
FEW = 2
"""Batches that a script may take to see their shape."""

_scripts: dict[str, ModuleType] = {}


@dataclass(frozen=True)
class Construction:
    """What making a dataset took."""

    name: str
    seconds: float
    memory: int


def loaded(target: str) -> Any:
    """What the words name: an instance, a class or a function.

    >>> loaded("feedline:ArrayDataset").__name__
    'ArrayDataset'
    >>> loaded("feedline:Nothing")
    Traceback (most recent call last):
    feedline.errors.OptionError: feedline has no 'Nothing'; it has no dataset or loader; name a function that makes one
    """
    source, name = where(target), target.rpartition(":")[2] if ":" in target else ""
    module = _script(source) if source.endswith(".py") or os.sep in source else _module(source)
    if not name:
        return _only(module, source)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            others = ", ".join(_candidates(module)) or "no dataset or loader; name a function that makes one"
            raise OptionError(f"{source} has no {name!r}; it has {others}") from None
    return found


def loaded_within(target: str, seconds: float) -> Any:
    """The same with a time limit: an import that takes longer, or that trains, is a FeedlineError."""
    try:
        with within(seconds, _Watch()):
            return loaded(target)
    except TooLong as late:
        ended = FeedlineError(f"importing {where(target)}: {late}. {GUARD}")
    except _Trains as found:
        ended = OptionError(f"{where(target)} goes through a loader while it is imported, at {found}. {GUARD}")
    raise ended  # raised here: with the caught error, it would keep the script's variables and its loader's workers


@contextlib.contextmanager
def as_if_run(target: str, arguments: Sequence[str]) -> Iterator[None]:
    """Within the block `sys.argv` is the script's own, as `python train.py --lr 0.1` gives it, and not the command's.

    >>> with as_if_run("train.py:loader", ["--lr", "0.1"]):
    ...     sys.argv
    ['train.py', '--lr', '0.1']
    """
    before = sys.argv
    sys.argv = [where(target), *arguments]
    try:
        yield
    finally:
        sys.argv = before


def where(target: str) -> str:
    """The module or script of a target."""
    return target.rpartition(":")[0] or target


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as with python -m
    with _sentences(f"importing {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
    raise OptionError(f"there is no module {name!r} (write pkg.module:name, or path/to/script.py:name)")


def _script(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise OptionError(f"there is no file {path!r}")
    whole = os.path.abspath(path)
    known = _scripts.get(whole)  # a script named twice (--against) runs once
    if known is not None and sys.modules.get(known.__name__) is known:
        return known
    name = os.path.splitext(os.path.basename(path))[0]
    if os.path.dirname(whole) not in sys.path:
        sys.path.insert(0, os.path.dirname(whole))  # as with python script.py; workers find it in the same way
    if name in sys.modules or not name.isidentifier():
        name = f"feedline_target_{abs(hash(whole))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path!r} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with _sentences(f"running {path}"):
        spec.loader.exec_module(module)
    _scripts[whole] = module
    return module


@contextlib.contextmanager
def _sentences(doing: str) -> Iterator[None]:
    """What goes wrong in user code is an OptionError of one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptionError(f"{doing} failed: {error}") from error
    except Exception as error:
        raise OptionError(f"{doing} failed: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        its_own = "; arguments of its own are given after two dashes, as in `-- --lr 0.1`" if error.code == 2 else ""
        words = f"{doing} ended with {error!r}: guard what it runs with if __name__ == '__main__'{its_own}"
        raise OptionError(words) from error


class _Trains(BaseException):
    """The script iterates a loader. This is no `Exception`: a training loop may catch those, and continue."""


class _Watch:
    """One script's import. A loader from which only a batch or two are taken is ignored."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._moves = 0

    def __call__(self, frame: FrameType | None) -> None:
        """Look once; raise if loaders advance from look to look."""
        given = {id(each): batches for each in _iterators() if (batches := _given(each)) > FEW}
        self._moves += any(self._before.get(each) != batches for each, batches in given.items())
        self._before = given
        if self._moves >= MOVES:
            while frame is not None and frame.f_code.co_name != "<module>":  # the guard belongs into the script itself
                frame = frame.f_back
            raise _Trains(place_of(frame))


def _iterators() -> list[Any]:
    """The iterators of loaders, ours and torch's, that are alive."""
    kinds: list[type] = [BatchIterator]
    torchs = sys.modules.get("torch.utils.data.dataloader")
    if isinstance(base := ask(torchs, "_BaseDataLoaderIter"), type):
        kinds.append(base)
    known: dict[type, bool] = {}
    found = []
    for each in gc.get_objects():
        kind = type(each)
        if kind not in known:
            known[kind] = is_a(kind, *kinds)
        if known[kind]:
            found.append(each)
    return found


def _given(iterator: Any) -> int:
    """The number of batches it has given."""
    try:
        return int(iterator.flow().batches if is_a(type(iterator), BatchIterator) else iterator._num_yielded)
    except Exception:  # the iterator is not completely made yet
        return 0


def _only(module: ModuleType, where: str) -> Any:
    """The only loader, or the only dataset."""
    found = _candidates(module)
    loaders = [name for name in found if is_loader(getattr(module, name))]
    chosen = loaders or found
    if len(chosen) == 1:
        return getattr(module, chosen[0])
    if not chosen:
        raise OptionError(
            f"{where} has no dataset or loader at its top level: say which function makes one, as {where}:make_dataset"
        )
    raise OptionError(f"{where} has several: say which one, as {where}:{chosen[0]} (there are {', '.join(chosen)})")


def _candidates(module: ModuleType) -> list[str]:
    plain = (str, bytes, list, tuple, dict, set, ModuleType, type)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, plain) and _is_dataset(value)
    ]


def is_loader(value: Any) -> bool:
    """Is it a loader of ours or torch's?"""
    return any(kind.__name__ == "DataLoader" for kind in type(value).__mro__)


def _is_dataset(value: Any) -> bool:
    if isinstance(value, type):
        return False
    has = [hasattr(type(value), name) for name in ("__getitem__", "__len__", "__iter__")]
    return (has[0] and has[1]) or has[2]


def constructed(what: Any) -> tuple[Any, Construction | None]:
    """The dataset or loader itself, or what the factory makes; in that case also what making it took."""
    if _is_dataset(what) or not callable(what):
        return what, None
    name = getattr(what, "__qualname__", type(what).__qualname__)
    _check_needs_nothing(what, name)
    before, began = own_memory(os.getpid()), time.perf_counter()
    try:
        made = what()
    except (Exception, SystemExit) as error:
        raise OptionError(f"{name}() raised {type(error).__name__}: {error}") from error
    seconds = time.perf_counter() - began
    if not _is_dataset(made):
        raise OptionTypeError(
            f"{name}() gave a {type(made).__qualname__}, which is neither a loader nor a dataset: it has neither "
            "__getitem__ and __len__ nor __iter__"
        )
    return made, Construction(name, seconds, max(0, own_memory(os.getpid()) - before))


def _check_needs_nothing(factory: Any, name: str) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return
    try:
        signature.bind()
    except TypeError:
        raise OptionTypeError(
            f"{name}{signature} needs arguments: name a function without any that makes the dataset"
        ) from None
