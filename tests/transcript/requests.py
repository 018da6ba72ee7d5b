"""The requests of the transcript, in their order."""

from typing import Any

from tests.transcript.walk import ALPHAS, GUARANTEES, Walk, examples, pair

SET = "/calibrations/mine"


def all_requests(walk: Walk) -> None:
    """Sends every request."""
    _start(walk)
    _sets(walk)
    _judgments(walk)
    _rewards(walk)
    _decisions(walk)
    _refusals(walk)
    _audits(walk)
    _changes(walk)
    _pools(walk)


def _start(walk: Walk) -> None:
    for path in ("/healthz", "/readyz", "/info", "/usage", "/calibrations", "/audits"):
        walk.send(f"start {path}", "GET", path, key=None if path.endswith("z") else "analyst")
    walk.send("start judge", "POST", "/judge", pair(1, 2.0))
    walk.send("start judge null", "POST", "/judge", {**pair(1, 2.0), "alpha": None})
    walk.send("start unknown set", "GET", SET)


def _sets(walk: Walk) -> None:
    rows = examples(300, seed=1)
    calibrate = {"calibration": "mine", "examples": rows}
    walk.send("set dry run", "POST", "/calibrate", {**calibrate, "dry_run": True})
    walk.send("set still unknown", "GET", SET)
    walk.send("set calibrate", "POST", "/calibrate", calibrate)
    walk.send("set same examples", "POST", "/calibrate", calibrate)
    walk.send("set more", "POST", "/calibrate", {**calibrate, "examples": examples(200, seed=2)})
    flipped = [{**rows[0], "label": "B" if rows[0]["label"] == "A" else "A"}]
    changed = {**calibrate, "examples": flipped}
    walk.send("set another label", "POST", "/calibrate", {**changed, "change_labels": False})
    walk.send("set changed label", "POST", "/calibrate", changed)
    walk.send(
        "set replace",
        "POST",
        "/calibrate",
        {"calibration": "small", "examples": examples(40, seed=3), "replace": True},
    )
    bad = [rows[1], {**rows[2], "label": "C"}, {**rows[3], "response_a": " "}]
    walk.send("set invalid label", "POST", "/calibrate", {**calibrate, "examples": bad[:2]})
    walk.send("set invalid text", "POST", "/calibrate", {**calibrate, "examples": bad[::2]})
    for alpha in ALPHAS:
        walk.send(f"set at {alpha}", "GET", f"{SET}?alpha={alpha}&delta=0.1")
    for name in ("mine", "small", "nobody"):
        walk.send(f"set {name}", "GET", f"/calibrations/{name}")
        walk.send(f"set versions of {name}", "GET", f"/calibrations/{name}/versions")
    walk.send("set versions before 3", "GET", f"{SET}/versions?before=3&limit=1")
    walk.send("set all", "GET", "/calibrations")
    walk.send("set examples", "GET", f"{SET}/examples?limit=3")
    walk.send("set examples of nobody", "GET", "/calibrations/nobody/examples")
    exported = walk.send("set small examples", "GET", "/calibrations/small/examples")
    copied = [
        {name: row[name] for name in ("digest", "question", "gap_fwd", "gap_rev", "label_mass")}
        | {"label": row["label"]}
        for row in exported["examples"]
    ]
    copy = {"fingerprint": exported["fingerprint"], "examples": copied}
    walk.send("set import", "POST", "/calibrations/copy/examples", copy)
    strange = {**copy, "fingerprint": "0" * 64}
    walk.send("set import of another judge", "POST", "/calibrations/copy/examples", strange)


