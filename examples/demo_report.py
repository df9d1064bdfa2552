"""The demo's report: one HTML file with everything inside, for a phone, a desk or a dark room."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from feedline.drawing.charts import Axis, Series, line_chart


@dataclass
class Epoch:
    """What an epoch of training measured."""

    number: int
    seen: int = 0
    right: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0
    validation: float = 0.0

    @property
    def accuracy(self) -> float:
        return self.right / max(self.seen, 1)

    @property
    def images_per_second(self) -> float:
        return self.seen / max(self.seconds, 1e-9)

    @property
    def waited_share(self) -> float:
        return self.waited / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Guess:
    """A validation image, what it shows and what the classifier took it for."""

    path: Path
    truth: str
    guess: str


Line = tuple[str, list[float]]


def write_report(path: Path, epochs: list[Epoch], guesses: list[Guess], classes: Sequence[str]) -> None:
    waits = [epoch.waited_share for epoch in epochs]
    charts = [
        chart("Loss", [("training", [epoch.loss for epoch in epochs])], "{:.2f}".format),
        chart(
            "Accuracy",
            [("training", [e.accuracy for e in epochs]), ("validation", [e.validation for e in epochs])],
            "{:.0%}".format,
        ),
        chart("Images per second", [("loaded", [e.images_per_second for e in epochs])], "{:,.0f}".format),
        chart("Share of time spent waiting for data", [("waiting", waits)], "{:.0%}".format),
    ]
    path.write_text(
        PAGE.format(
            summary=summary(epochs),
            charts="\n".join(charts),
            table=by_class(guesses, classes),
            images="\n".join(picture(guess) for guess in chosen(guesses)),
        ),
        encoding="utf-8",
    )


def summary(epochs: list[Epoch]) -> str:
    seen, seconds = sum(epoch.seen for epoch in epochs), sum(epoch.seconds for epoch in epochs)
    facts = {
        "validation accuracy": f"{epochs[-1].validation:.1%}",
        "images per second": f"{seen / seconds:,.0f}",
        "of the time waiting": f"{sum(epoch.waited for epoch in epochs) / seconds:.0%}",
        "images in all": f"{seen:,}",
    }
    cards = (f"<div><strong>{value}</strong><span>{name}</span></div>" for name, value in facts.items())
    return "\n".join(cards)


def chart(title: str, lines: list[Line], label: Callable[[float], str]) -> str:
    """A line chart over the epochs, as SVG in the page."""
    series = [Series(f"{name} {label(values[-1])}", list(enumerate(values, 1)), dotted=True) for name, values in lines]
    return f"<figure>{line_chart(title, series, Axis('epoch', whole=True), Axis(label=label), 380, 230)}</figure>"


def by_class(guesses: list[Guess], classes: Sequence[str]) -> str:
    """For each class: how many, how many of them right, and what the wrong ones were mostly taken for."""
    lines = []
    for name in classes:
        of_class = [guess for guess in guesses if guess.truth == name]
        wrong = [guess.guess for guess in of_class if guess.guess != name]
        right = len(of_class) - len(wrong)
        taken_for = max(set(wrong), key=wrong.count) if wrong else "—"
        cells = (name, len(of_class), f"{right / max(len(of_class), 1):.0%}", taken_for)
        lines.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    return "\n".join(lines)


def chosen(guesses: list[Guess], count: int = 12) -> list[Guess]:
    """Some of the wrong ones first (they are the interesting ones), then right ones."""
    wrong = [guess for guess in guesses if guess.truth != guess.guess][: count // 3]
    right = [guess for guess in guesses if guess.truth == guess.guess][: count - len(wrong)]
    return wrong + right


def picture(guess: Guess) -> str:
    data = base64.b64encode(guess.path.read_bytes()).decode()
    mark = "right" if guess.truth == guess.guess else "wrong"
    text = guess.truth if mark == "right" else f"{guess.truth}, taken for {guess.guess}"
    return (
        f'<figure class="{mark}"><img src="data:image/jpeg;base64,{data}" alt="{escape(guess.truth)}">'
        f"<figcaption>{escape(text)}</figcaption></figure>"
    )


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>feedline demo</title>
<style>
  :root {{ color-scheme: light dark; --ground: #fbfaf7; --card: #fff; --ink: #20242a; --faint: #6a7078;
    --rule: #e3e1da; --wrong: #b4541a; }}
  @media (prefers-color-scheme: dark) {{ :root {{ --ground: #15181c; --card: #1d2126; --ink: #e8e6e1;
    --faint: #9aa1a9; --rule: #32373e; --wrong: #f0a060; }} }}
  body {{ margin: 0 auto; max-width: 62rem; padding: 1.2rem; background: var(--ground); color: var(--ink);
    font: 16px/1.5 system-ui, sans-serif; }}
  h1 {{ margin: 0; font-size: 1.5rem; }} h2 {{ margin: 2rem 0 .6rem; font-size: 1.1rem; }}
  p {{ color: var(--faint); margin: .3rem 0 1.2rem; }}
  .facts, .charts, .images {{ display: grid; gap: .8rem; }}
  .facts {{ grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); margin-bottom: .8rem; }}
  .charts {{ grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }}
  .images {{ grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }}
  .facts div {{ background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
    padding: .7rem .9rem; }}
  .facts strong {{ display: block; font-size: 1.4rem; }}
  .facts span {{ color: var(--faint); font-size: .85rem; }}
  figure {{ margin: 0; }} figcaption {{ font-size: .85rem; }}
  svg {{ display: block; width: 100%; height: auto; }}
  .images img {{ width: 100%; border-radius: .4rem; display: block; }}
  .wrong figcaption {{ color: var(--wrong); }}
  table {{ border-collapse: collapse; width: 100%; max-width: 32rem; font-size: .9rem; }}
  td, th {{ text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }}
</style>
<h1>feedline demo</h1>
<p>A NumPy classifier, trained on JPEG files through a feedline DataLoader; metadata from SQLite.</p>
<section class="facts">
{summary}
</section>
<section class="charts">
{charts}
</section>
<h2>Validation by class</h2>
<table><tr><th>class</th><th>images</th><th>right</th><th>mostly mistaken for</th></tr>
{table}
</table>
<h2>Some of the validation images</h2>
<section class="images">
{images}
</section>
</html>
"""
