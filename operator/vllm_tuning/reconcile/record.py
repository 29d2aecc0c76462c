"""What the status knows of one run: its attempt, stage and usage, and its end in the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.status import PastRun, Run, Usage
from vllm_tuning.api.values import BatchLimits
from vllm_tuning.reconcile import convert, names
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.keep_trials import close_trials, forget_trials, write_trials
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.question import Question
from vllm_tuning.reconcile.records import Record, merge_records, stored_records
from vllm_tuning.reconcile.retune import args_hash
from vllm_tuning.reconcile.trials import Context
from vllm_tuning.reconcile.usage import engine_seconds, held_seconds
from vllm_tuning.tuning.run import Event, StartEnded

MAX_HISTORY: Final = 10


class RunRecord:
    """What is known of one run, and what of it goes into the status."""

    def __init__(self, draft: Draft, run_id: str, gpus: int, *, measurement: str = "") -> None:
        self._draft = draft
        self._gpus = gpus
        self._measurement = measurement
        self.run_id = run_id
        before = draft.before.run
        self._known = before is not None and before.id == run_id
        self.run = before if before is not None and self._known else Run(id=run_id)
        self.records: tuple[Record, ...] = stored_records(draft.observed.trials, run_id)

    @property
    def finished(self) -> bool:
        """Whether the run has ended and its end is recorded."""
        return self.run.completion_time is not None

    @property
    def begun(self) -> bool:
        """Whether an attempt was created."""
        return self.run.job_name is not None or bool(self.jobs)

    @property
    def jobs(self) -> tuple[Body, ...]:
        """Jobs of this run, whatever the attempt."""
        return tuple(
            job
            for job in self._draft.observed.jobs
            if (job["metadata"].get("labels") or {}).get(names.LABEL_RUN) == self.run_id
        )

    @property
    def attempt(self) -> int:
        """The attempt at hand: the highest that the status or a Job tells of."""
        told = (int(job["metadata"]["labels"].get(names.LABEL_ATTEMPT, 1)) for job in self.jobs)
        return max(self.run.attempt, *told, 1)

    def had_job(self, name: str) -> bool:
        """Whether the status tells of this Job: then its absence means that it was deleted."""
        return self.run.job_name == name

    def pod_of(self, job: Body) -> Body | None:
        """Return the Job's pod; of several (one is being replaced) the youngest."""
        uid = job["metadata"]["uid"]
        pods = [
            pod
            for pod in self._draft.observed.pods
            if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())
        ]
        return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def take_over(
        self, events: Iterable[Event], job: Body, pod: Body | None, *, ended: bool
    ) -> None:
        """Turn what the bench has said into trials and usage."""
        events = tuple(events)
        self.records = merge_records(self.records, events)
        name = job["metadata"]["name"]
        self._update(
            attempt=self.attempt,
            job_name=name,
            start_time=self.run.start_time or self._draft.now.replace(microsecond=0),
            last_sequence=events[-1].seq if events else None,
        )
        target = self._draft.status.get("target") or self._draft.before.target
        context = Context(
            owner=self._draft.metadata,
            run_id=self.run_id,
            measurement=self._measurement,
            job_name=name,
            node_name=(pod or {}).get("spec", {}).get("nodeName"),
            gpu_product=target.gpu_product if target else None,
            ended=ended,
        )
        trials = write_trials(self._draft, self.records, events, context)
        self._count(events, trials)

    def settle(self) -> None:
        """After the end: no trial goes on running, and only the last runs keep theirs."""
        close_trials(self._draft, (self.run_id,))
        limit = self._draft.observed.tuning["spec"].get("historyLimit", 3)
        history = self._draft.before.history
        source = self.run.judged_from or self.run_id
        forget_trials(self._draft, (self.run_id, source, *(run.id for run in history[:limit])))

    def begin(
        self, question: Question, judged_from: str | None = None, reused_seconds: float = 0.0
    ) -> None:
        """Make it the current run, and note what it begins with."""
        self._update(
            fingerprint=question.fingerprint,
            epoch=question.epoch,
            args_hash=self.run.args_hash or args_hash(question.target),
            judged_from=self.run.judged_from or judged_from,
            reused_seconds=self.run.reused_seconds or round(reused_seconds) or None,
            start_time=self.run.start_time or self._draft.now.replace(microsecond=0),
        )
        if not self._known:
            self._draft.status["usage"] = Usage()

    def created(self, attempt: int, job_name: str) -> None:
        """Note the attempt that is being created."""
        self._update(attempt=attempt, job_name=job_name)

    def in_progress(self, reason: Reason, message: str) -> None:
        """Tell where the run is."""
        self._update(stage=str(reason), message=convert.short(message))
        self._draft.progress(reason, message)

    def finish(
        self, reason: Reason, message: str, *, limits: BatchLimits | None, gain: int | None
    ) -> None:
        """Note the end, in the run and in the history."""
        now = self._draft.now.replace(microsecond=0)
        self._update(
            attempt=self.attempt,
            stage=str(reason),
            message=convert.short(message),
            completion_time=now,
        )
        usage: Usage = self._draft.status.get("usage") or self._draft.before.usage or Usage()
        past = PastRun(
            id=self.run_id,
            ending=str(reason),
            limits=limits,
            gain_percent=gain,
            gpu_seconds=usage.gpu_seconds,
            completion_time=now,
        )
        older = [run for run in self._draft.before.history if run.id != self.run_id]
        self._draft.status["history"] = (past, *older)[:MAX_HISTORY]

    def _update(self, **fields: Any) -> None:  # noqa: ANN401 - fields of Run
        known = {key: value for key, value in fields.items() if value is not None}
        self.run = self.run.model_copy(update=known)
        self._draft.status["run"] = self.run

    def _count(self, events: tuple[Event, ...], trials: int) -> None:
        """Count what was spent; a log that is gone never makes it less."""
        old = (self._draft.before.usage if self._known else None) or Usage()
        starts = sum(isinstance(record, StartEnded) for record in self.records)
        observed = self._draft.observed
        held = held_seconds(self.jobs, observed.pods, observed.logs)
        engine = engine_seconds(events) - (self.run.reused_seconds or 0)
        self._draft.status["usage"] = Usage(
            gpu_seconds=max(old.gpu_seconds, round(self._gpus * held)),
            engine_seconds=max(old.engine_seconds, round(engine)),
            engine_starts=starts,
            probes=len(self.records) - starts,
            trials=trials,
        )
