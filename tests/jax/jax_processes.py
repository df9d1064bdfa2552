"""Runs functions of test files in processes that have imported JAX, with as many emulated devices as a test wants.

Takes: a function of a test file. Gives: `in_jax`, which runs a whole test so, and `in_processes`, which runs a function
in several processes of one JAX job and gives what each returned. Promises: any warning in such a process is an error.
Not its job: what is tested.

JAX has threads of its own and warns of every fork, so it is not imported in the process of the tests.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import socket
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from warm_host import Host, host

from feedline.machine.rank_questions import VARIABLES

HERE = Path(__file__).parent
LONG = 400
CHILD = """
import sys, warnings
sys.path[:0] = {paths}
warnings.resetwarnings()
warnings.simplefilter("error")
from jax_processes import child
child(*{arguments})
"""


def jax_host() -> Host:
    return host("jax", "orbax.checkpoint", "feedline.jax.loader", "pytest")


def in_jax(devices: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test runs in a process with JAX; its arguments must be plain values or paths."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def wrapper(**arguments: Any) -> None:
            _run(test, devices, arguments)

        wrapper.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def in_processes(function: Callable[..., Any], count: int, devices: int = 1, **arguments: Any) -> list[Any]:
    """What the function returns in each of `count` processes of a job, with `devices` each."""
    jax_host()  # here, and not in several threads at once
    with socket.socket() as held:  # so that the port stays free for who may share it: gRPC, which asks for that
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with ThreadPoolExecutor(count) as threads:
            run = functools.partial(_run, function, devices, arguments)
            return list(threads.map(run, [(port, count, number) for number in range(count)]))


def _run(function: Any, devices: int, arguments: dict[str, Any], job: tuple[int, int, int] | None = None) -> Any:
    launchers = {name for pair in VARIABLES for name in pair}
    environment = {name: value for name, value in os.environ.items() if name not in launchers}
    environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    with tempfile.NamedTemporaryFile("r") as result:
        told = function.__module__, function.__name__, plain, job, result.name
        code = CHILD.format(paths=[str(HERE.parent), str(HERE)], arguments=told)
        done = jax_host().run(["-c", code], timeout=LONG, env=environment)
        assert done.returncode == 0, f"process {job}:\n{done.stdout}{done.stderr}"
        return json.loads(result.read() or "null")


def child(module: str, name: str, arguments: dict[str, Any], job: tuple[int, int, int] | None, result: str) -> None:
    """In the process: call the function and write down what it returns."""
    import importlib

    import jax

    function = inspect.unwrap(getattr(importlib.import_module(module), name))
    if job is not None:
        port, count, number = job
        address = f"127.0.0.1:{port}"
        jax.distributed.initialize(address, count, number, coordinator_bind_address=address)
    Path(result).write_text(json.dumps(function(**arguments)))
    if job is not None:
        jax.distributed.shutdown()
