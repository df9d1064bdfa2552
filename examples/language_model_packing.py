"""Documents of very different lengths for a language model: several to a row, almost no padding.

    python examples/language_model_packing.py

Shows how full the rows are beside plain padding, that a document doesn't see its neighbours, and that the model learns.
"""

from __future__ import annotations

import sys
from itertools import islice

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from feedline.torch import DataLoader, Dataset
from feedline.torch.collate import pack, pad

WORDS, ROW, WIDTH, PADDING = 50, 256, 32, 0


class Documents(Dataset):
    """Made documents, most of them short: each counts up from a word of its own, in steps of its own."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.empty(count).log_normal_(3.5, 0.8, generator=generator).clamp(4, ROW).int().tolist()
        self.starts = torch.randint(0, WORDS, (count, 2), generator=generator).tolist()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        start, step = self.starts[index]
        return (start + (1 + step % 3) * torch.arange(self.lengths[index])) % (WORDS - 1) + 1


class Model(nn.Module):
    """One layer of attention. A place sees the places before it in its own document."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(ROW, WIDTH)
        self.attention, self.last = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(2 * WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(positions)
        same = segments[:, :, None] == segments[:, None, :]
        past = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        seen = scaled_dot_product_attention(*self.attention(x).chunk(3, -1), attn_mask=same & past)
        return self.last(torch.cat([x, seen], -1))


def loss_of(model: Model, tokens: torch.Tensor, segments: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Of the next word; the last of a document has none, and neither has padding."""
    follows = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return cross_entropy(model(tokens, segments, positions)[:, :-1][follows], tokens[:, 1:][follows])


def documents_are_apart(model: Model, data: Documents) -> bool:
    """Does a document get the same answer alone and in a row with others?"""
    batch = next(iter(DataLoader(data, batch_size=16, collate=pack(ROW, PADDING))))
    together = model(*batch)
    for number in range(16):
        tokens = data[number][None]
        alone = model(tokens, torch.ones_like(tokens), torch.arange(tokens.shape[1])[None])
        if not torch.allclose(together[batch.segments == number + 1], alone[0], atol=1e-4):
            return False
    return True


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves the other cores to the workers
    data, model = Documents(2000, seed=1), Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    with DataLoader(data, 200, shuffle=True, num_workers=2, collate=pack(ROW, PADDING)) as loader:
        for _ in range(2):
            for batch in loader:
                loss = loss_of(model, *batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        fill = loader.stats().collate.fill
    padded = DataLoader(data, 200, collate=pad(PADDING))
    _ = list(islice(padded, 5))
    print(f"loss: {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
    with torch.no_grad():
        apart = documents_are_apart(model, data)
    print(f"filled: {fill:.1%} of the places in packed rows, {1 - padded.stats().collate.padding:.0%} of padded ones")
    print(f"a document's answers depend on its neighbours: {'no' if apart else 'YES'}")
    return 0 if apart and fill > 0.97 and losses[-1] < losses[0] / 2 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
