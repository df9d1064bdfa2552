"""The commands: `feedline …` and `python -m feedline …`. Parses, calls, prints.

Takes: a command line. Gives: on standard output a page for people or, with --json, one JSON document for machines;
an exit code: 0 fine (warnings allowed), 1 a problem, 2 bad usage, 130 after Ctrl-C. With --json there is always a
document, whatever the exit code; if there is no answer, the document has the key "error".
Promises: a usage error is one sentence on standard error, without a traceback; a reader that goes away
(`| head`) changes nothing; it works with NumPy alone, and prints in colour if rich is installed.
Not its job: what the commands do (diagnose, demonstration).

A new command needs: a function that adds its arguments to a parser, a function that makes an `Answer` from them, and
an entry in `COMMANDS`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from feedline import __version__
from feedline.demonstration.command import demo, demo_options
from feedline.diagnose.bench import bench_command as bench
from feedline.diagnose.deadline import patience
from feedline.diagnose.doctor.consult import SECONDS, TIMES, doctor
from feedline.diagnose.drawing import draw_command as draw
from feedline.diagnose.explorer import explore_command as explore
from feedline.diagnose.preflight import preflight
from feedline.diagnose.quiet import aside
from feedline.diagnose.rendering import BAD, Answer, painted, width_of_terminal, write
from feedline.diagnose.target import TARGET, as_if_run, loaded_within
from feedline.diagnose.tune import tune_command as tune
from feedline.errors import FeedlineError, OptionError

USAGE, INTERRUPTED = 2, 130

_SCRIPT = "arguments after -- are passed to the script"
_EXIT_CODES = "exit codes: 0 fine (warnings allowed), 1 a problem, 2 bad usage"


class Command(NamedTuple):
    """One command."""

    name: str
    summary: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Answer]
    runs_a_script: bool = False
    """Does the command run a user's script? The arguments after `--` are then for the script."""


def _preflight_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-workers", type=int, metavar="N", help="check this many workers (default: one per CPU)")
    parser.add_argument("--prefetch-factor", type=int, metavar="P", help="batches prefetched per worker (default: 2)")
    parser.add_argument(
        "--batch-bytes",
        type=size,
        metavar="B",
        help="size of a batch, such as 38M (powers of 1024), to check that there is memory for it",
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")
    parser.add_argument(
        "--no-trial", dest="trial", action="store_false", help="skip the trial, which loads two batches"
    )
    parser.add_argument("--cuda", action="store_true", help="ask torch for its GPUs; takes as long as importing torch")
    parser.add_argument(
        "--ray",
        nargs="?",
        const=True,
        default=False,
        metavar="ADDRESS",
        help="look at each machine of a Ray cluster (default: that of RAY_ADDRESS, or one that runs here)",
    )
    for name, what in (("--package", "NAME"), ("--path", "PATH")):
        parser.add_argument(
            name, action="append", default=[], metavar=what, help="with --ray: every machine needs it (repeatable)"
        )


def _preflight(given: argparse.Namespace) -> Answer:
    on_cluster = {"ray": given.ray, "packages": given.package, "paths": given.path}
    trials = {"trial": given.trial, "cuda": given.cuda}
    found = preflight(given.num_workers, given.prefetch_factor, given.batch_bytes, **trials, **on_cluster)
    return found.answer("preflight", given.strict)


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help=TARGET)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="about how long to examine (default: 10)"
    )
    parser.add_argument(
        "--num-workers", type=int, default=2, metavar="N", help="number of workers in the run with workers (default: 2)"
    )
    parser.add_argument("--batch-size", type=int, metavar="B", help="batch size for a dataset; a loader has its own")
    parser.add_argument(
        "--against", metavar="TARGET", help="another target, such as the validation set: which samples are in both?"
    )
    parser.add_argument(
        "--label", metavar="FIELD", help="the field of a sample that is its label, if the doctor cannot tell"
    )
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="ID", help="leave this finding out (repeatable)"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 for warnings, too")


def _doctor(given: argparse.Namespace) -> Answer:
    with aside(), as_if_run(given.target, given.arguments):
        longest = patience(given.seconds, TIMES)
        found = doctor(
            loaded_within(given.target, longest),
            against=None if given.against is None else loaded_within(given.against, longest),
            seconds=given.seconds,
            num_workers=given.num_workers,
            batch_size=given.batch_size,
            label=given.label,
            ignore=given.ignore,
        )
    return found.answer("doctor", given.strict)


