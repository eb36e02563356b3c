"""What a run leaves in the Prefect UI for people, and the host report that promotion reads back."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Literal
from uuid import UUID

from data_contracts.errors import OutsideSystemError, Problem
from data_contracts.release import HostReport

HOST_REPORT_KEY = "host-report"
REPORT_ROW = "report (JSON)"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; bars in cells are escaped, line breaks become spaces.

    >>> print(markdown_table(["a", "b"], [[1, "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\\\|y |
    """
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def markdown_pictures(pictures: Iterable[tuple[str, bytes]]) -> str:
    """Pictures with captions; `pictures` are (caption, JPEG bytes). Small ones: they travel inside the text."""
    parts = (
        f"**{caption}**\n\n![{caption}](data:image/jpeg;base64,{base64.b64encode(jpeg).decode()})"
        for caption, jpeg in pictures
    )
    return "\n\n".join(parts)


def leave_markdown(key: str, markdown: str, description: str) -> None:
    """Attach Markdown to the current run."""
    from prefect.artifacts import create_markdown_artifact

    create_markdown_artifact(markdown, key=key, description=description)


def leave_link(key: str, url: str, text: str) -> None:
    """Attach a link to the current run."""
    from prefect.artifacts import create_link_artifact

    create_link_artifact(link=url, link_text=text, key=key, description=text)


class LiveArtifact:
    """One artifact of the run that this is made in, whose content is replaced in place; without a run there is none.

    It may be shown from any thread. A run that is tried again, or goes on in another process, continues its artifact.
    """

    def __init__(self, key: str, kind: Literal["markdown", "progress"]) -> None:
        from prefect.utilities.context import get_task_and_flow_run_ids

        self._key, self._kind = key, kind
        self._task_run, self._flow_run = get_task_and_flow_run_ids()
        self._id: UUID | None = None

    def show(self, data: str | float, description: str) -> None:
        """Put `data`, Markdown or a percentage, in the place of what is there. Raises Prefect's errors."""
        if self._flow_run is None:
            return
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.actions import ArtifactUpdate
        from prefect.exceptions import ObjectNotFound

        with get_client(sync_client=True) as client:
            self._id = self._id or self._find(client) or self._make(client, data, description)
            try:
                client.update_artifact(self._id, ArtifactUpdate(data=data, description=description))
            except ObjectNotFound:  # somebody deleted it
                self._id = self._make(client, data, description)

    def _find(self, client: Any) -> UUID | None:
        from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey

        ours = ArtifactFilter(
            flow_run_id=ArtifactFilterFlowRunId(any_=[self._flow_run]), key=ArtifactFilterKey(any_=[self._key])
        )
        found = client.read_artifacts(artifact_filter=ours)
        return UUID(str(found[0].id)) if found else None

    def _make(self, client: Any, data: str | float, description: str) -> UUID:
        from prefect.client.schemas.actions import ArtifactCreate

        made = client.create_artifact(
            ArtifactCreate(
                key=self._key,
                type=self._kind,
                data=data,
                description=description,
                flow_run_id=self._flow_run,
                task_run_id=self._task_run,
            )
        )
        return UUID(str(made.id))


def leave_host_report(report: HostReport) -> None:
    """Attach the report as a table: some rows for people, the last one for `find_host_report`."""
    from prefect.artifacts import create_table_artifact

    outcome = report.outcome
    rows = [
        ("host", report.host),
        ("serving", report.serving_digest or "nothing, or its workers differ"),
        ("desired generation", str(report.desired.generation)),
        ("previous", report.desired.previous or "none"),
        ("outcome", f"{outcome.status}: {outcome.message} ({outcome.seconds:.1f} s)" if outcome else "no intent"),
        *((f"worker {worker.worker_id}", f"answers with {worker.active}") for worker in report.workers),
        (REPORT_ROW, report.model_dump_json()),
    ]
    create_table_artifact(
        [{"what": what, "value": value} for what, value in rows],
        key=f"{HOST_REPORT_KEY}-{report.host.replace('.', '-').replace('_', '-')}",
        description=f"Inference host {report.host}",
    )


def find_host_report(flow_run_id: UUID) -> HostReport:
    """The report that the flow run left. Raises OutsideSystemError when it left none."""
    import json

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey

    wanted = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]), key=ArtifactFilterKey(like_=f"{HOST_REPORT_KEY}-%")
    )
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=wanted)
    for artifact in found:
        rows = json.loads(artifact.data) if isinstance(artifact.data, str) else []
        for row in rows:
            if row["what"] == REPORT_ROW:
                return HostReport.model_validate_json(row["value"])
    raise OutsideSystemError(
        Problem(f"flow run {flow_run_id}", "a host report", "none", "See the run's log in the Prefect UI.")
    )
