"""Requests that schemathesis makes from the OpenAPI document, and the results of its checks."""

import json
from collections.abc import Callable
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import CheckNode, Interaction, ScenarioRecorder

from tests.drills.fuzzing.promises import Answer, Document
from tests.drills.fuzzing.scene import HANG_S, Scene
from tests.drills.fuzzing.tally import Tally

# Rules that are documented, but that JSON Schema cannot express: blank texts, mismatched turns, and
# a delta without the guarantee `pac`.
_BEYOND_THE_SCHEMA = ("invalid_comparison", "batch_too_large")
# Fields of the reward routes with chats, rendered prompts and references: JSON Schema cannot say
# that they contain a question of the user and text only.
_CHATS = frozenset(
    (
        "question",
        "responses",
        "reference",
        "groups",
        "query",
        "prompts",
        "labels",
        "prompt",
        "response",
        "label",
        "ground_truth",
        "responses_create_params",
        "conversation_history",
        "response_objs",
        "principle",
    )
)
_WHOLE_NUMBERS = ("Input should be a valid integer", "it is a whole number from 1")
_NEED_THE_BODY = ("positive_data_acceptance", "negative_data_rejection")
_MAKE_A_SET = (
    "POST /calibrations/{name}/rollback",
    "POST /calibrations/{name}/examples",
    "POST /calibrations/{name}/pool",
)
_OUTLIVE_A_DELETION = (
    "GET /calibrations/{name}/versions",
    "GET /calibrations/{name}/audit-trail",
    "POST /calibrations/{name}/rollback",
)


def run(
    scene: Scene,
    tally: Tally,
    *,
    examples: int,
    seed: int,
    on_request: Callable[[], None],
) -> None:
    """Sends requests for every route, and checks each answer with every check of schemathesis.

    Args:
        scene: The service.
        tally: Receives the results.
        examples: Limit per route and phase, besides the requests of the coverage phase.
        seed: Seed of the requests.
        on_request: Called for each request.
    """
    config = SchemathesisConfig.from_dict(_config(scene, examples=examples, seed=seed))
    schema = schemathesis.openapi.from_dict(scene.document.content, config=config)
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            for _ in _note_scenario(event.recorder, scene.document, tally):
                on_request()
        elif isinstance(event, events.FatalError | events.NonFatalError):
            raise AssertionError(f"schemathesis: {getattr(event, 'value', event)!r}")
    scene.note_health(tally)


def _config(scene: Scene, *, examples: int, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "base-url": scene.url,
        "headers": scene.headers,
        "request-timeout": HANG_S,
        "workers": 1,
        "continue-on-failure": True,
        # The validator needs whole answers, not truncated ones.
        "output": {"truncation": {"max-recorded-payload-size": 0}},
        "generation": {
            "max-examples": examples,
            "mode": "all",
            "database": "none",
            "no-shrink": True,
        },
        "phases": {"stateful": {"enabled": True, "max-steps": 5}},
    }


def _note_scenario(recorder: ScenarioRecorder, document: Document, tally: Tally) -> list[str]:
    noted = []
    for case_id, interaction in recorder.interactions.items():
        case = recorder.cases[case_id].value
        route = case.operation.label
        response = interaction.response
        if response is None:
            tally.count(route, "hang", HANG_S)
            tally.failed("no hang", f"{route}: {_sent(interaction)}")
            continue
        tally.count(route, str(response.status_code), response.elapsed)
        noted.append(route)
        headers = {name: values[0] for name, values in response.headers.items()}
        answer = Answer(response.status_code, headers, response.content or b"")
        as_documented = f"{case.method.upper()} {case.operation.path}" == route
        faults = document.faults(route if as_documented else None, answer)
        if case.method.upper() != "HEAD":
            _note(tally, "as documented", faults[0] if faults else None, interaction)
        for node in recorder.checks.get(case_id, ()):
            if node.status is not Status.FAILURE:
                tally.passed(node.name)
                continue
            reason = excuse(node.name, route, answer)
            if node.name == "use_after_free" and made_again(recorder, case_id):
                reason = "POST /calibrate, an import or a rollback made the set again"
            _note_failure(tally, node, reason, interaction)
    return noted