def _judgments(walk: Walk) -> None:
    gaps = (3.5, -2.5, 1.2, -0.4, 0.0)
    for guarantee in GUARANTEES:
        for alpha in ALPHAS:
            for place, gap in enumerate(gaps):
                body = {**pair(place, gap), "alpha": alpha, "guarantee": guarantee}
                if guarantee == "pac":
                    body["delta"] = 0.2
                walk.send(
                    f"judge {guarantee} {alpha} {gap}",
                    "POST",
                    "/judge",
                    {**body, "calibration": "mine"},
                )
    base = {"calibration": "mine", "alpha": 0.1}
    walk.send("judge with id", "POST", "/judge", {**pair(7, 1.0), **base, "id": "pair-7"})
    walk.send("judge defaults", "POST", "/judge", {**pair(8, 1.0), "calibration": "mine"})
    walk.send("judge small", "POST", "/judge", {**pair(8, 1.0), "calibration": "small"})
    conversation = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Which?"},
    ]
    walk.send(
        "judge a conversation", "POST", "/judge", {**pair(9, 2.0), **base, "question": conversation}
    )
    turns = {"question": ["One?", "Two?"], "response_a": ["a"], "response_b": ["b", "c"]}
    walk.send("judge unequal turns", "POST", "/judge", {**turns, **base})
    pairs = [{**pair(number, number - 3.0), "id": f"pair-{number}"} for number in range(8)]
    walk.send("batch", "POST", "/judge/batch", {"comparisons": pairs, **base})
    mixed = [{**pairs[0], "alpha": 0.4}, {**pairs[1], "response_b": ""}, pairs[2]]
    walk.send("batch with an invalid pair", "POST", "/judge/batch", {"comparisons": mixed, **base})
    lost = [pairs[0], {**pairs[1], "calibration": "nobody"}]
    walk.send("batch with an unknown set", "POST", "/judge/batch", {"comparisons": lost, **base})
    walk.send("batch of nothing", "POST", "/judge/batch", {"comparisons": []})


def _rewards(walk: Walk) -> None:
    criterion = {"calibration": "mine", "alpha": 0.2}
    texts = ["quality=3", "quality=0.2", "quality=0", "quality=-3"]
    group = {"question": "Which?", "responses": texts, **criterion}
    for reward in ("hard", "soft"):
        for opponents in ("all", 2):
            body = {**group, "reward": reward, "opponents": opponents}
            walk.send(f"rewards {reward} {opponents}", "POST", "/rewards/group", body)
        referenced = {**group, "reward": reward, "reference": "quality=1"}
        walk.send(f"rewards reference {reward}", "POST", "/rewards/reference", referenced)
    for alpha in (0.02, 0.4):
        walk.send(f"rewards at {alpha}", "POST", "/rewards/group", {**group, "alpha": alpha})
    walk.send("rewards pac", "POST", "/rewards/group", {**group, "guarantee": "pac", "delta": 0.1})
    cases = {
        "equal texts": ["quality=3", "quality=3", "quality=0"],
        "all equal": ["quality=3", "quality=3"],
        "one": ["quality=3"],
        "an empty one": ["quality=3", "quality=-3", " \n"],
        "only empty ones": ["", " "],
        "none": [],
    }
    for name, responses in cases.items():
        walk.send(f"rewards {name}", "POST", "/rewards/group", {**group, "responses": responses})
    no_empty = {**group, "responses": cases["an empty one"], "empty": "null"}
    walk.send("rewards empty null", "POST", "/rewards/group", no_empty)
    groups = [
        {"question": "One?", "responses": texts[:2]},
        {"question": "Two?", "responses": texts[2:], "reference": "quality=1"},
        {"question": " ", "responses": texts},
    ]
    walk.send("rewards groups", "POST", "/rewards/groups", {"groups": groups, **criterion})
    openrlhf = {
        "query": ["Which?quality=3", "Which?quality=1"],
        "prompts": ["Which?", "Which?"],
        "labels": ["quality=0", "quality=1"],
    }
    target = "/rewards/openrlhf?calibration=mine&alpha=0.2"
    walk.send("rewards openrlhf", "POST", target, openrlhf)
    walk.send("rewards of a guest", "POST", "/rewards/group", group, key="guest")


