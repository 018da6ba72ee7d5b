"""Hostile values, and valid bodies with something changed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.serving import scripted_fingerprint

JSON_TEXT = "application/json"
HALF = "\ud800"

# Parts of objects, valid and invalid.
TEXTS = (
    "",
    " ",
    "\n",
    "\x00",
    "a\x00b",
    HALF,
    f"a{HALF}b",
    "\ufeff",
    "\u202e",
    "\U0010ffff",
    "é",
    "e\u0301",
    "quality=1",
    "quality=1e999",
    "quality=-" + "9" * 400,
    "x" * 300,
    "{question}",
    "{answer_b}",
    "[[A]]",
    "<|im_end|>",
    "### User:",
    "%s%n",
    "${x}",
    "../../x",
    "null",
    "NaN",
    "A",
    "B",
    "tie",
    "default",
    "a" * 64,
    "a" * 65,
    ".a",
    "a/b",
    "0",
)
NUMBERS = (
    0,
    -0.0,
    1,
    -1,
    0.5,
    0.1,
    1e-320,
    5e-324,
    1 - 2**-53,
    1e308,
    2**31,
    2**53,
    2**63,
    2**64,
    -(2**63),
    10**300,
    10**4000,
    float("nan"),
    float("inf"),
    float("-inf"),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": 0}, {"__proto__": 1})
_FINGERPRINT = scripted_fingerprint()
NAMES = (
    "question",
    "response_a",
    "response_b",
    "alpha",
    "guarantee",
    "delta",
    "calibration",
    "id",
    "digest",
    "gap_fwd",
    "label_mass",
    "fingerprint",
    "responses",
    "reference",
    "groups",
    "opponents",
    "output",
    "input",
    "type",
    "text",
    "labels",
    "since",
    "replace",
    "unlabelled",
    "label",
    "comparisons",
    "examples",
    "version",
    "role",
    "content",
    "",
    HALF,
    "x" * 200,
    "__class__",
    "model_config",
)


def sound_bodies(draw: random.Random) -> dict[str, Any]:
    """One valid body for each route that takes one, with drawn values."""
    name = draw.choice(("fuzz", "fuzz.2", "default"))
    comparison: dict[str, Any] = {
        "question": "Which?",
        "response_a": f"quality={draw.uniform(-3, 3):.3f}",
        "response_b": "quality=0",
    }
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
    several = {**comparison, "question": [*turns, {"role": "user", "content": "Which?"}]}
    judged = {**comparison, "alpha": draw.choice((None, 0.1, 0.3)), "id": draw.choice((7, "x"))}
    guarded = {**several, "alpha": 0.2, "guarantee": "pac", "delta": 0.2, "calibration": name}
    labeled = [
        {**draw.choice((comparison, several)), "label": label, "id": i}
        for i, label in enumerate(("A", "B", "tie"))
    ]
    return {
        **_reward_bodies(draw, draw.choice((comparison, several))["question"], turns),
        **_decision_bodies(draw, turns),
        "POST /judge": draw.choice((judged, guarded)),
        "POST /judge/batch": {"alpha": None, "comparisons": [judged, guarded, comparison]},
        "POST /calibrate": {
            "calibration": name,
            "examples": labeled,
            **_looks(draw),
        },
        "POST /calibrate/scores": {
            "calibration": name,
            "examples": labeled,
        },
        **_set_bodies(draw, comparison),
    }


def _decision_bodies(draw: random.Random, turns: Any) -> dict[str, Any]:
    texts = {"a": "quality=1", "b": draw.choice(("quality=0", "quality=2"))}
    options = {"alpha": draw.choice((None, 0.1)), "abstain_as": draw.choice(("a", "none", None))}
    choices: list[dict[str, Any]] = [{"value": True, "description": texts["a"]}, {"value": "b"}]
    listed = {"type": "choice", "name": "q", "instructions": "Which?", "choices": choices}
    named = {"type": "choice", "instructions": "Which?", "criteria": texts}
    return {
        "POST /v1/systemone": {
            "state": draw.choice(("Which?", {"ticket": "Which?"}, turns)),
            "questions": {"q": named},
            **options,
        },
        "POST /v1/decisions": {
            "input": draw.choice(("Which?", turns[:1])),
            "questions": [listed],
            **options,
        },
    }


def _reward_bodies(draw: random.Random, question: Any, turns: Any) -> dict[str, Any]:
    answers = [f"quality={draw.randint(0, 3)}" for _ in range(draw.randint(2, 5))]
    said = [[{"role": "assistant", "content": text}] for text in answers]
    group = {"question": question, "responses": [*answers, *said, ""]}
    options = {"alpha": None, "reward": draw.choice(("hard", "soft")), "empty": "loses"}
    return {
        "POST /rewards/group": {**group, **options, "opponents": draw.choice(("all", 1, 2))},
        "POST /rewards/groups": {
            "groups": [group, {**group, "reference": "quality=1"}],
            **options,
            "comparisons": True,
        },
        "POST /rewards/reference": {**group, **options, "reference": "quality=1"},
        "POST /rewards/openrlhf": {"query": ["Q?A"], "prompts": ["Q?"], "labels": answers[:1]},
    }


def _set_bodies(draw: random.Random, comparison: dict[str, Any]) -> dict[str, Any]:
    return {
        "POST /calibrations/{name}/examples": {
            "fingerprint": _FINGERPRINT,
            "examples": [
                {
                    "digest": f"{draw.randint(1, 9):064x}",
                    "label": draw.choice("AB"),
                    "gap_fwd": draw.uniform(-3, 3),
                    "gap_rev": 0.5,
                    "label_mass": 0.9,
                },
            ],
            **_looks(draw),
        },
        "POST /calibrations/{name}/pool": {
            "comparisons": [comparison, comparison],
        },
        "POST /calibrations/{name}/rollback": {
            "version": draw.randint(1, 4),
            "dry_run": draw.choice((True, False)),
        },
        "POST /calibrations/{name}/absorb": {
            "even_if_infeasible": draw.choice((True, False)),
            "dry_run": draw.choice((True, False)),
        },
        "POST /audits/labels": {
            "labels": [
                *({"id": f"{draw.getrandbits(128):032x}", "label": each} for each in "AB"),
                {"id": f"{draw.getrandbits(128):032x}", "label": "none", "reason": "no texts"},
            ]
        },
        "POST /calibrations/{name}/resume": {"reason": "fuzzing"},
    }


def _looks(draw: random.Random) -> dict[str, bool]:
    fields = ("replace", "even_if_infeasible", "dry_run")
    return {field: draw.choice((True, False)) for field in fields}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every container with each of its keys or indices, from the outside in."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def hostile(draw: random.Random) -> Any:
    """A value that parsers often mishandle."""
    return copy.deepcopy(draw.choice(draw.choice((TEXTS, NUMBERS, OTHERS))))


def _drop(draw: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _swap(draw: random.Random, holder: Any, key: Any) -> None:
    holder[key] = hostile(draw)


def _retype(draw: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    holder[key] = draw.choice(
        (str(value), [value], {"value": value}, [value] * 3, bool(value), {"content": value})
    )


def _nest(draw: random.Random, holder: Any, key: Any) -> None:
    # Three changes together stay below Python's limit of recursion.
    for _ in range(draw.choice((1, 5, 60, 250))):
        holder[key] = [holder[key]] if draw.random() < 0.5 else {draw.choice(NAMES): holder[key]}


def _add(draw: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[draw.choice(NAMES)] = hostile(draw)
    else:
        holder.insert(draw.randint(0, len(holder)), hostile(draw))


def _repeat(draw: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.extend([holder[key]] * draw.choice((1, 3, 40)))
    else:
        holder[f"{key} "] = holder[key]


def _lengthen(draw: random.Random, holder: Any, key: Any) -> None:
    holder[key] = draw.choice(TEXTS) * draw.choice((2, 100, 2000))


_CHANGES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    _drop,
    _swap,
    _swap,
    _swap,
    _retype,
    _nest,
    _add,
    _repeat,
    _lengthen,
)


def mutated(draw: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """A body after one to three changes, each anywhere in its structure."""
    changed = copy.deepcopy(body)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        found = list(places(changed))
        if found:
            holder, key = draw.choice(found)
            draw.choice(_CHANGES)(draw, holder, key)
    return changed


def written(draw: random.Random, value: Any) -> bytes:
    """JSON of any value, in one of several programs' styles."""
    text = json.dumps(value, ensure_ascii=draw.random() < 0.7, indent=draw.choice((None, None, 1)))
    return text.encode("utf-8", "surrogatepass")


