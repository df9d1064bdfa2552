"""Texts of different lengths in one batch: pad to the longest, and a mask that says what is text.

    python examples/variable_length_text.py

Shows how much of each batch is padding, that the model doesn't see it, and that it learns.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from feedline.torch import DataLoader, Dataset
from feedline.torch.collate import pad, stack

WORDS, PADDING, EPOCHS = 200, 0, 3
COLLATE = (pad(PADDING), stack)  # a text becomes (words, mask, lengths), a label an entry of a tensor


class Reviews(Dataset):
    """Made texts of 20 to 60 words. A good one has more words from the upper half of the vocabulary."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(20, 61, (count,), generator=generator)
        self.labels = torch.randint(0, 2, (count,), generator=generator)
        self.texts = []
        for length, label in zip(lengths.tolist(), self.labels.tolist(), strict=True):
            upper = torch.rand(length, generator=generator) < (0.7 if label else 0.3)
            words = torch.randint(1, WORDS // 2, (length,), generator=generator)
            self.texts.append(words + upper * (WORDS // 2))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.texts[index], self.labels[index]


class Reader(nn.Module):
    """The mean of the words' vectors, over the words that are there."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(WORDS, 16)
        self.last = nn.Linear(16, 2)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        vectors = self.vectors(words) * mask[..., None]
        return self.last(vectors.sum(1) / mask.sum(1, keepdim=True))


def train(model: nn.Module, loader: DataLoader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(EPOCHS):
        for (words, mask, _), labels in loader:
            loss = nn.functional.cross_entropy(model(words, mask), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: last loss {loss.item():.3f}")


def padding_is_unseen(model: nn.Module, data: Reviews) -> bool:
    """Does a text get the same answer alone and padded in a batch?"""
    (words, mask, _), _ = next(iter(DataLoader(data, batch_size=16, collate=COLLATE)))
    together = model(words, mask)
    alone = torch.cat([model(text[None], torch.ones(1, len(text))) for text in data.texts[:16]])
    return torch.allclose(together, alone, atol=1e-5)


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves the other cores to the workers
    options = {"batch_size": 32, "collate": COLLATE}
    training, validation = Reviews(2000, seed=1), Reviews(400, seed=2)
    model = Reader()
    with DataLoader(training, shuffle=True, num_workers=2, persistent_workers=True, **options) as loader:
        train(model, loader)
        share = loader.stats().collate.padding
    with torch.no_grad():
        unseen = padding_is_unseen(model, validation)
        batches = DataLoader(validation, **options)
        right = sum(int((model(words, mask).argmax(1) == labels).sum()) for (words, mask, _), labels in batches)
    print(
        f"padding: {share:.0%} of the places in a batch; the model's answers depend on it: {'no' if unseen else 'YES'}"
    )
    print(f"validation accuracy {right / len(validation):.1%}")
    return 0 if unseen and right / len(validation) > 0.8 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
