"""Automations of Prefect: a silent run is given up, a job that did not end well is attended to, people are told.

run without sign of life      -> Crashed
retrain ended badly           -> run `attend` on the training side, which raises an alert
alert                         -> webhook, where one is given
no alert after a bad end      -> webhook as well: nobody on the training side is left
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import Field, SecretStr

from data_contracts.base import Contract
from tasks.alerts import ALARMING, ALERT_EVENT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import AutomationCore

SILENT, ATTEND, TELL, UNATTENDED = "passline-silent-run", "passline-attend", "passline-tell", "passline-unattended"
WEBHOOK = "passline-alerts"
ENDS = frozenset(f"prefect.flow-run.{state}" for state in ALARMING)
WAITING_FOR_ITS_PROCESS = ("Pending", "Submitting", "InfrastructurePending")
AT_WORK = ("Running", "Retrying", "Cancelling", "heartbeat")
UNDER_WAY = frozenset(f"prefect.flow-run.{word}" for word in (*WAITING_FOR_ITS_PROCESS, *AT_WORK))
EACH_RUN = frozenset({"prefect.resource.id"})
RUN_ID = "{{ event.resource.id | replace('prefect.flow-run.', '') }}"
NOBODY_LEFT = (
    '{"text": {{ ("retrain " ~ flow_run.name ~ ": " ~ flow_run.state.name ~ "; " ~ flow_run.state.message ~ '
    '" Nobody on the training side answers: see that its worker runs. Resume with: passline resume " ~ flow_run.id)'
    ' | tojson }}, "run_id": "{{ flow_run.id }}"}'
)


class AlertConfig(Contract):
    """When a run is given up, and when people are told that nobody attends to it."""

    silence_s: int = Field(
        ge=90,
        le=270,
        description="Seconds without a sign of life after which a run is given up; there is one every 30.",
    )
    unattended_s: int = Field(
        ge=30, le=3600, description="Seconds after a bad end in which the training side must have raised its alert."
    )


def silent_run(flows: Sequence[str], config: AlertConfig) -> AutomationCore:
    """Give up a run of `flows` that shows no sign of life. Every event of a run is one, its end too."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    message = f"no sign of life for {config.silence_s} s: its process or its machine is gone"
    return AutomationCore(
        name=SILENT,
        description="A run without a sign of life has crashed: its slot is free again.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after=set(UNDER_WAY),
            expect={"prefect.flow-run.*"},
            for_each=set(EACH_RUN),
            within=timedelta(seconds=config.silence_s),
            **_runs_of(flows),
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=message)],
    )


def attend(deployment_id: UUID) -> AutomationCore:
    """Have the training side attend to a retraining that ended badly."""
    from prefect.events.actions import RunDeployment
    from prefect.events.schemas.automations import AutomationCore, EventTrigger

    return AutomationCore(
        name=ATTEND,
        description="A job that did not end well is closed, told of and, where it may, taken up again.",
        trigger=EventTrigger(expect=set(ENDS), for_each=set(EACH_RUN), **_runs_of(["retrain"])),
        actions=[
            RunDeployment(source="selected", deployment_id=deployment_id, parameters={"flow_run_id": RUN_ID}),
        ],
    )


def tell(webhook: UUID) -> AutomationCore:
    """Send an alert to the webhook."""
    from prefect.events.actions import CallWebhook
    from prefect.events.schemas.automations import AutomationCore, EventTrigger

    return AutomationCore(
        name=TELL,
        description="Alerts go to the webhook.",
        trigger=EventTrigger(expect={ALERT_EVENT}, for_each=set(EACH_RUN)),
        actions=[CallWebhook(block_document_id=webhook, payload="{{ event.payload | tojson }}")],
    )


def unattended(webhook: UUID, config: AlertConfig) -> AutomationCore:
    """Tell people from the Prefect server when the training side did not."""
    from prefect.events.actions import CallWebhook
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    return AutomationCore(
        name=UNATTENDED,
        description="Nobody on the training side attends to a job that ended badly.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after=set(ENDS),
            expect={ALERT_EVENT, "prefect.flow-run.Running"},
            for_each=set(EACH_RUN),
            within=timedelta(seconds=config.unattended_s),
            **_runs_of(["retrain"]),
        ),
        actions=[CallWebhook(block_document_id=webhook, payload=NOBODY_LEFT)],
    )


def _runs_of(flows: Sequence[str]) -> dict[str, Any]:
    return {
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "match_related": {"prefect.resource.role": "flow", "prefect.resource.name": list(flows)},
    }


def apply_automations(deployed: dict[str, str], config: AlertConfig, webhook: SecretStr | None) -> None:
    """Make the automations what they should be; those that tell people are there only with a webhook."""
    from prefect.client.orchestration import get_client

    wanted = [silent_run(sorted(deployed), config), attend(UUID(deployed["attend"]))]
    if webhook is not None:
        block = save_webhook(webhook)
        wanted += [tell(block), unattended(block, config)]
    with get_client(sync_client=True) as client:
        for automation in wanted:
            _put(client, automation)
        _remove(client, {SILENT, ATTEND, TELL, UNATTENDED} - {automation.name for automation in wanted})


def save_webhook(url: SecretStr) -> UUID:
    """Keep the address as a block of Prefect, which does not show it again; returns the block's id."""
    from prefect.blocks.webhook import Webhook

    return UUID(str(Webhook(method="POST", url=url).save(WEBHOOK, overwrite=True)))


def _put(client: SyncPrefectClient, automation: AutomationCore) -> None:
    """Create, or update what has the name; a second one of that name goes."""
    # An update sends only what was set by hand, and the server refuses it then: set everything.
    automation = type(automation).model_validate(automation.model_dump(mode="json", exclude={"owner_resource"}))
    known = client.read_automations_by_name(automation.name)
    if not known:
        client.create_automation(automation)
        return
    client.update_automation(known[0].id, automation)
    for other in known[1:]:
        client.delete_automation(other.id)


def _remove(client: SyncPrefectClient, names: Iterable[str]) -> None:
    for name in names:
        for automation in client.read_automations_by_name(name):
            client.delete_automation(automation.id)
