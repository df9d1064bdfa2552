"""How many threads NumPy's OpenBLAS would start here: a dataset whose samples say so."""

from __future__ import annotations

import ctypes
from pathlib import Path

from feedline import Dataset


def paths_of_openblas() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {path for line in lines if "openblas" in (path := line.split()[-1])}


class Blas(Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        for library in map(ctypes.CDLL, paths_of_openblas()):
            for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads"):
                if hasattr(library, name):
                    return int(getattr(library, name)())
        return 1
