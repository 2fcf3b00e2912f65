"""Endpoint of alerts: the webhook of Alertmanager."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.time_fields import ZonedTime
from heliostat.models.notifications import Alert
from heliostat.services import alerts as services

router = BodyRouter(tags=["notifications"])

_MAX_ALERTS = 1000
_MAX_TEXT_LENGTH = 500
# Cut, not refused: Alertmanager does not repeat a message that is refused.
Text = Annotated[str, AfterValidator(lambda text: text[:_MAX_TEXT_LENGTH])]


class _KnownFields(BaseModel):
    """A newer Alertmanager may send more fields."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class AlertLabels(_KnownFields):
    alertname: Text = "unnamed"
    severity: Text = ""


class AlertAnnotations(_KnownFields):
    summary: Text = Field(default="", description="A sentence. Default: the name of the alert.")
    command: Text = Field(default="", description="A helio command that helps.")


class AlertBody(_KnownFields):
    status: Literal["firing", "resolved"]
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$", strict=True)]
    labels: AlertLabels = AlertLabels()
    annotations: AlertAnnotations = AlertAnnotations()
    startsAt: ZonedTime  # noqa: N815 - a name of Alertmanager

    def alert(self) -> Alert:
        return Alert(
            fingerprint=self.fingerprint,
            is_resolved=self.status == "resolved",
            name=self.labels.alertname,
            severity=self.labels.severity,
            summary=self.annotations.summary or self.labels.alertname,
            command=self.annotations.command,
            started_at=self.startsAt,
        )


class AlertsBody(RequestBody):
    """A message of Alertmanager, version 4. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)
    version: Literal["4"] = "4"
    alerts: Annotated[list[AlertBody], Entries(_MAX_ALERTS)]


@router.post("/monitoring/alerts", status_code=204, summary="Notify admins of alerts: the webhook of Alertmanager")
def report_alerts(body: AlertsBody, caller: CallerDep, context: ContextDep) -> None:
    services.report_alerts(context, caller, [alert.alert() for alert in body.alerts])
