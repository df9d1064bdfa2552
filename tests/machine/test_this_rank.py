"""Which rank is this, and of how many? What each launcher leaves in the environment, and who is asked before whom."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from shared_streams import Stream

from feedline import DataLoader, DistributedSampler, OptionError
from feedline.machine.rank_questions import VARIABLES, Questions
from feedline.machine.this_rank import ranks

SBATCH = {"SLURM_JOB_ID": "200505", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
"""What a script finds that `sbatch --ntasks=4` runs: once, whatever the number."""
SRUN = {**SBATCH, "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}
"""What each of them finds that `srun --ntasks=3` starts in such a script."""
BY_HAND = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
OMPI = {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "6"}
PMI = {"PMI_RANK": "5", "PMI_SIZE": "7"}
TORCHRUN = {"RANK": "6", "WORLD_SIZE": "8"}
TORCH = {
    "torch.distributed": SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 9, get_rank=lambda: 7
    )
}
JAX = {
    "jax": SimpleNamespace(process_count=lambda: 10, process_index=lambda: 8),
    "jax.distributed": SimpleNamespace(is_initialized=lambda: True),
}
"""Stand-ins; integrations/test_jax_ranks and torch/test_torch_ranks have the real ones."""


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for pair in VARIABLES for name in pair} | {"SLURM_JOB_ID"}:
        monkeypatch.delenv(name, raising=False)


def found(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> tuple[int, int]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return ranks(None, None, alone=True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, (1, 0), id="alone"),
        pytest.param(SBATCH, (1, 0), id="sbatch"),
        pytest.param(SRUN, (3, 2), id="srun"),
        pytest.param(BY_HAND, (2, 1), id="by hand"),
        pytest.param({**SBATCH, **OMPI}, (6, 4), id="mpirun in sbatch"),
        pytest.param({**SBATCH, **PMI}, (7, 5), id="mpiexec in sbatch"),
        pytest.param({**SRUN, **PMI}, (7, 5), id="mpiexec that starts its helpers by srun"),
        pytest.param({**BY_HAND, **OMPI}, (6, 4), id="mpirun beside variables by hand"),
        pytest.param({**SRUN, **OMPI, **PMI, **TORCHRUN}, (8, 6), id="torchrun in all of them"),
    ],
)
def test_each_launcher_is_understood(
    variables: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, variables) == expected


def test_a_script_that_sbatch_runs_once_reads_the_whole_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, SBATCH)
    for how in ("shard", None):  # and no warning that others read the same, which would be an error
        batches = list(DataLoader(Stream(20), batch_size=2, ranks=how))
        assert [number for batch in batches for number in batch[0].tolist()] == list(range(20))


def test_a_distributed_sampler_in_it_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, SBATCH)
    with pytest.raises(OptionError, match=r"SLURM_PROCID/SLURM_STEP_NUM_TASKS is set: pass both.*srun") as raised:
        DistributedSampler(range(9))
    assert "SLURM_NTASKS" not in str(raised.value)  # which is set


def test_who_looks_how_many_srun_has_started_has_asked_for_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dividing(Stream):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(int(os.environ["SLURM_PROCID"]), 20, int(os.environ["SLURM_STEP_NUM_TASKS"])))

    found(monkeypatch, SRUN)
    questions = Questions()
    with questions.watched():
        list(Dividing(20))
    assert (questions.rank, questions.count) == (True, True)
    assert len(list(DataLoader(Dividing(20), batch_size=2))) == 3
    with pytest.raises(OptionError, match="it asks for the number of ranks"):
        list(DataLoader(Dividing(20), batch_size=2, ranks="shard"))


def test_frameworks_come_before_launchers_and_torch_before_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, TORCHRUN) == (8, 6)
    for modules, expected in ((JAX, (10, 8)), (TORCH, (9, 7))):
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        assert ranks(None, None) == expected


@pytest.mark.parametrize(
    "distributed",
    [
        pytest.param(SimpleNamespace(is_initialized=lambda: False), id="not begun"),
        pytest.param(SimpleNamespace(), id="an old one, or one half imported"),
    ],
)
def test_jax_is_not_asked_for_its_processes_before_they_are_begun(
    distributed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_for_devices() -> int:
        raise AssertionError("it would look for its devices")

    jax = SimpleNamespace(process_count=look_for_devices, process_index=look_for_devices)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.distributed", distributed)
    assert found(monkeypatch, {}) == (1, 0)
    assert found(monkeypatch, TORCHRUN) == (8, 6)
