"""Compares the paper's printed figures with those of a model.

Usage: python -m docs.tools.make_normal_world      (two minutes on one core)

It prints every figure, and writes the summary of docs/measured/reproduce.md.

The model is the normal world of docs/design/guarantees.md: a judge is nothing but its accuracy and
its AUROC, as the paper prints them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import brentq

from app.core.preference import LN2
from app.evaluation import paper
from app.evaluation.metrics import Quality, auprc
from app.evaluation.normal_world import NormalJudge
from app.evaluation.selectors import Points, RiskTarget, Selector, naive, scope
from tests.markdown import between_markers, table

PAGE = Path(__file__).parents[1] / "measured" / "reproduce.md"
SEED = 2026
CALIBRATIONS = 500
# Half of the paper's 2,000 pairs.
CALIBRATION_PAIRS = 1000
RANKED_PAIRS = 200_000
# Larger distances are explained on the page.
NEAR = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A printed figure and that of the model."""

    judge: str
    dataset: str
    what: str
    printed: float
    modelled: float

    @property
    def distance(self) -> float:
        """The model's figure minus the paper's."""
        return self.modelled - self.printed


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """How a threshold is calibrated in the model.

    Args:
        judge: The judge.
        selector: The rule.
        alpha: In (0, 1).
        pairs: Number of calibration pairs.
        noise: Share of flipped calibration labels.
    """

    judge: NormalJudge
    selector: Selector = scope
    alpha: float = paper.ALPHA
    pairs: int = CALIBRATION_PAIRS
    noise: float = 0.0

    def outcome(self, rng: np.random.Generator) -> tuple[float, float]:
        """Mean coverage and mean risk, which is 0 where nothing is accepted."""
        target = RiskTarget(self.alpha, 0.1)
        thresholds = []
        for _ in range(CALIBRATIONS):
            uncertainty, wrong = self.judge.draw(self.pairs, rng)
            flipped = np.zeros(self.pairs, np.bool_)
            flipped[rng.permutation(self.pairs)[: round(self.noise * self.pairs)]] = True
            thresholds.append(self.selector(Points.of(uncertainty, wrong ^ flipped), target))
        coverage, risk = self.judge.truth(np.array(thresholds))
        return float(coverage.mean()), float(risk.mean())


def rows_of(name: str) -> list[Mapping[str, Any]]:
    """The rows of a table, as printed."""
    content = paper.tables()[name]
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]


def judge_of(row: Mapping[str, Any], method: str) -> NormalJudge:
    """The judge of a row, with the accuracy and AUROC of a method."""
    quality = quality_of(row, method)
    assert quality.accuracy is not None
    assert quality.auroc is not None
    return NormalJudge(accuracy=quality.accuracy, auroc=quality.auroc)


def quality_of(row: Mapping[str, Any], method: str) -> Quality:
    """The quality of a method that the paper prints for the judge and data set of a row."""
    quality = paper.quality(row["judge"], paper.our_name(row["dataset"]), method)
    assert quality is not None
    return quality


def auprc_pairs(rng: np.random.Generator) -> Iterator[Pair]:
    """AUPRC of each row that prints accuracy and AUROC."""
    tables = ("uncertainty", "uncertainty_extended", "skywork_uncertainty", "self_consistency")
    for row in (row for name in tables for row in rows_of(name)):
        judge = NormalJudge(accuracy=row["accuracy"], auroc=row["auroc"])
        uncertainty, wrong = judge.draw(RANKED_PAIRS, rng)
        modelled = auprc(-uncertainty, ~wrong)
        assert modelled is not None
        yield Pair(
            judge=row["judge"],
            dataset=row["dataset"],
            what=row["method"],
            printed=row["auprc"],
            modelled=modelled,
        )


def risk_pairs(rng: np.random.Generator) -> Iterator[Pair]:
    """Coverage and risk of Vanilla, Naive and SCOPE."""
    for row in rows_of("risk_coverage"):
        rule = row["selector"]
        if rule == "Vanilla":
            wrong = 1.0 - judge_of(row, "predictive_probability").accuracy
            yield from _coverage_and_risk(row, rule, (1.0, wrong))
        elif rule == "Naive":
            judge = judge_of(row, "predictive_probability")
            outcome = Setting(judge=judge, selector=naive).outcome(rng)
            yield from _coverage_and_risk(row, rule, outcome)
        elif rule == "SCOPE":
            outcome = Setting(judge=judge_of(row, "bpe")).outcome(rng)
            yield from _coverage_and_risk(row, rule, outcome)


