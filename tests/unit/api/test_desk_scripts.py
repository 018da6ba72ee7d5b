"""The scripts of the desk that read files and render Markdown, run by Node without a browser."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import InvalidComparisonError
from app.core.fingerprint import example_digest
from app.files.labeled import comparison_of
from app.files.reading import read_rows
from app.files.shapes import known_shape

STATIC = Path(__file__).parents[3] / "app" / "api" / "desk" / "static"
FINGERPRINT = "f" * 64


def run(script: str, **given: Any) -> Any:
    """Runs a module that sees `given`, and returns the JSON value of its `found`."""
    source = "\n".join(
        [
            'import { readFileSync } from "node:fs";',
            'const given = JSON.parse(readFileSync(0, "utf-8"));',
            script.replace("@/", f"{STATIC.as_uri()}/"),
            "process.stdout.write(JSON.stringify(found));",
        ]
    )
    node = Path(sys.executable).with_name("node")
    done = subprocess.run(
        [node, "--input-type=module", "-e", source],
        input=json.dumps(given).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


MESSAGES = [{"role": "user", "content": "1?"}]
LINES = [
    {"question": "q, \U0001f600", "response_a": "a", "response_b": "b\nc", "label": "A", "x": None},
    {"question": MESSAGES, "response_a": ["a"], "response_b": ["b"]},
    {
        "prompt": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}, *MESSAGES],
        "chosen": [{"role": "assistant", "content": "yes"}],
        "rejected": {"role": "assistant", "content": [{"type": "text", "text": "no"}]},
    },
    {"question": "q", "response_a": "a"},
    {"question": [{"role": "tool", "content": "x"}], "response_a": "a", "response_b": "b"},
    {"question": "last", "response_a": "a", "response_b": "b"},
]
CELL = json.dumps(MESSAGES).replace('"', '""')
FILES: Mapping[str, bytes] = {
    "lines": "\n".join(map(json.dumps, LINES)).encode() + b"\n\n",
    "lines with a mark": b"\xef\xbb\xbf" + json.dumps(LINES[0]).encode(),
    "raw unicode": json.dumps(LINES[0], ensure_ascii=False).encode() + b"\r\n",
    "commas": b'question,response_a,response_b\r\n"a ""b"", c","x\r\ny",z\r\n',
    "messages": f'response_b,response_a,question\n1,2,"{CELL}"'.encode(),
    "semicolons": b'id;question;response_a;response_b\n1;5" pipe, q;a "b";"c\n\nd"\n',
    "an array": json.dumps(LINES, indent=1).encode(),
    "tabs": "question\tresponse_a\tresponse_b\n ä \t[x]\t{y}\n".encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_the_page_reads_the_pairs_that_the_commands_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    path.write_bytes(FILES[name])
    expected = list[str | None]()
    for row in read_rows(path):
        try:
            shape = known_shape(row.fields)
            assert shape is not None or "response_b" not in row.fields
            comparison = None if shape is None else comparison_of(shape.fields(row.fields))
        except InvalidComparisonError:
            comparison = None
        expected.append(None if comparison is None else example_digest(FINGERPRINT, comparison))
    assert any(expected)
    read = run(READ, text=list(FILES[name]))
    found = [
        None if fields is None else example_digest(FINGERPRINT, comparison_of(fields))
        for fields in read
    ]
    assert found == expected


READ = """
import { FileProblem, pairOf, rowsOf } from "@/pair_rows.js";
const found = [];
for (const row of await rowsOf(new Blob([new Uint8Array(given.text)]))) {
  try {
    found.push(pairOf(row()).fields);
  } catch (problem) {
    if (!(problem instanceof FileProblem)) throw problem;
    found.push(null);
  }
}
"""

LABELED = """Frage,eins,zwei,besser
q1,x,y,A
q1,y,x,model_b
q2,x,y,tie
q3,x,y,
q4,x,y,maybe
q5,x,y,A
q5,x,y,B
"""


def test_columns_with_other_names_are_matched_and_rows_are_counted() -> None:
    read = """
    import { pairsOf } from "@/pair_rows.js";
    const file = new Blob([given.text]);
    const columns = { question: "Frage", response_a: "eins", response_b: "zwei", label: "besser" };
    const found = [await pairsOf(file, null), await pairsOf(file, columns)];
    """
    unknown, known = run(read, text=LABELED)
    assert (unknown["pairs"], unknown["names"]) == ([], ["Frage", "eins", "zwei", "besser"])
    labels = {pair["fields"]["question"]: pair["label"] for pair in known["pairs"]}
    # The second row is the first one, in the other order. The last two contradict each other.
    assert labels == {"q1": "A", "q2": "tie", "q3": None}
    assert (known["labelled"], known["repeated"], known["unreadable"]) == (2, 1, 3)
    assert "maybe is not A, B or tie: rename such labels, or" in known["reason"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1f\x8b\x08", "compressed"),
        (b"PAR1xxxx", "Parquet"),
        (b"PK\x03\x04\xff", "Excel"),
        (b"%PDF-1.4\n1 0 obj", "PDF"),
        (b'[{"question": "x"}', "looks like a JSON array"),
        (b'{"question":\n"x"}', "not JSON"),
        ("question,response_a".encode("utf-16"), "UTF-8"),
    ],
)
def test_a_file_that_the_page_cannot_read_is_refused_with_the_reason(
    content: bytes, reason: str
) -> None:
    found = run(
        'import { rowsOf } from "@/pair_rows.js";'
        "const file = new Blob([new Uint8Array(given.text)]);"
        "let found = null;"
        "try { await rowsOf(file); }"
        "catch (problem) { found = problem.message; }",
        text=list(content),
    )
    assert reason in found


def row(alpha: float, guarantee: str, *, coverage: float = 0.5, feasible: bool = True) -> Any:
    return {
        "alpha": alpha,
        "guarantee": guarantee,
        "coverage": coverage,
        "empirical_risk": 0.094,
        "feasible": feasible,
    }


INFO = {
    "fingerprint": "f",
    "model": "m",
    "default_alpha": 0.1,
    "default_guarantee": "marginal",
}
SET = {
    "name": "mine",
    "fingerprint": "f",
    "judge": "j",
    "n": 200,
    "labelled": 200,
    "unlabelled": 0,
    "accuracy": 0.465,
    "thresholds": [row(0.1, "marginal", coverage=0.85), row(0.1, "pac", coverage=0.76)],
    "infeasible": [],
}
MONITOR = {
    "alarm": False,
    "light": "green",
    "audit_rate": 0.1,
    "criteria": [],
    "recovery": None,
    "drift": {"uncertainty": {"alarm": False, "rang_at": None}, "position_gap": None},
}
COUNTED = {**row(0.1, "marginal"), "error_interval": [0.3, 0.6], "audited": 40, "open": 7}
ALARM = {
    **MONITOR,
    "alarm": True,
    "light": "red",
    "criteria": [{**COUNTED, "alarm": True}],
    "recovery": {"audits": 59, "labelled": 12, "drawn": 100},
}
DRIFT = {"uncertainty": {"alarm": True, "rang_at": None}, "position_gap": None}
NONE = {"thresholds": [row(0.25, "marginal", feasible=False)]}
NO_10 = {"thresholds": [row(0.1, "marginal", feasible=False), row(0.2, "marginal")]}
QUIET = {**ALARM, "criteria": [{**COUNTED, "alarm": False}], "recovery": None, "drift": DRIFT}
UNCHECKED = {"light": "amber", "criteria": [{**COUNTED, "audited": 0, "alarm": False}]}
WAITING = {"criteria": [{**COUNTED, "audited": 0, "waiting": 30, "alarm": False}]}
TODAY = "Label today's pairs"


def recovering(audits: int | None, labelled: int, drawn: int) -> Any:
    return {**ALARM, "recovery": {"audits": audits, "labelled": labelled, "drawn": drawn}}


# State -> changes of set and monitor, and the light, the fact and the next step that they give.
ADVICE: Mapping[str, tuple[Any, Any, tuple[str, str, str]]] = {
    "usable": ({}, {}, ("green", "You may use it at 10% for 85% of pairs", "Try a pair")),
    "unchecked": ({}, UNCHECKED, ("amber", "You may use it at 10%", "Label pairs to check it")),
    "labels that do not count yet": ({}, WAITING, ("green", "30 labels wait", "Try a pair")),
    "usable at a larger share": (NO_10, {}, ("green", "You may use it at 20%", "Try a pair")),
    "without labels": (
        {**NONE, "labelled": 0, "unlabelled": 200},
        {},
        ("amber", "200 pairs of 200 have no label", "Label them"),
    ),
    "too few labels": (
        {**NONE, "infeasible": [{"more_examples": 90}], "labelled": 20},
        {},
        ("amber", "20 labels are not enough", "Add pairs"),
    ),
    "of no use": (
        {**NONE, "infeasible": [{"more_examples": None}]},
        {},
        ("red", "This judge cannot judge this traffic (right in 46.5% of 200)", "Make a new set"),
    ),
    "another judge": ({"fingerprint": "g"}, {}, ("red", "another judge (j)", "Make a new set")),
    "an alarm": ({}, ALARM, ("red", "30% to 60% of its verdicts are wrong", TODAY)),
    "an alarm without new pairs": (
        {},
        recovering(59, 12, 12),
        ("red", "You may not: 30% to 60%", "See what is missing"),
    ),
    "an alarm that can end": (
        {},
        recovering(59, 59, 100),
        ("red", "You may not: 30% to 60%", "End the alarm"),
    ),
    "an alarm that no labels end": (
        {},
        recovering(None, 0, 100),
        ("red", "You may not: 30% to 60%", "Make a new set"),
    ),
    "changed traffic": ({}, QUIET, ("red", "The traffic has changed", TODAY)),
    "changed traffic and an alarm": (
        {},
        {**ALARM, "drift": DRIFT},
        ("red", "The traffic has changed", TODAY),
    ),
    "the toy": (
        {"name": "default"},
        {"model": "demo"},
        ("green", "You may use it at 10%", "Make your own set"),
    ),
}


@pytest.mark.parametrize("name", ADVICE)
def test_each_state_of_a_set_has_one_sentence_and_one_next_step(name: str) -> None:
    of_set, of_monitor, (light, headline, step) = ADVICE[name]
    info = {**INFO, "model": of_monitor.get("model", "m")}
    found = run(
        'import { adviceOf } from "@/advice.js";'
        "const found = adviceOf(given.set, given.monitor, given.info);",
        set={**SET, **of_set},
        monitor={**MONITOR, **of_monitor},
        info=info,
    )
    assert (found["light"], found["next"]["text"]) == (light, step)
    assert headline in f"{found['headline']} {found['more']}"


MARKDOWN = {
    "# A *b*": "<h3>A <em>b</em></h3>",
    "a **b** __c__ ~~d~~ `e*f*`": (
        "<p>a <strong>b</strong> <strong>c</strong> <s>d</s> <code>e*f*</code></p>"
    ),
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "- a\n- b\n  1. c\n\n     d": (
        "<ul><li><p>a</p></li><li><p>b</p><ol start=1><li><p>c</p><p>d</p></li></ol></li></ul>"
    ),
    "```js\n<b>*x*\n```\nend": "<pre><code>&lt;b&gt;*x*</code></pre><p>end</p>",
    "> a\n> b": "<blockquote><p>a\nb</p></blockquote>",
    "| a | b |\n|---|:-:|\n| 1 | *2* |": (
        "<div class=scroll><table><thead><tr><th>a</th><th>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td><em>2</em></td></tr></tbody></table></div>"
    ),
    "---": "<hr></hr>",
    r"\*a\*": "<p>*a*</p>",
    # Nothing of these becomes an element with an address or a script.
    "<script>alert(1)</script>": "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>",
    "![x](https://evil.example/p.png)": "<p>![x](https://evil.example/p.png)</p>",
    "[x](javascript:alert(1))": "<p>[x](javascript:alert(1))</p>",
    "<https://evil.example>": "<p>&lt;https://evil.example&gt;</p>",
    "<img src=x onerror=alert(1)>": "<p>&lt;img src=x onerror=alert(1)&gt;</p>",
    "**<b onclick=x>**": "<p><strong>&lt;b onclick=x&gt;</strong></p>",
    "`` <a href=x> ``": "<p><code>&lt;a href=x&gt;</code></p>",
    "&lt;script&gt;": "<p>&amp;lt;script&amp;gt;</p>",
}
WRITTEN = """
const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const escaped = (text) => text.replace(/[&<>]/g, (sign) => names[sign]);
const written = (node) => {
  if (Array.isArray(node)) return node.map(written).join("");
  if (node === null || node === undefined || node === false) return "";
  if (typeof node !== "object") return escaped(String(node));
  if (typeof node.type === "function") return written(node.type(node.props));
  const { children, ...rest } = node.props;
  const attributes = Object.entries(rest).map(([name, value]) => ` ${name}=${value}`).join("");
  return `<${node.type}${attributes}>${written(children)}</${node.type}>`;
};
"""
RENDER = f'import {{ Markdown }} from "@/markdown.js";{WRITTEN}'


def test_markdown_becomes_elements_without_html_links_and_images() -> None:
    found = run(
        f"{RENDER}const found = given.texts.map((text) => written(Markdown({{ text }})));",
        texts=list(MARKDOWN),
    )
    wrapped = [f"<div class=markdown dir=auto>{html}</div>" for html in MARKDOWN.values()]
    assert dict(zip(MARKDOWN, found, strict=True)) == dict(zip(MARKDOWN, wrapped, strict=True))


HARD = (
    "*",
    "**a ",
    "`",
    "_a ",
    "> ",
    "- ",
    "[",
    "| ",
    "#",
    "\\",
    "~~x",
    "```\n",
    "1. ",
    "a|b\n-|-\n",
)


def test_hostile_markdown_takes_no_long_time() -> None:
    seconds = run(
        f"{RENDER}const found = [];"
        "for (const text of given.texts) { const begin = process.cpuUsage();"
        " written(Markdown({ text }));"
        " found.push(process.cpuUsage(begin).user / 1e6); }",
        texts=[part * (200_000 // len(part)) for part in HARD],
    )
    # Processor time: a second each at most. A quadratic search would take minutes.
    assert max(seconds) < 10, dict(zip(HARD, seconds, strict=True))
