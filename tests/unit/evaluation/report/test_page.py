"""The report page, parsed: its numbers, its words, and its freedom from scripts and links."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.core.assessment import AlphaRow
from app.evaluation.compared import ComparedMethod
from app.evaluation.costs import Costs
from app.evaluation.methods import MethodName, PairCost
from app.evaluation.metrics import Quality, RiskCoverage
from app.evaluation.normal_world import WorldRow
from app.evaluation.protocol import AblationRow, Design, RuleOutcome, TransferRow
from app.evaluation.report import figures
from app.evaluation.report.page import render_report, write_report
from app.evaluation.report.table import NONE
from app.evaluation.results import DatasetResults, MethodResults, ReliabilityBin, Results
from app.evaluation.selectors import SELECTORS

QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
DASH = "\N{EN DASH}"
DESIGN = Design(seed=7, splits=1000, ablation_splits=500, alphas=(0.05, 0.10), delta=0.10)
NASTY = "<script>alert('$x_{')</script>\" onload=\"x"


def outcome(coverage: float, risk: float, ratio: float | None) -> RiskCoverage:
    return RiskCoverage(
        coverage=coverage,
        coverage_std=0.061,
        risk=risk,
        risk_std=0.023,
        ratio_of_sums=ratio,
        share_above_alpha=0.456,
        splits=1000,
    )


def method(
    name: MethodName, quality: Quality, rows: Sequence[RuleOutcome] | None = None
) -> MethodResults:
    """A method's results; by default every rule has coverage 0.30 and risk 0.08 at alpha 0.10."""
    every = [
        RuleOutcome(
            selector=rule, alpha=alpha, outcome=outcome(3 * alpha, 0.8 * alpha, 0.9 * alpha)
        )
        for rule in SELECTORS
        for alpha in DESIGN.alphas
    ]
    return MethodResults(
        method=name,
        n=1995,
        unparsed=0,
        failed=0,
        unparsed_answers=0,
        undecided=0,
        quality=quality,
        reliability=(
            ReliabilityBin(place=5, confidence=0.57, accuracy=0.6, count=200),
            ReliabilityBin(place=9, confidence=0.95, accuracy=0.8, count=1795),
        ),
        rows=tuple(every if rows is None else rows),
        compared=ComparedMethod(n=1990, quality=quality, intervals=4 * ((0.1, 0.9),)),
    )


def dataset(name: str, *methods: MethodResults) -> DatasetResults:
    """A data set with one row of each ablation: risk 0.047 and coverage 0.061, and the reverse."""
    noisy = AblationRow(
        value=0.05,
        row=RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.061, 0.047, 0.05)),
    )
    known = AblationRow(
        value=0.05,
        row=RuleOutcome(
            selector="scope_corrected", alpha=0.10, outcome=outcome(0.212, 0.092, 0.09)
        ),
    )
    sized = AblationRow(
        value=200,
        row=RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.231, 0.083, 0.09)),
    )
    found = methods or (
        method(
            "predictive_probability",
            Quality(accuracy=0.7301, ece=0.2312, auroc=0.6523, auprc=0.8234),
        ),
        method("bpe", Quality(accuracy=0.7412, ece=0.1434, auroc=0.6845, auprc=0.8556)),
    )
    return DatasetResults(
        name=name,
        n=2000,
        ties=412,
        left_out={"blank response": 3},
        groups=80,
        label_mass=0.9876,
        methods=found,
        label_noise=(noisy, known),
        calibration_size=(sized,),
    )


def results(
    *datasets: DatasetResults,
    judge: str | None = QWEN_7B,
    transfer: tuple[TransferRow, ...] = (),
    normal_world: tuple[WorldRow, ...] = (),
) -> Results:
    return Results(
        judge=judge,
        version="9.8.7",
        design=DESIGN,
        datasets=datasets,
        transfer=transfer,
        normal_world=normal_world,
    )


@dataclass
class Page(HTMLParser):
    """The parsed page: tables as texts of cells, visible text, and tags with their attributes."""

    html: str
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._caption = ""
        self._rows: list[list[str]] = []
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "table":
            self._caption, self._rows = "", []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._class = dict(attrs).get("class") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "table":
            self.tables[self._caption] = self._rows
        elif tag in ("td", "th"):
            self._rows[-1][-1] = " ".join(self._rows[-1][-1].split())
            self.classes[self._rows[-1][-1]] = self._class

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.texts.append(data)
        if "caption" in self._open:
            self._caption += data
        elif "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def row(self, caption: str, heading: str) -> list[str]:
        """The cells of the first line whose heading begins with a text."""
        found = [row[1:] for row in self.tables[caption] if row and row[0].startswith(heading)]
        assert found, f"no {heading} in {caption}: {self.tables[caption]}"
        return found[0]


