"""Findings as data and as a page: the worst of them, the exit codes, JSON of any evidence, lines of any width."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.diagnose.findings import SEVERITIES, Finding, as_plain, worst
from feedline.diagnose.rendering import NARROWEST, Findings, page, plain
from feedline.errors import OptionError


def test_an_unknown_severity_is_refused() -> None:
    with pytest.raises(OptionError, match="severity"):
        Finding("a", "dreadful", "b")


findings = st.lists(
    st.builds(
        Finding,
        id=st.just("one"),
        severity=st.sampled_from(SEVERITIES),
        title=st.text("a title ", min_size=1),
        explanation=st.text("word ,.", max_size=300),
        remedy=st.text("do it ", max_size=200),
        code=st.text("code(…)\n", max_size=200),
    ),
    max_size=6,
)


@given(findings)
def test_the_worst_and_the_exit_codes(found: list[Finding]) -> None:
    severities = {finding.severity for finding in found} | {"ok"}
    assert worst(found) == next(each for each in reversed(SEVERITIES) if each in severities)
    answer = Findings(found, "x").answer("x")
    strict = Findings(found, "x").answer("x", strict=True)
    assert answer.exit_code == ("problem" in severities)
    assert strict.exit_code == bool({"problem", "warning"} & severities)
    assert [each["severity"] for each in answer.data["findings"]] == [each.severity for each in found]


@given(findings, st.integers(NARROWEST, 120))
def test_a_page_holds_to_its_width_but_never_breaks_code(found: list[Finding], width: int) -> None:
    lines = page("heading", found, width)
    code = {"    " + row for finding in found if finding.severity != "ok" for row in finding.code.splitlines()}
    assert code <= {line.text for line in lines}
    for line in lines[:-1]:
        assert line.text in code or len(line.label + line.text) <= width
        assert "\n" not in line.text
    assert plain(lines).count("\n") == len(lines)


def test_evidence_of_any_kind_can_be_written() -> None:
    nan, inf = float("nan"), float("inf")
    odd = {
        1: (2.5, nan),
        None: [-inf, {"deep": np.float32("inf")}],
        "b": b"\xff",
        "c": 1j,
        "d": np.array([nan]),
        "e": len,
    }
    written = json.loads(json.dumps(as_plain(odd), allow_nan=False))
    assert written["1"] == [2.5, "nan"]
    assert written["None"] == ["-inf", {"deep": "inf"}]
    assert written["d"] == ["nan"]


def test_evidence_of_numpys_is_pythons() -> None:
    given = {
        "a": np.float32(1.5),
        "b": np.arange(3),
        "c": np.int64(7),
        "d": np.bool_(True),
        "e": {2, 1},
    }
    plain = as_plain(given)
    assert plain == {"a": 1.5, "b": [0, 1, 2], "c": 7, "d": True, "e": [1, 2]}
    assert json.dumps(plain)
    assert as_plain(Path("/x")) == "/x"
