"""One example of each request body and of the main answers, for `/openapi.json`.

The keys are schema names. A test validates each example against its schema and its model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RELEASE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_RUN = "flights-20260301t060000z-4f1c2a"
_RANGE: dict[str, Any] = {"pipeline": "flights", "from": "2026-02-01", "to": "2026-02-28", "every": "1d"}
_PURGE: dict[str, Any] = {
    "pipeline": "flights",
    "before": "2026-01-01",
    "states": ["failed", "stopped"],
    "parts": ["logs", "outputs"],
    "reason": "the disk is needed",
}
_BODIES: dict[str, Any] = {
    "CalendarBody": {"text": "holidays: [2026-12-25, 2026-12-28..2026-12-31]", "reason": "as of 2026"},
    "CordonBody": {"reason": "new disk", "drain": True},
    "AbdicationBody": {"reason": "maintenance of host a", "to": "scheduler-b"},
    "ActivateBody": {"digest": _RELEASE, "reason": "back to the release of yesterday"},
    "ApprovalBody": {"reason": "the figures are right", "approved": True},
    "BackfillPlanBody": {**_RANGE, "downstream": True},
    "MarkBody": {"state": "succeeded", "reason": "loaded by hand"},
    "NewBackfillBody": {**_RANGE, "id": "flights-february", "max_parallel": 2, "reprocess": "failed"},
    "NewPurgeBody": _PURGE,
    "OwnerBody": {"owner": "data-platform"},
    "GrantBody": {"who": "finance", "role": "author", "on": "finance_*", "reason": "ticket 12"},
    "RevokeBody": {"who": "finance", "on": "finance_*", "reason": "ticket 13"},
    "NewVersionBody": {"uri": "s3://in/rates.csv", "key": "eu", "digest": f"sha256:{_RELEASE}"},
    "PoolBody": {"size": 8},
    "PurgeBody": _PURGE,
    "HoldBody": {"of": "team", "name": "finance", "reason": "freeze", "until": "2026-03-02T06:00:00Z"},
    "ShareBody": {"weight": 2, "reason": "month end"},
    "NoteBody": {"text": "known, ticket 12", "task": "enrich"},
    "ReasonBody": {"reason": "the source is being repaired"},
    "ReleaseBody": {"digest": _RELEASE, "activate": True},
    "RerunBody": {"scope": "from", "tasks": ["enrich"], "release": "latest", "reason": "enrich is mended"},
    "SelectedBody": {"action": "stop", "filter": {"tag": "nightly", "state": "running"}},
    "SelectedWhere": {"owner": "finance", "state": "failed", "parameter": ["region=eu"]},
    "ActOnSelectionBody": {
        "action": "rerun",
        "names": ["flights-2026-03-01", "flights-2026-03-02"],
        "scope": "failed",
        "reason": "the disk was full",
    },
    "StartRunBody": {
        "pipeline": "flights",
        "run_id": "flights-2026-03-01",
        "parameters": {"first_month": 1, "last_month": 3},
        "data_interval": {"start": "2026-02-28T00:00:00Z", "end": "2026-03-01T00:00:00Z"},
        "priority": "high",
    },
    "TokenBody": {
        "name": "ci",
        "role": "author",
        "teams": ["data-platform"],
        "sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "expires_at": "2027-03-01T00:00:00Z",
    },
    "WithdrawBody": {"partition": "eu", "reason": "the supplier sent yesterday's file"},
    "VariableBody": {"value": "s3://lake/raw"},
}
_TASK: dict[str, Any] = {
    "name": "ingest_weather",
    "kind": "pyspark",
    "state": "running",
    "needs": [],
    "retry_at": None,
    "why": None,
    "attempts": [
        {
            "number": 1,
            "worker": "worker-a",
            "opened_at": "2026-03-01T06:00:01Z",
            "opened_by_epoch": 7,
            "started_at": "2026-03-01T06:00:02Z",
            "ended_at": None,
            "outcome": None,
            "reason": "",
            "exit_code": None,
            "failure": None,
            "output": None,
            "host": "host-a",
            "pid": 4711,
            "progress": {"stages": "3/7"},
        }
    ],
}
_WAITING: dict[str, Any] = {
    "name": "enrich",
    "kind": "pyspark",
    "state": "waiting",
    "needs": ["ingest_weather"],
    "retry_at": None,
    "why": "needs ingest_weather (running)",
    "attempts": [],
}
_LISTED_RUN: dict[str, Any] = {
    "id": _RUN,
    "pipeline": "flights",
    "release": _RELEASE,
    "state": "running",
    "reason": "",
    "cause": "manual",
    "priority": "medium",
    "logical_date": "2026-03-01T06:00:00Z",
    "data_interval": {"start": "2026-02-28T06:00:00Z", "end": "2026-03-01T06:00:00Z"},
    "timezone": "America/New_York",
    "created_at": "2026-03-01T06:00:00Z",
    "started_at": "2026-03-01T06:00:01Z",
    "finished_at": None,
    "submitted_by": "ada",
    "rerun_of": None,
    "selected": "",
    "note": "",
    "paused": None,
    "tasks_total": 2,
    "tasks_done": 0,
}
_LEADER: dict[str, Any] = {
    "id": "scheduler-a",
    "address": "https://a.example.com:8700",
    "epoch": 7,
    "leader_since": "2026-03-01T05:00:00Z",
}
_ANSWERS: dict[str, Any] = {
    "BackfillModel": {
        "id": "flights-february",
        "pipeline": "flights",
        "release": _RELEASE,
        "request": {
            "first": "2026-02-01T00:00:00Z",
            "last": "2026-02-28T00:00:00Z",
            "every_s": 86400.0,
            "max_parallel": 2,
            "reprocess": "failed",
            "order": "oldest",
            "on_failure": "pause",
            "as_one_run": False,
            "parameters": {},
            "total": 28,
        },
        "state": "active",
        "reason": "",
        "position": "2026-02-12T00:00:00Z",
        "skipped": 10,
        "started": 2,
        "succeeded": 1,
        "failed": 0,
        "stopped": 0,
        "under_way": 1,
        "created_at": "2026-03-01T06:00:00Z",
        "created_by": "ada",
        "finished_at": None,
        "progress": "date 12 of 28, 1 under way",
        "runs": ["flights-february-20260212t000000z"],
    },
    "CommandModel": {
        "command_id": "cmd-42",
        "status": "accepted",
        "run_id": _RUN,
        "outcome": {
            "accepted": True,
            "code": "ok",
            "message": f"run {_RUN} of release {_RELEASE[:12]} started",
            "decided_at": "2026-03-01T06:00:00Z",
            "epoch": 7,
        },
    },
    "ParticipantsModel": {
        "at_least": 1,
        "leader": _LEADER,
        "participants": [
            {
                "id": "scheduler-a",
                "registered": True,
                "queue_position": 0,
                "is_leader": True,
                "address": "https://a.example.com:8700",
                "host": "host-a",
                "hostname": "a.example.com",
                "pid": 1234,
                "version": "0.1.0",
                "started_at": "2026-03-01T04:58:00Z",
                "reported_at": "2026-03-01T06:00:00Z",
                "role": "leader",
                "epoch": 7,
                "leader_since": "2026-03-01T05:00:00Z",
                "ready": True,
                "guard_said": "ready",
            }
        ],
    },
    "PipelineModel": {
        "name": "flights",
        "state": "active",
        "description": "Why do flights leave New York late?",
        "release": _RELEASE,
        "published": _RELEASE,
        "schedule": {
            "cron": "0 6 * * *",
            "timezone": "America/New_York",
            "catchup": "latest",
            "catchup_window_s": None,
            "data_interval_s": None,
        },
        "starts_by_data": False,
        "concurrency": {"limit": 1, "when_full": "queue"},
        "tasks": 2,
        "quarantined": None,
        "owner": "data-platform",
        "updated_at": "2026-02-20T09:30:00Z",
        "schedule_position": "2026-02-28T11:00:00Z",
        "skipped_fires_total": 0,
        "skipped_fires": [],
        "spec": None,
    },
    "ProblemModel": {
        "type": "urn:nimbus:problem:invalid_request",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": "The request is not valid: body.priority: is none of highest, high, medium, low, lowest.",
        "code": "invalid_request",
        "errors": [
            {
                "place": "body.priority",
                "message": "is none of highest, high, medium, low, lowest",
                "pointer": "/priority",
            }
        ],
    },
    "RunModel": {
        **_LISTED_RUN,
        "parameters": {"first_month": 1, "last_month": 3},
        "reads": [{"name": "orders", "dataset": "orders", "pinned": 24}],
        "variables": {"raw": "s3://lake/raw"},
        "verdict": None,
        "deadline": "2026-03-01T06:30:01Z",
        "failure_strategy": "end",
        "tasks": [_TASK, _WAITING],
    },
    "RunsModel": {"next_cursor": None, "at_least": 1, "runs": [_LISTED_RUN], "history_complete": True},
}
EXAMPLES: Mapping[str, Any] = {**_BODIES, **_ANSWERS}