def made_again(recorder: ScenarioRecorder, read: str) -> bool:
    """Whether the set that a request reads was made again after its last deletion.

    schemathesis only recognizes a POST to /calibrations as a creation, and there is no such route.
    """
    name = (recorder.cases[read].value.path_parameters or {}).get("name")
    there = False
    for case_id, node in recorder.cases.items():
        if case_id == read:
            break
        case, response = node.value, recorder.find_response(case_id=case_id)
        if response is None or response.status_code not in (200, 204):
            continue
        route, body = case.operation.label, case.body if isinstance(case.body, dict) else {}
        if body.get("dry_run") is True:
            continue
        if route == "POST /calibrate":
            there = there or body.get("calibration", "default") == name
        elif (case.path_parameters or {}).get("name") == name:
            there = there or route in _MAKE_A_SET
            if route == "DELETE /calibrations/{name}":
                # 200 is the answer to a dry run, after which the set is still there.
                there = response.status_code == 200
    return there


def _note_failure(
    tally: Tally, node: CheckNode, reason: str | None, interaction: Interaction
) -> None:
    if reason is not None:
        tally.excused[f"{node.name}: {reason}"] += 1
        return
    assert node.failure_info is not None
    _note(tally, node.name, node.failure_info.failure.message, interaction)


def excuse(check: str, route: str, answer: Answer) -> str | None:
    """The reason to ignore a failed check of schemathesis because of an exact check of ours."""
    if check == "use_after_free" and route in _OUTLIVE_A_DELETION:
        return "the trail of a set outlives it, and leads back to it"
    if answer.status not in (200, 422, 413) or check not in _NEED_THE_BODY:
        return None
    body = json.loads(answer.body)
    if check == "positive_data_acceptance" and answer.status != 200:
        if body.get("code") in _BEYOND_THE_SCHEMA:
            return f"{body['code']} says what JSON Schema cannot"
        faults = body.get("errors", ())
        if [fault["field"] for fault in faults] in (["delta"],):
            return "JSON Schema cannot forbid a delta without pac or alpha"
        places = {fault["field"].partition(".")[0] for fault in faults}
        if route.startswith("POST /rewards/") and places <= _CHATS:
            return "JSON Schema cannot say which chats are texts"
        if any("because gap_fwd is" in fault["message"] for fault in faults):
            return "JSON Schema cannot say that a score is whole"
        if any("leaves none" in fault["message"] for fault in faults):
            return "JSON Schema cannot say that an example of a replacement prefers a side"
        if any("has no active alarm" in fault["message"] for fault in faults):
            return "JSON Schema cannot say whether an alarm is active"
        if any(fault["message"].startswith(_WHOLE_NUMBERS) for fault in faults):
            return "1.0 is an integer in JSON Schema, but not here"
        if "the first test at this alpha needs" in body.get("detail", ""):
            return "JSON Schema cannot say how many pairs an alpha needs"
    if check == "negative_data_rejection" and answer.status == 413:
        return "413 refuses it, too"
    if check == "negative_data_rejection" and answer.status == 200:
        if route == "GET /calibrations/{name}/next":
            return "alpha and delta are rounded to four digits before their bounds are checked"
        refused = [entry["error"]["code"] for entry in body.get("errors", ())]
        items = [*body.get("results", ()), *body.get("groups", ()), *body.get("scores", ())]
        refused += [entry["error"]["code"] for entry in items if entry.get("error")]
        if refused:
            return "the item has its own error, its neighbors are served"
    return None


def _note(tally: Tally, check: str, fault: str | None, interaction: Interaction) -> None:
    if fault is None:
        tally.passed(check)
        return
    response = interaction.response
    got = None if response is None else (response.status_code, (response.content or b"")[:300])
    tally.failed(check, f"{fault}\n  sent {_sent(interaction)}\n  got {got}")


def _sent(interaction: Interaction) -> str:
    request = interaction.request
    return f"{request.method} {request.uri[:300]} {(request.body or b'')[:600]!a}"