def _decisions(walk: Walk) -> None:
    criterion = {"calibration": "mine", "alpha": 0.2}
    for gap in (3.0, 0.2):
        question: dict[str, Any] = {
            "type": "choice",
            "instructions": "Choose.",
            "criteria": {"first": f"quality={gap}", "second": "quality=0"},
        }
        body = {"state": "The state.", "questions": {"which": question}, **criterion}
        walk.send(f"systemone {gap}", "POST", "/v1/systemone", body)
        unsure = {**body, "abstain_as": "unsure"}
        walk.send(f"systemone {gap} abstain_as", "POST", "/v1/systemone", unsure)
        choices = [
            {"value": value, "description": text} for value, text in question["criteria"].items()
        ]
        asked = {"type": "choice", "name": "which", "instructions": "Choose.", "choices": choices}
        decision = {"input": "The state.", "questions": [asked], **criterion}
        walk.send(f"decisions {gap}", "POST", "/v1/decisions", decision)
    walk.send("systemone without questions", "POST", "/v1/systemone", {"state": "x"})
    strange = {"state": "x", "questions": {"which": {"type": "number"}}}
    walk.send("systemone of another type", "POST", "/v1/systemone", strange)


def _refusals(walk: Walk) -> None:
    body = {**pair(1, 1.0), "calibration": "mine"}
    walk.send("refused without a key", "POST", "/judge", body, key=None)
    walk.send("refused to a guest", "POST", "/judge", body, key="guest")
    walk.send("refused to a labeler", "POST", "/judge", body, key="labeler")
    walk.send("refused to a trainer", "POST", "/calibrate", {"examples": []}, key="trainer")
    walk.send("refused deletion to a trainer", "DELETE", SET, key="trainer")
    walk.send("refused path", "GET", "/nothing")
    walk.send("refused method", "PUT", "/judge", body)
    walk.send("refused set", "POST", "/judge", {**body, "calibration": "nobody"})
    walk.send("refused name of a set", "POST", "/judge", {**body, "calibration": "a/b"})
    for field, value in {
        "alpha": 1.5,
        "guarantee": "sure",
        "delta": 0.1,
        "response_a": "",
        "question": None,
        "nothing_of_the_kind": 1,
    }.items():
        walk.send(f"refused {field}", "POST", "/judge", {**body, field: value})
    walk.send("refused JSON", "POST", "/judge", content=b'{"question": ')
    walk.send("refused NaN", "POST", "/judge", content=b'{"question": "Q", "alpha": NaN}')
    walk.send("refused body", "POST", "/judge", {**body, "question": "x" * 300_000})
    many = {"comparisons": [pair(1, 1.0)] * 401}
    walk.send("refused batch", "POST", "/judge/batch", many)
    criteria = [{**pair(1, 1.0), "alpha": (1 + place) / 1000} for place in range(200)]
    walk.send("refused criteria", "POST", "/judge/batch", {"comparisons": criteria})


