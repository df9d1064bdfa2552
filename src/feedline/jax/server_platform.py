"""Imported by the server that workers come from, and nowhere else: what is forked from it uses JAX on the CPU only.

A worker imports the user's script before it runs any code of ours. If that script asks JAX for its devices, a GPU's
memory would be taken there and then.
"""

import os

from feedline.jax.dialect import PLATFORM

os.environ.update(PLATFORM)
