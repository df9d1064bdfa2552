"""The target of a command: `pkg.module:name`, `path/to/script.py:name`, or a script with only one candidate.

Takes: words of the command line, or an object. Gives: a dataset or loader, and what making it took.
Promises: whatever goes wrong (no such module, an import that fails, a name that cannot be loaded from) is an
OptionError of one sentence that says what exists instead.
Not its job: what is done with it (doctor, tune).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from feedline.diagnose.deadline import TooLong, within
from feedline.diagnose.unguarded import Trains, Watch
from feedline.errors import FeedlineError, OptionError, OptionTypeError
from feedline.supervise.worker_memory import own_memory

GUARD = (
    "What trains must not run when the file is imported: put it under `if __name__ == '__main__':`, and leave what "
    "makes the dataset or loader above that."
)
TARGET = "pkg.module:name or path/to/script.py[:name]; a dataset, a loader, or a function that makes one"
"""Text for the help of commands."""


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
    feedline.errors.OptionError: feedline has no 'Nothing'; it has no dataset or loader
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
            others = ", ".join(_candidates(module)) or "no dataset or loader"
            raise OptionError(f"{source} has no {name!r}; it has {others}") from None
    return found


def loaded_within(target: str, seconds: float) -> Any:
    """The same with a time limit: an import that takes longer, or that trains, is a FeedlineError."""
    try:
        with within(seconds, Watch()):
            return loaded(target)
    except TooLong as late:
        ended = FeedlineError(f"importing {where(target)}: {late}. {GUARD}")
    except Trains as found:
        words = f"{where(target)} goes through a loader while it is imported, at {found.place}"
        ended = OptionError(f"{words}. {GUARD}")
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
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise OptionError(
                f"there is no module {name!r} (write pkg.module:name, or path/to/script.py:name)"
            ) from None
        raise OptionError(f"importing {name} failed: {error}") from error
    except Exception as error:
        raise OptionError(f"importing {name} failed: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise OptionError(f"importing {name} {_ended(error)}") from error


def _script(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise OptionError(f"there is no file {path!r}")
    known = _scripts.get(os.path.abspath(path))  # a script named twice (--against) runs once
    if known is not None and sys.modules.get(known.__name__) is known:
        return known
    name = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as with python script.py; workers find it in the same way
    if name in sys.modules or not name.isidentifier():
        name = f"feedline_target_{abs(hash(os.path.abspath(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{path!r} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(f"running {path} failed: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        raise OptionError(f"running {path} {_ended(error)}") from error
    _scripts[os.path.abspath(path)] = module
    return module


def _ended(error: SystemExit) -> str:
    its_own = "; arguments of its own are given after two dashes, as in `-- --lr 0.1`" if error.code == 2 else ""
    return f"ended with {error!r}: guard what it runs with if __name__ == '__main__'{its_own}"


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
