"""The benchmark Job and its pod: what a tuning and what a policy may say about them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, schema_extra

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Label by which Kueue knows the LocalQueue of a Job."""

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
QueueName = Annotated[str, Field(min_length=1, max_length=63, pattern=_NAME)]
PriorityClassName = Annotated[str, Field(min_length=1, max_length=253, pattern=_NAME)]


class BenchmarkQueue(APIModel):
    """Where the benchmark Job waits for its turn."""

    queue_name: QueueName | None = None
    """The Kueue LocalQueue of the benchmark Job, in the tuning's own namespace."""


class BenchmarkJob(BenchmarkQueue):
    """Where the benchmark Job waits, and whom it gives way to."""

    priority_class_name: PriorityClassName | None = None
    """PriorityClass of the benchmark pod. Absent: the operator's own, which is below everything
    else and preempts nobody."""


class Benchmark(APIModel):
    """The benchmark pod, where copying the target is not enough."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                f"!has(self.queueName) || !has(self.labels) || !('{QUEUE_LABEL}' in self.labels)",
                f"the queue is named twice: keep queueName and remove the label {QUEUE_LABEL}",
                field_path=".queueName",
            )
        )
    )

    command: Annotated[
        tuple[Annotated[str, Field(max_length=4096)], ...] | None,
        Field(min_length=1, max_length=64),
    ] = None
    """What starts the engine, if the image's own entry point does and is not vLLM's, e.g. [vllm,
    serve]. The target's args follow it."""
    python: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """Python interpreter (3.9 or newer) inside the target's image. Absent: the one of its
    command, else python3."""
    labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]] | None, Field(max_length=32)
    ] = None
    """Labels for the benchmark Job and pod, e.g. for cost reports. Refused if a Service selects
    them: a benchmark pod must never get production traffic."""
    queue_name: QueueName | None = None
    """The Kueue LocalQueue of the benchmark Job. Absent: from a VLLMSLAPolicy, else none."""