def further_pairs(rng: np.random.Generator) -> Iterator[Pair]:
    """SCOPE in the smaller tables on risk, and in the text."""
    for row in (*rows_of("risk_coverage_extended"), *rows_of("skywork_risk")):
        outcome = Setting(judge=judge_of(row, "bpe")).outcome(rng)
        yield from _coverage_and_risk(row, "SCOPE", outcome)
    for row in rows_of("coverage_by_alpha"):
        judge, alpha = judge_of(row, "bpe"), row["alpha"]
        coverage, _ = Setting(judge=judge, alpha=alpha).outcome(rng)
        yield _pair(row, f"coverage at alpha {alpha:.2f}", row["coverage"], coverage)


def ablation_pairs(table: str, column: str, rng: np.random.Generator) -> Iterator[Pair]:
    """SCOPE with noisy labels, or with other numbers of calibration pairs."""
    for row in rows_of(table):
        judge, value = judge_of(row, "bpe"), row[column]
        if column == "n":
            outcome = Setting(judge=judge, pairs=value).outcome(rng)
        else:
            outcome = Setting(judge=judge, noise=value).outcome(rng)
        yield from _coverage_and_risk(row, f"{column} {value:g}", outcome)


def _coverage_and_risk(
    row: Mapping[str, Any], what: str, outcome: tuple[float, float]
) -> Iterator[Pair]:
    coverage, risk = outcome
    yield _pair(row, f"{what}, coverage", row["coverage"], coverage)
    yield _pair(row, f"{what}, risk", row["risk"], risk)


