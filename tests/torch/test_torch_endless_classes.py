"""Loader classes of other libraries that read one endless iterator, epoch after epoch (timm, Ultralytics): derived from
ours they do what they did, and `with_feedline`, which cannot keep that, says so. The idioms are written out here."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import torch.utils.data as torchs
import torch.utils.data.dataloader as theirs
from kinds import FORK, ours

from feedline.errors import OptionError
from feedline.torch import DataLoader, with_feedline
from feedline.torch.iterators import BegunLater, TorchIterator, WithPlaceBefore


class Again:
    """Repeats a sampler without end; has no length."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


def many_epochs(base: Any) -> Any:
    """As timm does it: the attributes of a made loader are exchanged, and one iterator serves all epochs."""

    class ManyEpochs(base):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._DataLoader__initialized = False
            if self.batch_sampler is None:
                self.sampler = Again(self.sampler)
            else:
                self.batch_sampler = Again(self.batch_sampler)
            self._DataLoader__initialized = True
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.sampler.sampler) if self.batch_sampler is None else len(self.batch_sampler.sampler)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.iterator)

    return ManyEpochs


def without_end(base: Any) -> Any:
    """As Ultralytics does it: made on first use, and ended by torch's private names, if they are there."""

    class WithoutEnd(base):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.iterator: Any = None

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Iterator[Any]:
            if self.iterator is None:
                self.iterator = self._get_iterator()
            for _ in range(len(self)):
                yield next(self.iterator)

        def close(self) -> None:
            if hasattr(self.iterator, "_workers"):
                self.iterator._shutdown_workers()

        def reset(self) -> None:
            self.close()
            self.iterator = None

    return WithoutEnd


CLASSES = [many_epochs, without_end]


def batches(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("kind", [{}, FORK], ids=["inline", "fork"])
@pytest.mark.parametrize("make", CLASSES)
def test_derived_from_our_loader_they_give_what_they_gave(make: Any, kind: dict[str, Any]) -> None:
    loader = make(DataLoader)(range(5), batch_size=2, **kind)
    assert len(loader) == 3
    assert [batches(loader) for _ in range(2)] == [[[0, 1], [2, 3], [4]]] * 2
    if hasattr(loader, "reset"):
        loader.reset()
        assert batches(loader) == [[0, 1], [2, 3], [4]]
        loader.reset()


def assigned_in(kind: type) -> set[str]:
    """The private names of a class's members, and of what its methods ask of and write to themselves."""
    found = set()
    for each in kind.__mro__:
        if each.__module__.startswith(("torch", "feedline")):
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
            selves = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)]
            found |= {*vars(each), *(node.attr for node in selves)}
    return {name for name in found if name.startswith("_") and not name.endswith("__")}


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@pytest.mark.parametrize("mine", [TorchIterator, BegunLater, WithPlaceBefore])
def test_our_iterators_share_no_private_name_with_torchs(mine: type) -> None:
    torchs_own = assigned_in(theirs._MultiProcessingDataLoaderIter) | assigned_in(theirs._SingleProcessDataLoaderIter)
    assert {"_workers", "_shutdown_workers", "_dataset", "_num_yielded"} <= torchs_own
    assert assigned_in(mine) & torchs_own == set()


@pytest.mark.parametrize("base", [torchs.DataLoader, DataLoader], ids=["torchs", "ours"])
@pytest.mark.parametrize("make", CLASSES)
def test_with_feedline_refuses_what_would_never_end(make: Any, base: Any) -> None:
    loader = make(base)(range(5), batch_size=2)
    with pytest.raises(OptionError, match=r"'s batch_sampler has no length .* batch_sampler=loader\.batch_sampler\.s"):
        with_feedline(loader, prefetch_factor=None)
    with pytest.warns(UserWarning, match=", which a loader made by with_feedline does not call"):
        adopted = with_feedline(loader, batch_sampler=loader.batch_sampler.sampler)
    assert len(adopted) == 3
    assert [batches(adopted) for _ in range(2)] == [[[0, 1], [2, 3], [4]]] * 2


def test_with_feedline_refuses_a_repeated_sampler_without_batches() -> None:
    loader = many_epochs(torchs.DataLoader)(range(3), batch_size=None)
    with pytest.raises(OptionError, match=r"with_feedline\(loader, sampler=loader\.sampler\.sampler"):
        with_feedline(loader)


def test_a_length_of_its_own_is_said_to_be_lost() -> None:
    class Half(torchs.DataLoader[Any]):
        def __len__(self) -> int:
            return super().__len__() // 2

    with pytest.warns(UserWarning, match="Half defines its own __len__") as told:
        assert len(with_feedline(Half(range(8), 2))) == 4
    assert len(ours(told)) == 1


def test_an_endless_sampler_of_a_plain_loader_stays_what_it_is() -> None:
    adopted = iter(with_feedline(torchs.DataLoader(range(3), batch_sampler=Again([[0, 1], [2]]))))
    assert [next(adopted).tolist() for _ in range(3)] == [[0, 1], [2], [0, 1]]