def page(what: Results) -> Page:
    return Page(render_report(what, {}))


@cache
def page_of(*names: str) -> Page:
    """The page of data sets with the common results."""
    return page(results(*map(dataset, names)))


def test_quality_has_a_row_for_each_method_with_the_papers_figures_beside_ours() -> None:
    read = page_of("mt-bench")
    assert read.row("Quality of the uncertainty", "BPE") == [
        "0.741 paper 0.738",
        "0.143 paper 0.143",
        "0.684 paper 0.685",
        "0.856 paper 0.855",
        "1,995",
    ]
    assert read.row("Quality of the uncertainty", "Predictive")[0] == "0.730 paper 0.731"


def test_the_best_number_of_a_column_is_marked_and_the_lowest_ece_is_best() -> None:
    read = page(results(dataset("mine"), judge=None))
    marked = {text for text, kind in read.classes.items() if kind == "best"}
    best = ("0.741", "0.143", "0.684", "0.856")
    assert marked == {f"{figure} 0.100 to 0.900" for figure in best}
    compared = read.tables["Methods on the same pairs"]
    assert compared[0][1:] == ["mine 1,990 pairs"]
    assert [row[0] for row in compared[2:]] == [
        "Predictive Probability 1 prompt a pair",
        "BPE 2 prompts a pair",
    ]
    assert read.row("Methods on the same pairs", "BPE") == [
        f"{figure} 0.100 to 0.900" for figure in best
    ]


def test_paper_explains_the_columns_that_a_screen_explains_under_the_mouse() -> None:
    read = page_of("mt-bench", "reward-bench")
    assert read.text.count("ECE ↓: expected calibration error over 10 bins, lower is better") == 2
    assert read.text.count("Above alpha: share of splits whose risk exceeds alpha.") >= 2


def test_risk_control_has_every_reading_with_the_papers_figures_beside_ours() -> None:
    read = page_of("mt-bench")
    caption = "Risk control at alpha = 0.10"
    ours = ["0.300 paper 0.246", "0.080 paper 0.097", "0.090", "45.6%"]
    assert read.row(caption, "SCOPE") == ours
    assert read.row(caption, "Naive") == ["0.300 paper 0.102", "0.080 paper 0.116", *ours[2:]]
    assert read.row(caption, "pac") == ["0.300", "0.080", "0.090", "45.6%"]


def test_every_alpha_has_its_standard_deviations() -> None:
    read = page_of("mt-bench")
    caption = "SCOPE and pac at every alpha, ± standard deviation"
    first = ["0.150 ± 0.061", "0.040 ± 0.023", "0.045", "45.6%"]
    # The paper's text has this coverage, without a risk.
    assert read.row(caption, "0.05") == ["0.150 ± 0.061 paper 0.018", *first[1:], *first]
    assert read.row(caption, "0.10")[:2] == [
        "0.300 ± 0.061 paper 0.246",
        "0.080 ± 0.023 paper 0.097",
    ]


def test_every_rule_is_on_every_signal_and_has_the_papers_numbers_on_one() -> None:
    read = page_of("mt-bench")
    lines = [row for row in read.tables["mt-bench"] if len(row) == 5 and row[0] != "Rule"]
    assert len(lines) == 2 * len(SELECTORS) * len(DESIGN.alphas)
    assert lines[0] == [
        "Vanilla, alpha 0.05",
        "0.150 ± 0.061",
        "0.040 ± 0.023",
        "0.045",
        "45.6%",
    ]
    assert not any("paper" in cell for line in lines for cell in line)