def _pair(row: Mapping[str, Any], what: str, printed: float, modelled: float) -> Pair:
    return Pair(
        judge=row["judge"],
        dataset=row["dataset"],
        what=what,
        printed=printed,
        modelled=modelled,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A reading of Naive: its title, signal and threshold."""

    title: str
    signal: str
    selector: Selector


def first_infeasible(points: Points, target: RiskTarget) -> float:
    """The last score before the first one with a risk above alpha."""
    risk = np.cumsum(points.error) / np.arange(1, len(points.error) + 1)
    above = np.flatnonzero(risk > target.alpha)
    end = int(above[0]) if len(above) else len(risk)
    return float(points.uncertainty[end - 1]) if end else -np.inf


READINGS = (
    Reading(title="largest feasible (ours)", signal="predictive_probability", selector=naive),
    Reading(
        title="before the first infeasible",
        signal="predictive_probability",
        selector=first_infeasible,
    ),
    Reading(title="largest feasible, on BPE", signal="bpe", selector=naive),
)


def tied_outcome(judge: NormalJudge, share: float, rng: np.random.Generator) -> tuple[float, float]:
    """Naive that counts a prefix of the sorted pairs, where the surest `share` of pairs is tied.

    The pairs of a tie have a random order in calibration. The cut may lie among them; at test, the
    threshold accepts all of them.
    """
    block = threshold_at(judge, share)
    thresholds = []
    for _ in range(CALIBRATIONS):
        uncertainty, wrong = judge.draw(CALIBRATION_PAIRS, rng)
        uncertainty = np.maximum(uncertainty, block)
        order = np.lexsort((rng.random(len(wrong)), uncertainty))
        risk = np.cumsum(wrong[order]) / np.arange(1, len(wrong) + 1)
        feasible = np.flatnonzero(risk <= paper.ALPHA)
        thresholds.append(uncertainty[order][feasible[-1]] if len(feasible) else -np.inf)
    coverage, risk = judge.truth(np.array(thresholds))
    return float(coverage.mean()), float(risk.mean())


def threshold_at(judge: NormalJudge, share: float) -> float:
    """The threshold that accepts a share of the pairs."""

    def surplus(threshold: float) -> float:
        return float(judge.truth(np.array([threshold]))[0][0]) - share

    return float(brentq(surplus, 1e-300, LN2))


def naive_table(rng: np.random.Generator) -> str:
    """Every reading of Naive beside the paper: coverage, risk."""
    titles = [*(reading.title for reading in READINGS), "cut inside a tie"]
    lines = []
    for row in rows_of("risk_coverage"):
        if row["selector"] != "Naive":
            continue
        outcomes = [(row["coverage"], row["risk"])]
        outcomes += [
            Setting(judge=judge_of(row, reading.signal), selector=reading.selector).outcome(rng)
            for reading in READINGS
        ]
        outcomes.append(tied_outcome(judge_of(row, "predictive_probability"), row["coverage"], rng))
        cells = [f"{coverage:.3f}, {risk:.3f}" for coverage, risk in outcomes]
        lines.append([row["judge"], row["dataset"], *cells])
    return table(("judge", "data set", "paper", *titles), lines)


def needed_auroc(judge: NormalJudge, coverage: float, alpha: float) -> str:
    """The AUROC with which SCOPE has a coverage in the model, with very many calibration pairs."""

    def surplus(auroc: float) -> float:
        shaped = NormalJudge(accuracy=judge.accuracy, auroc=auroc)
        _, error = shaped.truth(np.array([threshold_at(shaped, coverage)]))
        return float(error[0]) - alpha

    return "any" if surplus(0.5) <= 0 else f"{brentq(surplus, 0.5, 0.999):.3f}"


def scope_table(pairs: Sequence[Pair]) -> str:
    """SCOPE at alpha 0.10, with the AUROC that would give the printed coverage."""
    risks = {(each.judge, each.dataset): each for each in pairs if each.what == "SCOPE, risk"}
    lines = []
    for pair in pairs:
        if pair.what != "SCOPE, coverage":
            continue
        judge = judge_of({"judge": pair.judge, "dataset": pair.dataset}, "bpe")
        quality = (f"{judge.accuracy:.3f}", f"{judge.auroc:.3f}")
        compared = (_compared(pair), _compared(risks[pair.judge, pair.dataset]))
        needed = needed_auroc(judge, pair.printed, paper.ALPHA)
        lines.append([pair.judge, pair.dataset, *quality, *compared, needed])
    headings = ("judge", "data set", "accuracy", "AUROC", "coverage", "risk", "AUROC for coverage")
    return table(headings, lines)


def alpha_table(pairs: Sequence[Pair]) -> str:
    """A row for each judge and data set, a column for each other alpha."""
    start = "coverage at "
    shown = [pair for pair in pairs if pair.what.startswith(start)]
    alphas = sorted({pair.what.removeprefix(start) for pair in shown})
    cells = {(pair.judge, pair.dataset, pair.what): _compared(pair) for pair in shown}
    lines = [
        [judge, dataset, *(cells.get((judge, dataset, start + alpha), "") for alpha in alphas)]
        for judge, dataset in dict.fromkeys((pair.judge, pair.dataset) for pair in shown)
    ]
    return table(("judge", "data set", *alphas), lines)


def summary(parts: Mapping[str, Sequence[Pair]]) -> str:
    """Number of figures, median and largest distance of each part."""
    headings = ("figures", "number", "median distance", "largest", f"farther than {NEAR}")
    lines = [[title, str(len(pairs)), *distances(pairs)] for title, pairs in parts.items()]
    return table(headings, lines)


def distances(pairs: Sequence[Pair]) -> list[str]:
    """Median and largest distance, and the number of large ones."""
    found = [abs(pair.distance) for pair in pairs]
    far = sum(distance > NEAR for distance in found)
    return [f"{median(found):.3f}", f"{max(found):.3f}", str(far)]


def _compared(pair: Pair) -> str:
    """The paper's figure and that of the model, which is bold where it is far."""
    modelled = f"{pair.modelled:.3f}"
    bold = f"**{modelled}**" if abs(pair.distance) > NEAR else modelled
    return f"{pair.printed:.3f}, {bold}"


def as_json(parts: Mapping[str, Sequence[Pair]]) -> str:
    """Every figure of every part."""
    content = {title: [asdict(pair) for pair in pairs] for title, pairs in parts.items()}
    return json.dumps({"seed": SEED, "parts": content}, indent=1) + "\n"


def main() -> None:
    """Runs the model, prints the figures and the tables, and writes the summary."""
    rng = np.random.default_rng(SEED)
    ranked, ruled, further = list(auprc_pairs(rng)), list(risk_pairs(rng)), list(further_pairs(rng))
    noisy = list(ablation_pairs("label_noise", "epsilon", rng))
    sized = list(ablation_pairs("calibration_size", "n", rng))
    parts = {
        "AUPRC from accuracy and AUROC": ranked,
        "Vanilla, Naive and SCOPE at alpha 0.10": ruled,
        "SCOPE: more data sets, Skywork, other alphas": further,
        "SCOPE with noisy labels": noisy,
        "SCOPE with n calibration pairs": sized,
    }
    tables = (scope_table([*ruled, *further]), naive_table(rng), alpha_table(further))
    print(as_json(parts), *tables, sep="\n")
    page = between_markers("summary", summary(parts), PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
