"""`progress()` in torch's front: the batches and draws of a plain loop; subclasses keep what is their own."""

from __future__ import annotations

import pytest
import torch
import torch.utils.data

from feedline.torch import DataLoader, DistributedSampler


def test_the_order_and_the_next_draw_are_torchs(capsys):
    torch.manual_seed(5)
    theirs = [batch.tolist() for batch in torch.utils.data.DataLoader(range(10), 4, shuffle=True)], torch.rand(1)
    torch.manual_seed(5)
    ours = [batch.tolist() for batch in DataLoader(range(10), 4, shuffle=True).progress()], torch.rand(1)
    assert ours == theirs
    assert capsys.readouterr().err.startswith("epoch 0: 3 of 3 batches")


def test_a_subclass_keeps_its_own_iteration_length_and_attributes(capsys):
    class Twice(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch
                yield batch

        def __len__(self) -> int:
            return 2 * super().__len__()

    assert [batch.tolist() for batch in Twice(range(4), 2).progress("twice")] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert capsys.readouterr().err.startswith("twice: 4 of 4 batches")

    class Named(DataLoader):
        progress = 0.5

    assert Named(range(4)).progress == 0.5


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_goes_on_begins_at_its_place(rank, capsys):
    def loader() -> DataLoader:
        return DataLoader(range(24), 3, sampler=DistributedSampler(range(24), 2, rank))

    first = loader()
    batches = iter(first)
    next(batches)
    again = loader()
    again.load_state_dict(first.state_dict())
    assert len(list(again.progress())) == 3
    assert capsys.readouterr().err.startswith("epoch 0: 4 of 4 batches")


def test_a_table_for_notebooks_escapes_what_the_user_has_named():
    loader = type("<b>", (DataLoader,), {})(type("<i>", (list,), {})([1, 2, 3]), batch_size=2)
    list(loader)
    page = loader._repr_html_() + loader.stats()._repr_html_()
    assert "&lt;i&gt; of 3 samples" in page
    assert "<i>" not in page