def test_ablations_and_transfer_have_the_papers_figures_beside_ours() -> None:
    moved = tuple(
        TransferRow(
            calibration=ours,
            test=theirs,
            row=RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.5, 0.16, 0.16)),
        )
        for ours in ("mt-bench", "reward-bench")
        for theirs in ("mt-bench", "reward-bench")
    )
    read = page(results(dataset("mt-bench"), dataset("reward-bench"), transfer=moved))
    noise = read.row("Label noise: risk / coverage", "SCOPE")
    assert noise == ["0.047 / 0.061 paper 0.046 / 0.059"]
    known = read.row("Label noise: risk / coverage", "SCOPE, noise known")
    assert known == ["0.092 / 0.212"]
    sizes = read.row("Calibration size: coverage / risk", "SCOPE")
    assert sizes[2] == "0.231 / 0.083 paper 0.234 / 0.084"
    assert sizes[3] == DASH
    transferred = read.row("Transfer: coverage / risk", "reward-bench")
    assert transferred[0] == "0.500 / 0.160 ▲ paper 0.596 / 0.157"
    assert read.classes[transferred[1]] == "over within"


def test_one_data_set_has_no_transfer() -> None:
    read = page_of("mt-bench")
    assert not any("Transfer" in caption for caption in read.tables)


def test_the_normal_world_is_shown_with_its_difference() -> None:
    world = (
        WorldRow(
            judge="Qwen2.5-7B-Instruct",
            dataset="mt-bench",
            accuracy=0.738,
            auroc=0.685,
            paper_coverage=0.246,
            coverage=0.1624,
        ),
        WorldRow(
            judge="Qwen2.5-7B-Instruct",
            dataset="reward-bench",
            accuracy=0.807,
            auroc=0.744,
            paper_coverage=0.594,
            coverage=0.5942,
        ),
    )
    read = page(results(dataset("mine"), judge="mine", normal_world=world))
    first = read.row("The normal world", "mt-bench")
    assert first == ["0.738", "0.685", "0.246", "0.162", "-0.084"]
    assert read.row("The normal world", "reward-bench")[-1] == "+0.000"


@pytest.mark.parametrize(("judge", "name"), [("my-judge", "mt-bench"), (QWEN_7B, "mine")])
def test_another_judge_or_data_set_has_no_numbers_of_the_paper(judge: str, name: str) -> None:
    read = page(results(dataset(name), judge=judge))
    cells = [cell for rows in read.tables.values() for row in rows for cell in row]
    assert cells
    assert not any("paper" in cell for cell in cells)
    assert not any(text.endswith("in the paper") for text in read.texts)


@pytest.mark.parametrize(("risk", "shown"), [(0.1004, "0.100"), (0.1006, "0.101 ▲")])
def test_a_risk_is_marked_where_it_is_printed_above_alpha(risk: float, shown: str) -> None:
    rows = [RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.3, risk, risk))]
    read = page(
        results(
            dataset(
                "mine", method("bpe", Quality(accuracy=0.8, ece=0.1, auroc=0.7, auprc=0.9), rows)
            )
        )
    )
    assert read.row("Risk control at alpha = 0.10", "SCOPE")[1:3] == [shown, shown]


def test_sentences_report_the_coverage_of_each_guarantee() -> None:
    rows = [
        RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.2461, 0.0971, 0.1112)),
        RuleOutcome(selector="pac", alpha=0.10, outcome=outcome(0.0, 0.0, None)),
    ]
    read = page(
        results(
            dataset(
                "mine", method("bpe", Quality(accuracy=0.738, ece=0.1, auroc=0.7, auprc=0.9), rows)
            )
        )
    )
    assert (
        "SCOPE accepts 24.6% of the pairs at a risk of 9.7% (all errors by all accepted: 11.1%), "
        "and 45.6% of the 1,000 splits exceed alpha."
    ) in read.text
    assert "pac (delta 0.10) accepts nothing in any of the 1,000 splits." in read.text
    assert "accepting every verdict would be wrong on 26.2%" in read.text
    assert "412 ties left out; 3 left out: blank response" in read.text


def test_the_header_has_everything_needed_to_reproduce_the_page() -> None:
    read = page_of("mine")
    for fact in (QWEN_7B, "scope-judge 9.8.7", "1,000 (500 for the ablations)", "Seed 7"):
        assert fact in read.text