COMMANDS = (
    Command(
        "preflight",
        "what this machine or container offers for loading, and what to change",
        _preflight_options,
        _preflight,
    ),
    Command(
        "doctor",
        "what is wrong with a dataset or loader, why, and what to change",
        _doctor_options,
        _doctor,
        runs_a_script=True,
    ),
    Command(
        "tune",
        "how many workers, and of which kind, keep a training step busy",
        tune.options,
        tune.run,
        runs_a_script=True,
    ),
    Command(
        "explore",
        "one page that shows how loading works, on your numbers and on your runs",
        explore.options,
        explore.run,
        runs_a_script=True,
    ),
    Command(
        "draw",
        "a picture of a loader's coming epoch: classes, sources or padding in each batch, its order, its first batch",
        draw.options,
        draw.run,
        runs_a_script=True,
    ),
    Command(
        "demo",
        "trains a small classifier on images: rare classes, damaged files, a stop and exact resume, and a report",
        demo_options,
        demo,
    ),
    Command(
        "bench",
        "feedline's loader and torch's in turns, on your dataset or ours",
        bench.options,
        bench.run,
        runs_a_script=True,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, script = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = _parser(for_machines="--json" in own)
    given = parser.parse_args(own)
    command: Command | None = given.command
    if command is None:
        parser.print_help(sys.stderr)
        return USAGE
    if script and not command.runs_a_script:
        parser.error(f"{command.name} runs no script, so it takes no arguments for one: {' '.join(script)}")
    given.arguments = script
    try:
        return _run(command, given)
    except KeyboardInterrupt:
        return _failed(command.name, "interrupted", INTERRUPTED) if given.json else INTERRUPTED
    except Exception as error:  # a bug in feedline: the traceback follows on standard error
        if given.json:
            _failed(command.name, f"{type(error).__name__}: {error}", BAD)
        raise


def _run(command: Command, given: argparse.Namespace) -> int:
    try:
        answer = command.run(given)
        text = _for_machines(answer) if given.json else painted(answer.page(width_of_terminal()), sys.stdout)
        write(text, sys.stdout)
    except FeedlineError as error:
        print(f"feedline {command.name}: {error}", file=sys.stderr)
        code = USAGE if isinstance(error, OptionError) else BAD
        return _failed(command.name, str(error), code) if given.json else code
    return answer.exit_code


def _failed(command: str | None, words: str, code: int) -> int:
    """Write the JSON document that says there is no answer; returns the exit code."""
    with contextlib.suppress(FeedlineError):  # it cannot be written: that has been reported already
        write(_for_machines(Answer({"command": command, "error": words}, lambda width: [], code)), sys.stdout)
    return code


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line to people and, with --json, to machines too."""

    for_machines = False

    def error(self, message: str) -> NoReturn:
        if self.for_machines:
            _failed(self.prog.partition(" ")[2] or None, message, USAGE)
        super().error(message)


def _parser(for_machines: bool = False) -> argparse.ArgumentParser:
    parser = _Parser("feedline", description="Keeps training loops fed.", epilog=_EXIT_CODES)
    parser.for_machines = for_machines
    parser.add_argument("--version", action="version", version=f"feedline {__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        epilog = f"{_SCRIPT} · {_EXIT_CODES}" if command.runs_a_script else _EXIT_CODES
        own = commands.add_parser(
            command.name, help=command.summary, description=command.summary, epilog=epilog, allow_abbrev=False
        )
        own.for_machines = for_machines
        command.options(own)
        own.add_argument("--json", action="store_true", help="print one JSON document, for machines")
        own.set_defaults(command=command)
    return parser


def _for_machines(answer: Answer) -> str:
    document = {"feedline": __version__, **answer.data, "exit_code": answer.exit_code}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def size(text: str) -> int:
    """A size in bytes: a number, with K, M, G or T for powers of 1024.

    >>> size("1.5M"), size("38 MB"), size("2gib"), size("4096")
    (1572864, 39845888, 2147483648, 4096)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(
            f"not a size: {text!r}; write a number of bytes, or a size such as 38M or 1.5G"
        )
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " "))
