"""docs/preflight.md quotes what is said, names what there is, and its files can be read."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from feedline import cli
from feedline.diagnose.preflight_checks import remedies
from feedline.diagnose.preflight_checks import system_limits as files

HERE = Path(__file__).parents[2]
PAGE = (HERE / "docs" / "preflight.md").read_text()
CHECKS = HERE / "src" / "feedline" / "diagnose" / "preflight_checks"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_quoted_output_is_still_said() -> None:
    (comment,) = re.findall(r"<!-- fixed: (.*?) -->", PAGE)
    (block,) = blocks("text")
    as_one = re.sub(r"\s+", " ", block)
    trees = [ast.parse(path.read_text()) for path in CHECKS.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    strings = [node.value for node in nodes if isinstance(node.value, str)]
    for phrase in map(str.strip, comment.split("|")):
        assert phrase in as_one
        assert any(phrase in string for string in strings), f"feedline no longer says: {phrase}"


def test_every_finding_is_on_the_page_and_no_other() -> None:
    source = "".join(path.read_text() for path in CHECKS.glob("*.py"))
    made = set(re.findall(r'Finding\(\s*"([a-z-]+)"', source))
    (table,) = re.findall(r"\| id \| what .*?\n\n", PAGE, re.DOTALL)
    named = {name for row in table.strip().splitlines() for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert made == named


def test_every_option_is_on_the_page_and_no_other() -> None:
    parser = cli._parser()
    said = next(iter(parser._subparsers._group_actions[0].choices.values())).format_help()  # type: ignore[union-attr]
    options = set(re.findall(r"--[a-z-]+", said)) - {"--help"}
    table = re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)
    assert sorted(table) == sorted(options)
    for command in re.findall(r"feedline preflight([^\n|&]*)", PAGE):
        assert set(re.findall(r"(?<!\S)--[a-z-]+", command)) <= options


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    assert f"{files.PER_WORKER} each and {files.PER_LOADER} besides" in PAGE


@pytest.mark.parametrize("flag", ["--cpus=", "--memory=", "--pids-limit=", "--ulimit nofile=", "--gpus all"])
def test_the_flags_on_the_page_are_those_of_the_remedies(flag: str) -> None:
    text = remedies.more_cpus(1) + remedies.more_memory(1) + remedies.more_processes(1)
    text += remedies.OPEN_FILES + remedies.GPUS
    assert flag in text
    assert flag in "".join(blocks("sh"))


def test_the_yaml_can_be_read_and_means_what_it_says() -> None:
    yaml = pytest.importorskip("yaml")
    compose, pod = (yaml.safe_load(block) for block in blocks("yaml"))
    assert compose["services"]["train"]["ulimits"]["nofile"]["soft"] == 65536
    (check,), (train,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert check["resources"] == train["resources"]
    assert check["resources"]["limits"]["cpu"] == "4"
    for command in (check["command"], train["livenessProbe"]["exec"]["command"]):
        assert cli._parser().parse_args(command[1:]).num_workers == 4
    for text in (remedies.more_cpus(2), remedies.more_memory(1), remedies.SHARED_MEMORY, remedies.GPUS):
        for line in re.findall(r"^#\s+(?:Compose|Kubernetes)?:?\s*(\w.*)$", text, re.MULTILINE):
            assert isinstance(yaml.safe_load(line), dict), line


def test_the_entry_point_of_the_dockerfile_is_json() -> None:
    (docker,) = blocks("dockerfile")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", docker, re.MULTILINE)
    shell, flag, command, _ = json.loads(entry)
    assert (shell, flag) == ("sh", "-c")
    assert command.endswith('&& exec python train.py "$@"')
    assert "|| exit 1" in docker


def test_the_code_on_the_page_runs() -> None:
    (code,) = blocks("python")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words: None)
        exec(code.replace("batch_bytes=38 << 20", "batch_bytes=1, trial=False"), {})


@pytest.mark.parametrize("page", ["docs/zensical.toml", "docs/design.md"])
def test_it_is_linked(page: str) -> None:
    assert "preflight.md" in (HERE / page).read_text()
