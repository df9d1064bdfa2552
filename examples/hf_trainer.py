"""The Trainer of transformers: a tiny language model made on the spot, texts of many lengths, nothing downloaded.

    python examples/hf_trainer.py           # pip install 'feedline[torch]' transformers accelerate

Trainer makes its loaders itself; `with_feedline` gives that loader feedline's engine. Shows that the losses of a seeded
run are those of the plain Trainer to the bit, and the loader's statistics among the Trainer's logs.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here is on the hub

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from feedline.torch import DataLoader, Dataset, with_feedline

WORDS, TEXTS = 32, 96


class Counting(Dataset):
    """Texts that count upwards: 5 6 7 8 …; the model can learn what comes next."""

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        length = 4 + index % 9
        return {"input_ids": (torch.arange(length) + index) % (WORDS - 1) + 1}


def padded(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Texts of one length. Places without a word have the label -100, which the loss leaves out."""
    ids = torch.nn.utils.rnn.pad_sequence([each["input_ids"] for each in samples], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


class FedTrainer(Trainer):
    """The only change: the loader that Trainer has made runs on feedline's engine."""

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        self.fed = with_feedline(super().get_train_dataloader())
        return self.fed


def train(kind: type[Trainer], folder: str, workers: int = 0) -> tuple[Trainer, list[float]]:
    set_seed(7)
    size = {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=None, eos_token_id=None, **size))
    model.loss_type = "ForCausalLM"
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=4,
        per_device_train_batch_size=16,
        learning_rate=0.02,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=workers,
        dataloader_pin_memory=False,
    )
    losses: list[float] = []
    trainer = kind(model, arguments, data_collator=padded, train_dataset=Counting())
    trainer.log = lambda logs, *_: losses.extend([logs["loss"]] if "loss" in logs else [])  # instead of printing
    trainer.train()
    return trainer, losses


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        _, plain = train(Trainer, folder)
        trainer, fed = train(FedTrainer, folder, workers=2)
    inner = trainer.fed.base_dataloader
    print(f"loss {fed[0]:.2f} → {fed[-1]:.2f} in {len(fed)} steps of {type(inner).__module__}")
    same = isinstance(inner, DataLoader) and fed == plain
    print(f"the same losses as with Trainer's own loader: {'yes' if same else 'NO'}")
    print(f"  {inner.stats().total}")
    return 0 if same and fed[-1] < fed[0] else 1


if __name__ == "__main__":
    sys.exit(main())
