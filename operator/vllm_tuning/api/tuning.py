"""The kind ``VLLMTuning``: a target, an SLA, and how far to go."""

from __future__ import annotations

from typing import Literal

from vllm_tuning.api.base import API_VERSION, APIModel
from vllm_tuning.api.meta import ObjectMeta
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import VLLMTuningStatus


class VLLMTuning(APIModel):
    """Finds the batch limits of a vLLM server that carry the most load within an SLA."""

    api_version: Literal["vllmtuning.io/v1alpha1"] = API_VERSION
    kind: Literal["VLLMTuning"] = "VLLMTuning"
    metadata: ObjectMeta
    spec: VLLMTuningSpec
    """What you wish: a target, an SLA, and how far the operator may go."""
    status: VLLMTuningStatus = VLLMTuningStatus()
    """What the operator found and did; read conditions in programs."""
