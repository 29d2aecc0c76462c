"""The CustomResourceDefinitions: names, columns, and the schemas made from the models.

``crds/*.yaml`` and the chart's copy are written from here by ``make generate``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vllm_tuning.api.base import GROUP, VERSION, APIModel
from vllm_tuning.api.policy import VLLMSLAPolicy, VLLMSLAPolicySpec, VLLMSLAPolicyStatus
from vllm_tuning.api.schema import structural_schema
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.api.trial import VLLMTrial, VLLMTrialSpec, VLLMTrialStatus
from vllm_tuning.api.tuning import VLLMTuning

CATEGORY = "vllm"
"""``kubectl get vllm`` lists all kinds of the group."""

_NAME_LIMIT = 63
"""Longest name that fits into a label, which is how a tuning's objects refer to it."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; ``wide`` shows it only with ``-o wide``."""

    name: str
    json_path: str
    description: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False

    def to_object(self) -> dict[str, Any]:
        """Return the column as it stands in a CRD."""
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.json_path,
            "description": self.description,
            "priority": 1 if self.wide else 0,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of the API group."""

    model: type[APIModel]
    spec: type[APIModel]
    status: type[APIModel]
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"

    @property
    def name(self) -> str:
        """The kind as users write it, e.g. ``VLLMTuning``."""
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


def _condition(type_: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type_}")].{field}'


_AGE = Column("Age", ".metadata.creationTimestamp", "Time since creation.", type="date")

TUNING = Kind(
    model=VLLMTuning,
    spec=VLLMTuningSpec,
    status=VLLMTuningStatus,
    plural="vllmtunings",
    short_names=("vt",),
    columns=(
        Column("Target", ".spec.targetRef.name", "The Deployment that is tuned."),
        Column(
            "Mode", ".status.effective.updatePolicy.mode", "What happens with a recommendation."
        ),
        Column("Stage", _condition("Progressing", "reason"), "What the operator is doing."),
        Column("SLO", ".status.sla", "Whether all SLOs can be met."),
        Column(
            "Seqs",
            ".status.recommendation.limits.maxNumSeqs",
            "Recommended max_num_seqs.",
            type="integer",
        ),
        Column(
            "Tokens",
            ".status.recommendation.limits.maxNumBatchedTokens",
            "Recommended max_num_batched_tokens.",
            type="integer",
        ),
        Column(
            "Gain",
            ".status.recommendation.gainPercent",
            "Capacity over the current limits, in percent.",
            type="integer",
        ),
        Column("Applied", _condition("Applied", "status"), "Whether the target runs them."),
        Column("Ready", _condition("Ready", "status"), "Whether the wish is valid.", wide=True),
        Column(
            "GPU-Seconds", ".status.usage.gpuSeconds", "Cost so far.", type="integer", wide=True
        ),
        Column("GPU", ".status.target.gpuProduct", "The target's GPU.", wide=True),
        Column("Hash", ".status.recommendation.hash", "Names the recommendation.", wide=True),
        Column("Message", ".status.answer", "The whole story in a sentence.", wide=True),
        _AGE,
    ),
)

TRIAL = Kind(
    model=VLLMTrial,
    spec=VLLMTrialSpec,
    status=VLLMTrialStatus,
    plural="vllmtrials",
    short_names=("vtrial",),
    columns=(
        Column("Tuning", ".spec.tuningRef.name", "The VLLMTuning it belongs to."),
        Column("Purpose", ".spec.purpose", "Why it was measured."),
        Column("Seqs", ".spec.limits.maxNumSeqs", "max_num_seqs.", type="integer"),
        Column("Tokens", ".spec.limits.maxNumBatchedTokens", "Token budget.", type="integer"),
        Column("Outcome", ".status.outcome", "How it ended."),
        Column("Req/s", ".status.bestLoad.requestsPerSecond", "Best load within the SLA."),
        Column(
            "Clients",
            ".status.bestLoad.concurrency",
            "Best closed load within the SLA.",
            type="integer",
            wide=True,
        ),
        Column("Message", ".status.message", "The outcome in words.", wide=True),
        Column("Run", ".spec.runID", "The run it belongs to.", wide=True),
        _AGE,
    ),
)

POLICY = Kind(
    model=VLLMSLAPolicy,
    spec=VLLMSLAPolicySpec,
    status=VLLMSLAPolicyStatus,
    plural="vllmslapolicies",
    short_names=("vsp",),
    scope="Cluster",
    columns=(
        Column("Enforcement", ".spec.enforcement", "What becomes of overrides."),
        Column("Matched", ".status.matched", "Tunings that it concerns.", type="integer"),
        Column("Compliant", ".status.compliant", "Of these, shown to comply.", type="integer"),
        Column("Violating", ".status.violating", "Of these, shown not to.", type="integer"),
        Column("Unknown", ".status.unknown", "Of these, not known yet.", type="integer"),
        Column(
            "Missing",
            ".status.live.missing",
            "Serving Deployments that miss their SLA now.",
            type="integer",
        ),
        Column(
            "Serving",
            ".status.live.deployments",
            "Serving Deployments that it selects.",
            type="integer",
            wide=True,
        ),
        Column("Priority", ".spec.priority", "Which default wins.", type="integer", wide=True),
        Column(
            "Programmed", _condition("Programmed", "status"), "Whether all rules hold.", wide=True
        ),
        _AGE,
    ),
)

KINDS = (TUNING, TRIAL, POLICY)


def definition(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind as a JSON object.

    Raises ``SchemaError`` if a model can not be expressed.
    """
    schema = {
        "type": "object",
        "description": kind.model.__doc__,
        "required": ["spec"],
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": f"Always {GROUP}/{VERSION}.",
            },
            "kind": {"type": "string", "description": f"Always {kind.name}."},
            "metadata": {"type": "object"},
            "spec": structural_schema(kind.spec, defaults=True)
            | {"description": _description(kind, "spec")},
            "status": structural_schema(kind.status, defaults=False)
            | {"description": _description(kind, "status")},
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {_NAME_LIMIT}",
                "message": f"choose a name of at most {_NAME_LIMIT} characters: it is written "
                "into labels of other objects",
            }
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.crd_name,
            "labels": {"app.kubernetes.io/part-of": "vllm-tuning-operator"},
        },
        "spec": {
            "group": GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.to_object() for column in kind.columns],
                }
            ],
        },
    }


def _description(kind: Kind, field: str) -> str:
    return str(kind.model.model_fields[field].description)
