"""The methods of both clients about audits: judgments drawn at random, and their labels."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, urlencode

from scope_judge.answers import AbsorbReport, Audit, AuditLabels, AuditPage, Label
from scope_judge.comparisons import to_json
from scope_judge.exchange import Call, Session, Steps
from scope_judge.parsing import parse
from scope_judge.transport import AsyncTransport, SyncTransport

# The service takes and lists at most so many at a time.
_MOST = 1000

Status = Literal["open", "labelled", "expired"]


class AuditCalls:
    """The calls of the service about audits.

    Args:
        session: State that the calls share.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(self, query: Mapping[str, Any], after: int) -> Steps[AuditPage]:
        """Lists some audits."""
        given = {**query, "after": after, "limit": _MOST}
        wanted = urlencode({name: value for name, value in given.items() if value is not None})
        answer = yield from self._session.exchange(Call("GET", f"/audits?{wanted}"))
        return parse(AuditPage, answer)

    def label(self, labels: Mapping[str, Label]) -> Steps[AuditLabels]:
        """Sends labels, one request after the other."""
        rows = [{"id": each, "label": label} for each, label in labels.items()]
        parts: list[AuditLabels] = []
        for start in range(0, len(rows), _MOST):
            body = to_json({"labels": rows[start : start + _MOST]})
            answer = yield from self._session.exchange(Call("POST", "/audits/labels", body))
            parts.append(parse(AuditLabels, answer))
        return _merged(parts)

    def absorb(self, name: str, options: Mapping[str, Any]) -> Steps[AbsorbReport]:
        """Makes labelled audits examples of a set."""
        call = Call("POST", f"/calibrations/{quote(name, safe='')}/absorb", to_json(options))
        return parse(AbsorbReport, (yield from self._session.exchange(call)))


class SyncAudits:
    """The methods of the synchronous client."""

    _audits: AuditCalls
    _transport: SyncTransport

    def audits(
        self, calibration: str | None = None, *, status: Status | None = None
    ) -> Iterator[Audit]:
        """Yields the judgments that were drawn for an audit, oldest first.

        Args:
            calibration: Only audits of this calibration set; by default of all sets that the key
                may use.
            status: Only audits that are "open", "labelled" or "expired".

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        query = {"calibration": calibration, "status": status}
        after: int | None = 0
        while after is not None:
            page = self._transport.run(self._audits.page(query, after))
            yield from page.audits
            after = page.next_after

    def label_audits(self, labels: Mapping[str, Label]) -> AuditLabels:
        """Labels judgments that were drawn for an audit.

        Sending labels again changes nothing, and another label for the same audit replaces the
        first one.

        Args:
            labels: The id of each audit, from `Judgment.audit` or `audits`, and its label: "A", "B"
                or "tie", in the order of the responses that was judged.

        Returns:
            Counts of the labels, and the ids whose labels were not taken.

        Raises:
            ScopeError: The service refuses a request, or does not answer. One request has at most
                1,000 labels, and labels of earlier requests were taken.
        """
        return self._transport.run(self._audits.label(labels))

    def absorb(
        self,
        name: str,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        replace: bool = False,
        unlabelled: Literal["refuse", "leave_out"] = "refuse",
    ) -> AbsorbReport:
        """Makes labelled audits examples of a calibration set, in one new version.

        Args:
            name: Name of the set.
            since: Only comparisons that were first judged at this time or later; a time with a time
                zone, or its text in ISO 8601.
            until: Only comparisons that were first judged before this time, likewise. Choose it
                without a look at the labels.
            replace: Remove all other examples of the set.
            unlabelled: "refuse" if audits of that time have no label, or "leave_out".

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        options = _absorb_options(since, until, replace=replace, unlabelled=unlabelled)
        return self._transport.run(self._audits.absorb(name, options))


class AsyncAudits:
    """The methods of the asynchronous client, which are those of the synchronous one."""

    _audits: AuditCalls
    _transport: AsyncTransport

    async def audits(
        self, calibration: str | None = None, *, status: Status | None = None
    ) -> AsyncIterator[Audit]:
        """Yields the judgments that were drawn for an audit, as `ScopeClient.audits`."""
        query = {"calibration": calibration, "status": status}
        after: int | None = 0
        while after is not None:
            page = await self._transport.run(self._audits.page(query, after))
            for audit in page.audits:
                yield audit
            after = page.next_after

    async def label_audits(self, labels: Mapping[str, Label]) -> AuditLabels:
        """Labels judgments that were drawn for an audit, as `ScopeClient.label_audits`."""
        return await self._transport.run(self._audits.label(labels))

    async def absorb(
        self,
        name: str,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        replace: bool = False,
        unlabelled: Literal["refuse", "leave_out"] = "refuse",
    ) -> AbsorbReport:
        """Makes labelled audits examples of a calibration set, as `ScopeClient.absorb`."""
        options = _absorb_options(since, until, replace=replace, unlabelled=unlabelled)
        return await self._transport.run(self._audits.absorb(name, options))


def _absorb_options(
    since: datetime | str | None, until: datetime | str | None, *, replace: bool, unlabelled: str
) -> dict[str, Any]:
    options: dict[str, Any] = {"replace": replace, "unlabelled": unlabelled}
    for name, moment in (("since", since), ("until", until)):
        # Older services refuse a field that they do not know.
        if moment is not None:
            options[name] = moment.isoformat() if isinstance(moment, datetime) else moment
    return options


def _merged(parts: Sequence[AuditLabels]) -> AuditLabels:
    """Adds the counts and joins the lists of several reports."""

    def total(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return sum(values, ()) if name.endswith("_ids") else sum(values)

    return AuditLabels(**{each.name: total(each.name) for each in fields(AuditLabels)})