def test_a_method_without_pairs_has_dashes_with_their_reason() -> None:
    empty = replace(
        method(
            "verbalized_confidence", Quality(accuracy=None, ece=None, auroc=None, auprc=None), ()
        ),
        n=0,
        unparsed=7,
        failed=3,
        reliability=(),
    )
    bpe = method("bpe", Quality(accuracy=1.0, ece=0.02, auroc=None, auprc=1.0))
    read = page(results(dataset("mine", empty, bpe)))
    caption = "Quality of the uncertainty"
    assert read.row(caption, "Verbalized") == [*4 * [DASH], "0"]
    assert read.row("Pairs that a method does not score", "Verbalized") == ["7", "3", "0", "0"]
    assert read.row(caption, "BPE") == ["1.000", "0.020", DASH, "1.000", "1,995"]
    said = f"{DASH} stands for: no pair was answered; all verdicts are right, or all wrong."
    assert said in read.text


def test_a_data_set_without_bpe_says_so_and_draws_no_curve() -> None:
    alone = method(
        "verbalized_confidence", Quality(accuracy=0.7, ece=0.1, auroc=0.6, auprc=0.8), ()
    )
    bare = replace(dataset("mine", alone), label_noise=(), calibration_size=())
    read = page(results(bare))
    assert "not measured in both orders" in read.text
    drawn = [attrs["aria-label"] for _, attrs in read.tags if attrs.get("role") == "img"]
    assert drawn == ["Verbalized Confidence: accuracy by confidence, mine"]


def test_too_few_pairs_for_the_protocol_are_named() -> None:
    few = replace(
        method("bpe", Quality(accuracy=1.0, ece=0.1, auroc=None, auprc=1.0), ()),
        n=3,
        reliability=(),
    )
    read = page(results(replace(dataset("mine", few), n=3, label_noise=(), calibration_size=())))
    assert "There are fewer than 4 pairs" in read.text
    assert read.row("Risk control at alpha = 0.10", "SCOPE") == 4 * [DASH]
    assert not any(tag == "svg" for tag, _ in read.tags)


def test_groups_are_counted_against_pairs() -> None:
    read = page_of("mine")
    assert "mine: 2,000 pairs of 80 groups, 25.0 in each" in read.text
    apart = page(results(replace(dataset("mine"), groups=None)))
    assert "in each" not in apart.text


def test_names_from_users_are_escaped() -> None:
    named = replace(dataset(NASTY), left_out={NASTY: 2})
    moved = (
        TransferRow(
            calibration=NASTY,
            test=NASTY,
            row=RuleOutcome(selector="scope", alpha=0.10, outcome=outcome(0.5, 0.1, 0.1)),
        ),
    )
    read = page(results(named, judge=NASTY, transfer=moved))
    assert NASTY in read.tables
    assert read.text.count(NASTY) >= 8
    assert "script" not in {tag for tag, _ in read.tags}
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)


def test_the_page_has_no_external_resources() -> None:
    read = page_of("mt-bench", "reward-bench")
    links = {
        value or ""
        for _, attrs in read.tags
        for name, value in attrs.items()
        if name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset")
    }
    assert links
    assert all(link.startswith("#") for link in links)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", read.html))
    assert "@import" not in read.html
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", read.html)
    assert "://" not in without_namespaces
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in read.tags}


