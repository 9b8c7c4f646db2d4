"""Lineage to a server or a file, with OpenLineage's own client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import DatasetFacet, JobFacet, RunFacet
    from openlineage.client.transport import Transport

from nimbus import __version__
from nimbus.adapters.telemetry.sink import RunFacts, new_session, read_headers
from nimbus.domain.data.lineage import EventType, LineageData, LineageEvent, events
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.run import Run

PRODUCER = f"urn:nimbus-scheduler:{__version__}"
MAX_UNFINISHED = 1000
"""Most runs whose accepted events are remembered."""


class LineageSink:
    """See `nimbus.ports.RunSink`. OpenLineage is imported with the first run."""

    follows = True

    def __init__(
        self,
        facts: RunFacts,
        *,
        place: str | Path,
        namespace: str,
        headers_file: Path | None,
        ca_file: Path | None,
        timeout: timedelta,
        public_url: str | None,
    ) -> None:
        """`place`: URL of a server, or a file. `timeout`: of one event. `public_url`: of the cluster.

        The address of one scheduler is no `public_url`: its successor may have to send equal events.
        """
        self._facts, self._namespace, self._public_url = facts, namespace, public_url
        self._place, self._timeout = place, timeout
        self._headers_file, self._ca_file = headers_file, ca_file
        self._headers: dict[str, str] = {}
        self._transport: Transport | None = None
        self._accepted: dict[RunId, set[tuple[str, EventType]]] = {}
        """Accepted events of runs with a refused event."""

    def send(self, before: Run | None, run: Run) -> int:
        """Send the events of a run's changes, one after the other."""
        transport = self._current()
        cluster, dropped = self._facts.cluster, self._facts.dropped(before, run)
        accepted = self._accepted.pop(run.id, set())
        fitting = [
            event
            for event in events(cluster, before, run, self._facts.family(run), dropped)
            if (event.of.run_id, event.type) not in accepted
        ]
        owner = self._facts.owner(run.pipeline) if fitting else None
        try:
            for event in fitting:
                transport.emit(self._event(run, event, owner))
                accepted.add((event.of.run_id, event.type))
        except Exception:
            if len(self._accepted) >= MAX_UNFINISHED:
                self._accepted.clear()  # they are sent again, under the same ids
            self._accepted[run.id] = accepted
            raise
        return len(fitting)

    def close(self) -> None:
        if (transport := self._transport) is not None:
            transport.close()

    def _current(self) -> Transport:
        """The transport, recreated when the file of headers has changed."""
        from openlineage.client.event_v2 import set_producer
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import HttpConfig, HttpSslContextConfig, HttpTransport

        headers = read_headers(self._headers_file)
        if self._transport is None or headers != self._headers:
            self.close()
            set_producer(PRODUCER)
            self._headers = headers
            if isinstance(self._place, Path):
                config = FileConfig(log_file_path=str(self._place), append=True)
                self._transport = FileTransport(config)
            else:
                parts = urlsplit(self._place)
                self._transport = HttpTransport(
                    HttpConfig(
                        url=f"{parts.scheme}://{parts.netloc}",
                        endpoint=parts.path,
                        timeout=self._timeout.total_seconds(),
                        custom_headers=headers,
                        session=new_session(),
                        retry={"total": 0},
                        ssl_context=None
                        if self._ca_file is None
                        else HttpSslContextConfig(ca_cert_path=str(self._ca_file)),
                    )
                )
        return self._transport

    def _event(self, run: Run, event: LineageEvent, owner: str | None) -> RunEvent:
        from openlineage.client import event_v2 as ol

        return ol.RunEvent(
            eventType=ol.RunState[event.type.value],
            eventTime=event.at.isoformat(),
            run=ol.Run(runId=event.of.run_id, facets=dict(self._run_facets(run, event))),
            job=ol.Job(
                namespace=self._namespace, name=event.of.job, facets=dict(self._job_facets(run, event, owner))
            ),
            inputs=[
                ol.InputDataset(self._namespace, data.dataset, facets=_version(data)) for data in event.inputs
            ],
            outputs=[
                ol.OutputDataset(self._namespace, data.dataset, facets=_version(data))
                for data in event.outputs
            ],
            producer=PRODUCER,
        )

    def _run_facets(self, run: Run, event: LineageEvent) -> Mapping[str, RunFacet]:
        from openlineage.client.facet_v2 import (
            error_message_run,
            nominal_time_run,
            parent_run,
            processing_engine_run,
        )

        interval = run.data_interval
        facets: dict[str, RunFacet] = {
            "nominalTime": nominal_time_run.NominalTimeRunFacet(
                nominalStartTime=(run.logical_date if interval is None else interval.start).isoformat(),
                nominalEndTime=None if interval is None else interval.end.isoformat(),
            ),
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=__version__, name="nimbus"
            ),
        }
        if event.parent is not None:
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=event.parent.run_id),
                job=parent_run.Job(namespace=self._namespace, name=event.parent.job),
                root=parent_run.Root(
                    run=parent_run.RootRun(runId=event.root.run_id),
                    job=parent_run.RootJob(namespace=self._namespace, name=event.root.job),
                ),
            )
        if event.error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=event.error, programmingLanguage="PYTHON"
            )
        return facets

    def _source_of(self, pipeline: PipelineName) -> str:
        """Address of a pipeline, the same from every scheduler."""
        if self._public_url is None:
            return f"urn:nimbus-scheduler:{self._facts.cluster}:pipelines:{pipeline}"
        return f"{self._public_url}/api/v1/pipelines/{pipeline}"

    def _job_facets(self, run: Run, event: LineageEvent, owner: str | None) -> Mapping[str, JobFacet]:
        from openlineage.client.facet_v2 import (
            job_type_job,
            ownership_job,
            source_code_location_job,
            sql_job,
        )

        task = event.task
        facets: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet(
                processingType="BATCH", integration="NIMBUS", jobType="PIPELINE" if task is None else "TASK"
            ),
            "sourceCodeLocation": source_code_location_job.SourceCodeLocationJobFacet(
                type="nimbus",
                url=self._source_of(run.pipeline),
                path=None if task is None else task.file,
                version=run.release,
            ),
        }
        if owner is not None:
            facets["ownership"] = ownership_job.OwnershipJobFacet(owners=[ownership_job.Owner(name=owner)])
        if task is not None and task.kind is TaskKind.SQL and event.type is EventType.START:
            text = self._facts.sql(ReleaseOf(run.pipeline, run.release), task.script)
            if text is not None:
                facets["sql"] = sql_job.SQLJobFacet(query=text, dialect="spark")
        return facets


def _version(data: LineageData) -> dict[str, DatasetFacet]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=data.version)}