def _audits(walk: Walk) -> None:
    drawn = []
    for number in range(60):
        gap = 3.0 if number % 3 else 0.1
        body = {**pair(5000 + number, gap), "calibration": "watched", "alpha": 0.2}
        if not number:
            rows = {"calibration": "watched", "examples": examples(200, seed=4, quality=3.0)}
            walk.send("audits set", "POST", "/calibrate", rows)
        if number < 3:
            drawn.append(walk.send(f"audits judge {number}", "POST", "/judge", body))
            again = walk.send(f"audits judge {number} again", "POST", "/judge", body)
            assert again["audit"]["id"] == drawn[-1]["audit"]["id"]
        elif number == 3:
            many = [
                {**pair(5000 + each, 3.0 if each % 3 else 0.1), "id": f"pair-{each}"}
                for each in range(3, 60)
            ]
            batch = {"comparisons": many, "calibration": "watched", "alpha": 0.2}
            drawn += walk.send("audits batch", "POST", "/judge/batch", batch)["results"]
    ids = [judgment["audit"]["id"] for judgment in drawn]
    listing = "/audits?calibration=watched&limit=3"
    walk.send("audits open", "GET", f"{listing}&status=open")
    walk.send("audits to a guest", "GET", listing, key="guest")
    monitor = "/calibrations/watched/monitor"
    walk.send("audits monitor at first", "GET", monitor)

    def label(name: str, labels: list[tuple[str, str]], **more: Any) -> None:
        body = {"labels": [{"id": place, "label": side, **more} for place, side in labels]}
        walk.send(f"audits {name}", "POST", "/audits/labels", body)

    label("right", [(place, "A") for place in ids[:9]])
    label("once more", [(place, "A") for place in ids[:9]])
    label("changed", [(ids[0], "B")])
    label("tie", [(ids[9], "tie")])
    label("unknown", [("0" * 32, "A")])
    label("nobody can say", [(ids[10], "none")], reason="unreadable")
    label("none without a reason", [(ids[11], "none")])
    label("invalid", [(ids[11], "C")])
    walk.send("audits labelled", "GET", f"{listing}&status=labelled")
    walk.send("audits monitor with labels", "GET", monitor)
    absorb = "/calibrations/watched/absorb"
    walk.send("audits absorb dry run", "POST", absorb, {"dry_run": True})
    label("wrong", [(place, "B") for place in ids[11:]])
    walk.send("audits monitor in the end", "GET", monitor)
    body = {**pair(6000, 3.0), "calibration": "watched", "alpha": 0.2}
    walk.send("audits judge in the end", "POST", "/judge", body)
    walk.send("audits resume without a reason", "POST", "/calibrations/watched/resume", {})
    reason = {"reason": "checked by hand"}
    walk.send("audits resume", "POST", "/calibrations/watched/resume", reason)
    walk.send("audits resume of nobody", "POST", "/calibrations/nobody/resume", reason)
    walk.send("audits judge after it", "POST", "/judge", {**body, "question": "Another?"})
    walk.send("audits monitor after it", "GET", monitor)
    walk.send("audits monitor of nobody", "GET", "/calibrations/nobody/monitor")


def _changes(walk: Walk) -> None:
    walk.send(
        "change roll back dry run", "POST", f"{SET}/rollback", {"version": 1, "dry_run": True}
    )
    walk.send("change roll back", "POST", f"{SET}/rollback", {"version": 1})
    walk.send("change to no version", "POST", f"{SET}/rollback", {"version": 99})
    walk.send("change set", "GET", SET)
    walk.send("change versions", "GET", f"{SET}/versions")
    for gap in (2.0, 0.6):
        body = {**pair(7000, gap), "calibration": "mine", "alpha": 0.1}
        walk.send(f"change judge {gap}", "POST", "/judge", body)
    walk.send("change delete dry run", "DELETE", "/calibrations/small?dry_run=true")
    walk.send("change delete", "DELETE", "/calibrations/small")
    walk.send("change deleted", "GET", "/calibrations/small")
    walk.send("change restore", "POST", "/calibrations/small/rollback", {"version": 1})
    walk.send("change delete nobody", "DELETE", "/calibrations/nobody")


def _pools(walk: Walk) -> None:
    rows = examples(250, seed=5, quality=1.5)
    pairs = [{name: text for name, text in row.items() if name != "label"} for row in rows]
    path = "/calibrations/lazy"
    pool = walk.send("pool", "POST", f"{path}/pool", {"comparisons": pairs})
    labels = dict(zip(pool["digests"], rows, strict=True))
    target = f"{path}/next?alpha=0.1&delta=0.1&limit=200"
    for turn in range(12):
        following = walk.send(f"pool next {turn}", "GET", target)
        if following["complete"]:
            break
        chosen = [labels[digest] for digest in following["digests"][: following["needed"]]]
        body = {"calibration": "lazy", "examples": chosen}
        walk.send(f"pool labels {turn}", "POST", "/calibrate", body)
    walk.send("pool set", "GET", path)
    judged: dict[str, Any] = {**pair(8000, 3.0), "calibration": "lazy", "alpha": 0.1}
    walk.send("pool judge pac", "POST", "/judge", {**judged, "guarantee": "pac", "delta": 0.1})
    walk.send("pool judge marginal", "POST", "/judge", {**judged, "guarantee": "marginal"})
    walk.send("pool of nobody", "GET", "/calibrations/nobody/next")