def test_ids_are_unique_and_every_reference_resolves() -> None:
    read = page_of("mt-bench", "reward-bench")
    ids = [attrs["id"] for _, attrs in read.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', read.html)) <= {*ids}


def test_missing_numbers_are_never_printed_as_nan_or_none() -> None:
    empty = replace(
        method("bpe", Quality(accuracy=None, ece=None, auroc=None, auprc=None), ()),
        n=0,
        reliability=(),
        failed=2000,
    )
    read = page(results(dataset("mine", empty), replace(dataset("other"), groups=None), judge=None))
    words = set(re.findall(r"[\w.]+", read.text.lower()))
    assert not {"nan", "none", "null", "inf", "0.000.", "undefined"} & words
    assert "-0.000" not in read.text


def test_the_cost_of_a_pair_is_shown_where_a_run_measured_it() -> None:
    def cost(seconds: float, written: float = 0.0) -> PairCost:
        return PairCost(
            prompts=2, prompt_tokens=500, seconds=seconds, pairs=9, written_tokens=written
        )

    costs: Costs = {
        "mt-bench": {"bpe": cost(0.02), "self_consistency": cost(2.9512, written=80.4)},
        "mine": {"verbalized_confidence": cost(0.03)},
        "of-another-run": {"bpe": cost(1.0)},
    }
    read = Page(render_report(results(dataset("mt-bench"), dataset("mine")), costs))
    not_measured = [DASH] * 5
    assert read.row("Cost of a pair", "BPE") == ["2", "500", DASH, "20", "1.00", *not_measured]
    assert read.row("Cost of a pair", "Self") == [
        "2",
        "500",
        "80",
        "2,951",
        "147.56",
        *not_measured,
    ]
    assert read.row("Cost of a pair", "Verb") == [*not_measured, "2", "500", DASH, "30", DASH]
    assert "of-another-run" not in read.html
    assert "Cost of a pair" not in page_of("mt-bench").tables


def test_equal_results_write_equal_bytes(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report(results(dataset("mt-bench"), dataset("reward-bench")), {}, file)
    assert file.read_text(encoding="utf-8") == page_of("mt-bench", "reward-bench").html


def test_a_lone_surrogate_in_a_name_does_not_fail(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report(results(dataset("mine \ud800")), {}, file)
    assert r"mine \ud800" in Page(file.read_text(encoding="utf-8")).text


def test_without_data_there_is_no_figure() -> None:
    assert figures.risk_figure({"scope": ()}, {}, key="a") is None
    assert figures.coverage_figure({}, {}, key="a") is None
    empty = replace(
        method("bpe", Quality(accuracy=None, ece=None, auroc=None, auprc=None), ()), reliability=()
    )
    assert figures.reliability_figure(empty, "BPE", start=0.0, key="a") is None


def test_figures_name_the_rules_and_the_papers_points() -> None:
    read = page_of("mt-bench")
    for label in ("SCOPE", "pac", "SCOPE, ratio of sums", "SCOPE in the paper", "risk = alpha"):
        assert label in read.texts
    assert {"200", "1795"} <= {text.strip() for text in read.texts}


@pytest.mark.parametrize(("place", "start"), [(5, 0.4), (4, 0.4), (3, 0.0), (0, 0.0)])
def test_the_axis_starts_below_the_lowest_bin(place: int, start: float) -> None:
    low = replace(
        method("bpe", Quality(accuracy=0.7, ece=0.1, auroc=0.6, auprc=0.8)),
        reliability=(
            ReliabilityBin(place=place, confidence=0.3, accuracy=0.5, count=10),
            ReliabilityBin(place=9, confidence=1.0, accuracy=1.0, count=10),
        ),
    )
    assert figures.lowest_confidence([low]) == start


def test_the_second_reading_of_a_method_has_a_line_of_its_own_above_its_panel() -> None:
    second = method("verbalized_at_half", Quality(accuracy=0.7, ece=0.2, auroc=0.6, auprc=0.8))
    read = page(results(dataset("mine", second)))
    lines = {text.strip() for text in read.texts}
    assert {"Verbalized Confidence", "unparsed as 0.5"} <= lines


def test_each_rule_of_the_figures_has_a_colour_of_its_own() -> None:
    colours = []
    for rule in ("scope", "pac", "naive"):
        rows = [
            RuleOutcome(selector=rule, alpha=alpha, outcome=outcome(0.5, 0.1, 0.1))
            for alpha in (0.05, 0.1)
        ]
        found: set[str] = set()
        for draw in (figures.risk_figure, figures.coverage_figure):
            svg = draw({rule: rows}, {}, key=rule)
            assert svg is not None
            found |= set(re.findall(r"fill: none; stroke: (#\w{6}); stroke-width: 1.6", svg))
        colours.append(found)
    # Blue, vermilion and bluish green of Okabe and Ito (2008).
    assert colours == [{"#0072b2"}, {"#d55e00"}, {"#009e73"}]


def test_the_tables_say_how_many_labels_they_calibrate_on() -> None:
    shown = AlphaRow("pac", 0.1, 0.1, 0.3, 0.62, 0.07, None)
    rows = [shown, shown._replace(alpha=0.05, threshold=None, coverage=0.0, empirical_risk=None)]
    rows += [row._replace(guarantee="marginal", delta=None) for row in rows]
    read = page(results(replace(dataset("mine"), all_labels=tuple(rows))))
    caption = "Calibrated on all labels, as by scope-judge curve"
    assert read.row(caption, "0.10") == ["0.620", "0.070", "0.620", "0.070"]
    assert read.row(caption, "0.05") == ["0.000", NONE, "0.000", NONE]
    assert re.search(r"mine: calibrated on all [\d,]+ labels", read.text)
    assert re.search(r"mine: calibrated on [\d,]+ labels, tested on the other [\d,]+", read.text)