def mangled(draw: random.Random, content: bytes) -> bytes:
    """Valid bytes after damage in transit."""
    if not content:
        return bytes(draw.randrange(256) for _ in range(8))
    at = draw.randrange(len(content))
    noise = bytes(draw.randrange(256) for _ in range(draw.choice((1, 2, 8))))
    signs = draw.choice((b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u", b"\x00", b"e999"))
    return draw.choice(
        (
            content[:at],
            content[at:],
            content[:at] + noise + content[at:],
            content[:at] + signs + content[at:],
            content[:at] + noise + content[at + len(noise) :],
            content + content,
            content[::-1],
            content[:at] + content[: len(content) // 2] + content[at:],
        )
    )


def bodies_of_bytes() -> dict[str, bytes]:
    """Bodies that are invalid at every route, by their fault."""
    sound = json.dumps({"question": "Which?", "response_a": "x", "response_b": "y"})
    fields = sound[1:-1]
    return {
        "empty": b"",
        "white space": b" \n\t ",
        "NUL": b"\x00",
        "byte order mark": b"\xef\xbb\xbf" + sound.encode(),
        "UTF-16": sound.encode("utf-16"),
        "UTF-32": sound.encode("utf-32"),
        "invalid UTF-8": b'{"question": "\xff\xfe\x80"}',
        "overlong UTF-8": b'{"question": "\xc0\x80"}',
        "surrogate in UTF-8": b'{"question": "\xed\xa0\x80"}',
        "deep list": b"[" * 100_000,
        "deep list, closed": b"[" * 100_000 + b"]" * 100_000,
        "deep object": b'{"question":' * 100_000,
        "deep in a field": b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "enormous integer": b'{"id": 1' + b"0" * 5000 + b", " + fields.encode() + b"}",
        "enormous float": b'{"alpha": 1e400, ' + fields.encode() + b"}",
        "enormous exponent": b'{"alpha": 1e' + b"9" * 5000 + b", " + fields.encode() + b"}",
        "NaN": b'{"alpha": NaN, ' + fields.encode() + b"}",
        "Infinity": b'{"alpha": -Infinity, ' + fields.encode() + b"}",
        "minus zero": b'{"alpha": -0, ' + fields.encode() + b"}",
        "minus zero, float": b'{"alpha": -0.0, ' + fields.encode() + b"}",
        "lone surrogate as a name": b'{"\\ud800": 1, ' + fields.encode() + b"}",
        "lone surrogate as a value": b'{"question": "\\udfff", "response_a": "", "response_b": ""}',
        "duplicate name": b'{"question": "x", "question": 3, ' + fields[22:].encode() + b"}",
        "10 MB of text": b'{"question": "' + b"x" * 10_000_000 + b'"}',
        "2 MB of white space": b" " * 2_000_000,
        "many items": b'{"comparisons": [' + b"{}," * 20_000 + b'{}], "examples": []}',
        "many fields": b"{" + b",".join(b'"f%d": 0' % i for i in range(20_000)) + b"}",
        "single quotes": b"{'question': 'x'}",
        "comments": b'{"question": "x" /* y */}',
        "trailing comma": b'{"question": "x",}',
        "two values": b"{} {}",
        "form": b"question=x&response_a=y&response_b=z",
        "multipart": b'--x\r\nContent-Disposition: form-data; name="id"\r\n\r\ny\r\n--x--\r\n',
        "compressed": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3",
        "bare text": b"question",
        "bare string": b'"question"',
        "null": b"null",
        "true": b"true",
        "number": b"3",
        "list": b"[]",
        "list of a request": b"[" + sound.encode() + b"]",
    }
