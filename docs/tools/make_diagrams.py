"""Draws the pictures that explain scope-judge, as SVG files for light and dark pages.

Numbers come from a service with the bundled judge, which the script runs.

Usage: python -m docs.tools.make_diagrams      (half a minute)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx

from docs.tools.running_service import running_service

FOLDER = Path(__file__).resolve().parents[1]
ALPHA = 0.05
# Two pairs that the demo judge reads in both orders: it has learned the first task only.
CERTAIN = ("Write this word backwards: tulip", "pilut", "piltu")
UNCERTAIN = ("What is 48 + 27?", "75", "76")
# An SVG in an <img> sees the reader's color scheme, and no style of the page.
STYLE = """
svg { --ink: #1f2328; --soft: #59636e; --line: #8c959f; --card: #f6f8fa; --page: #ffffff;
  --blue: #0072b2; --blue-card: #ddf0fb; --orange: #b54708; --orange-card: #fdeadf;
  font-family: -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9da7b3; --line: #6e7681; --card: #1c2330; --page: #0d1117;
    --blue: #58b4e8; --blue-card: #12314a; --orange: #f0a070; --orange-card: #43260f; } }
.page { fill: var(--page); }
.card { fill: var(--card); stroke: var(--line); }
.blue { fill: var(--blue-card); stroke: var(--blue); }
.orange { fill: var(--orange-card); stroke: var(--orange); }
.arrow { stroke: var(--line); fill: none; stroke-width: 1.6; marker-end: url(#head); }
.axis { stroke: var(--line); fill: none; }
.curve { stroke: var(--blue); fill: none; stroke-width: 2.5; }
.limit { stroke: var(--orange); fill: none; stroke-width: 1.6; stroke-dasharray: 6 4; }
text { fill: var(--ink); font-size: 15px; }
.strong { font-weight: 600; }
.soft { fill: var(--soft); font-size: 13px; }
.blue-text { fill: var(--blue); }
.orange-text { fill: var(--orange); }
"""
Kind = Literal["card", "blue", "orange"]
_LINE = 21


@dataclass(kw_only=True)
class Drawing:
    """A picture that grows by shapes; lengths are in pixels from the upper left corner.

    Args:
        width: Its width.
        height: Its height.
        title: Text for people who do not see it.
    """

    width: int
    height: int
    title: str
    _shapes: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, lines: Sequence[str], kind: Kind = "card") -> None:
        """Draws a card whose upper edge is at `y`; its first line is bold, the rest is small."""
        height = 20 + _LINE * len(lines)
        self._shapes.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        )
        for i, line in enumerate(lines):
            style = "soft" if i else "strong"
            self.text(x + width // 2, y + 10 + _LINE * i + 15, line, style, anchor="middle")

    def text(
        self, x: float, y: float, text: str, style: str = "", *, anchor: str = "start"
    ) -> None:
        """Writes a line whose baseline is at `y`."""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._shapes.append(f'<text class="{style}" {place}>{escape(text)}</text>')

    def line(self, points: Iterable[tuple[float, float]], style: str = "arrow") -> None:
        """Draws a line through the points; an "arrow" has a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._shapes.append(f'<polyline class="{style}" points="{path}"/>')

    def write(self, file: Path) -> None:
        """Writes the picture."""
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" fill="#8c959f"/></marker>'
        )
        size = (
            f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<style>{STYLE}</style><defs>{head}</defs>",
            '<rect class="page" width="100%" height="100%"/>',
            *self._shapes,
            "</svg>",
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def judgment() -> Drawing:
    """The way of one comparison from the request to the verdict."""
    drawing = Drawing(
        width=960,
        height=330,
        title="A comparison becomes two prompts; their probabilities are averaged, and the "
        "entropy of the average is compared with a threshold.",
    )
    drawing.box(20, 120, 150, ["Comparison", "question,", "responses A and B"])
    drawing.box(220, 60, 150, ["Prompt 1", "A is shown first"])
    drawing.box(220, 200, 150, ["Prompt 2", "B is shown first"])
    drawing.box(420, 120, 130, ["Judge", "both prompts in", "one batched call"], "blue")
    drawing.box(
        600, 120, 150, ["Average p_bar", "of p_fwd and p_rev;", "its entropy is the", "uncertainty"]
    )
    drawing.box(810, 40, 130, ["A or B", "not above", "the threshold"], "blue")
    drawing.box(810, 210, 130, ["abstain", "above", "the threshold"], "orange")
    drawing.line([(170, 145), (215, 90)])
    drawing.line([(170, 175), (215, 230)])
    drawing.line([(370, 90), (415, 145)])
    drawing.line([(370, 230), (415, 175)])
    drawing.line([(550, 160), (595, 160)])
    drawing.line([(750, 150), (805, 90)])
    drawing.line([(750, 185), (805, 240)])
    drawing.text(
        480, 305, "Your labeled pairs set the threshold for your alpha.", "soft", anchor="middle"
    )
    return drawing


def both_orders(answers: Sequence[dict[str, Any]]) -> Drawing:
    """Two pairs in both orders, with the probabilities of the demo judge."""
    drawing = Drawing(
        width=960,
        height=330,
        title="Two pairs, judged in both orders: one verdict, one abstention.",
    )
    headings = ("pair", "A first", "B first", "average", "uncertainty", "answer")
    columns = (20, 330, 450, 570, 690, 820)
    for x, heading in zip(columns, headings, strict=True):
        drawing.text(x, 40, heading, "soft")
    drawing.line([(20, 52), (940, 52)], "axis")
    for row, ((question, a, b), answer) in enumerate(
        zip((CERTAIN, UNCERTAIN), answers, strict=True)
    ):
        y = 90 + 110 * row
        drawing.text(20, y, question, "strong")
        drawing.text(20, y + 24, f"A: {a}, B: {b}")
        for x, name in zip(columns[1:4], ("p_fwd", "p_rev", "p_bar"), strict=True):
            drawing.text(x, y, f"{answer[name]:.3f}")
        drawing.text(columns[4], y, f"{answer['uncertainty']:.5f}")
        accepted = answer["verdict"] != "abstain"
        drawing.text(
            columns[5], y, answer["verdict"], f"strong {'blue' if accepted else 'orange'}-text"
        )
        sign = "not above" if accepted else "above"
        drawing.text(columns[5], y + 24, f"{sign} {answer['threshold']:.5f}", "soft")
    drawing.line([(20, 270), (940, 270)], "axis")
    drawing.text(
        20,
        300,
        "Each probability is that of A being better. In the second pair the judge prefers the "
        "response that it reads first.",
        "soft",
    )
    return drawing


def curve(found: dict[str, Any]) -> Drawing:
    """The share of errors among accepted pairs by threshold, and the chosen threshold."""
    points = found["curve"]
    (row,) = (
        row
        for row in found["thresholds"]
        if row["guarantee"] == "marginal" and row["alpha"] == ALPHA
    )
    drawing = Drawing(
        width=960, height=420, title="Errors among the accepted pairs rise with the threshold."
    )
    left, bottom, top = 90, 340, 50
    highest = max(point["empirical_risk"] for point in points) * 1.15

    def place(coverage: float, risk: float) -> tuple[float, float]:
        return left + 800 * coverage, bottom - (bottom - top) * risk / highest

    drawing.line([place(0, highest), place(0, 0), place(1, 0)], "axis")
    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x, y = place(share, 0)
        drawing.text(x, y + 22, f"{share:.0%}", "soft", anchor="middle")
    for share in (0.0, 0.05, 0.10, 0.15):
        x, y = place(0, share)
        drawing.text(x - 10, y + 5, f"{share:.0%}", "soft", anchor="end")
    drawing.line([place(0, ALPHA), place(1, ALPHA)], "limit")
    x, y = place(0, ALPHA)
    drawing.text(x + 10, y - 8, f"alpha = {ALPHA:.0%}", "orange-text")
    drawing.line([place(point["coverage"], point["empirical_risk"]) for point in points], "curve")
    chosen = max(
        (point for point in points if point["uncertainty"] <= row["threshold"]),
        key=lambda point: point["coverage"],
    )
    x, y = place(chosen["coverage"], chosen["empirical_risk"])
    drawing.line([(x, bottom), (x, top + 42)], "limit")
    drawing.text(
        x - 10, top + 14, f"threshold {row['threshold']:.5f} nats:", "strong", anchor="end"
    )
    drawing.text(
        x - 10,
        top + 36,
        f"{chosen['coverage']:.0%} of the pairs get a verdict, "
        f"{chosen['empirical_risk']:.1%} of these are wrong",
        "soft",
        anchor="end",
    )
    drawing.text(
        490,
        395,
        f"coverage: share of the {found['n']} labeled pairs whose uncertainty is not above the "
        "threshold",
        "soft",
        anchor="middle",
    )
    drawing.text(20, 30, "wrong verdicts among the accepted", "soft")
    return drawing


def audit() -> Drawing:
    """The states of an audit."""
    drawing = Drawing(
        width=960, height=330, title="An audit is drawn, labeled and counted, or it expires."
    )
    drawing.box(20, 60, 150, ["Judgment", "of your traffic"])
    drawing.box(240, 60, 170, ["Open audit", "drawn at random", "with a known rate"], "blue")
    drawing.box(480, 60, 170, ["Labeled", "by a person who does", "not see the verdict"], "blue")
    drawing.box(730, 60, 210, ["Monitor", "error rate, evidence", "against the promise, alarm"])
    drawing.box(240, 220, 170, ["Expired", "nobody labeled it"], "orange")
    drawing.box(480, 220, 170, ["Closed", "nobody can label it"], "orange")
    drawing.box(730, 220, 210, ["Calibration set", "absorb: new thresholds"])
    drawing.line([(170, 90), (235, 90)])
    drawing.line([(410, 95), (475, 95)])
    drawing.line([(650, 95), (725, 95)])
    drawing.line([(325, 143), (325, 215)])
    drawing.line([(395, 143), (500, 215)])
    drawing.line([(620, 143), (735, 215)])
    drawing.text(315, 185, "SCOPE_AUDIT_EXPIRES_S", "soft", anchor="end")
    return drawing


def cascade() -> Drawing:
    """A cheap judge first, a better one for its abstentions, and people for the rest."""
    drawing = Drawing(
        width=960,
        height=300,
        title="Abstentions of a cheap judge go to a better one, then to people.",
    )
    drawing.box(20, 60, 140, ["All pairs"])
    drawing.box(230, 50, 190, ["Cheap judge", "calibrated on a sample", "of all pairs"], "blue")
    drawing.box(
        490, 50, 190, ["Better judge", "calibrated on pairs that", "the first abstains on"], "blue"
    )
    drawing.box(750, 60, 180, ["People", "label the rest"], "orange")
    drawing.line([(160, 82), (225, 82)])
    drawing.line([(420, 82), (485, 82)])
    drawing.line([(680, 82), (745, 82)])
    drawing.text(452, 70, "abstain", "soft orange-text", anchor="middle")
    drawing.text(712, 70, "abstain", "soft orange-text", anchor="middle")
    drawing.box(230, 220, 190, ["A or B"])
    drawing.box(490, 220, 190, ["A or B"])
    drawing.box(750, 220, 180, ["A or B"])
    for x in (325, 585, 840):
        drawing.line([(x, 134 if x < 800 else 123), (x, 215)])
    return drawing


def main() -> None:
    """Asks the bundled judge, and writes the pictures."""
    with (
        TemporaryDirectory() as folder,
        running_service(Path(folder)) as url,
        httpx.Client(base_url=url, timeout=600) as client,
    ):
        names = ("question", "response_a", "response_b")
        answers = [
            client.post("/judge", json={**dict(zip(names, pair, strict=True)), "alpha": ALPHA})
            .raise_for_status()
            .json()
            for pair in (CERTAIN, UNCERTAIN)
        ]
        calibration = client.get("/calibrations/default").raise_for_status().json()
    both_orders(answers).write(FOLDER / "concepts" / "both-orders.svg")
    curve(calibration).write(FOLDER / "concepts" / "curve.svg")
    judgment().write(FOLDER / "judgment.svg")
    audit().write(FOLDER / "guides" / "audit.svg")
    cascade().write(FOLDER / "guides" / "cascade.svg")


if __name__ == "__main__":
    main()
