"""The texts by which a failed start is known, most telling first.

Each rule's pattern may have a group ``hint``: the number that the engine offers. Rules of one kind
stand together; the argument rules come before the rest because their text ends the log within a
second and nothing else can be in it.
"""

# ruff: noqa: E501 - a text to look for stands in one piece
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["Infeasible", "BadArguments", "Environment", "Timeout"]


@dataclass(frozen=True, slots=True)
class Rule:
    """With ``pattern`` in the log, the start failed for ``reason``; ``advice`` says what to do."""

    kind: Kind
    reason: str
    pattern: re.Pattern[str]
    advice: str
    quote: bool = True
    """Put the matched text before the advice."""


def _rule(kind: Kind, reason: str, pattern: str, advice: str, *, quote: bool = True) -> Rule:
    return Rule(kind, reason, re.compile(pattern), advice, quote)


_ARGUMENT_RULES = (
    _rule(
        "Infeasible",
        "BudgetBelowSeqs",
        r"max_num_batched_tokens \(\d+\) must\s+be\s+greater\s+than\s+or\s+equal\s+to\s+max_num_seqs\s+\((?P<hint>\d+)\)",
        "raise max_num_batched_tokens or lower max_num_seqs",
    ),
    _rule(
        "Infeasible",
        "BudgetBelowModelLength",
        r"max_num_batched_tokens \(\d+\)\s+is\s+smaller\s+than\s+max_model_len\s+\((?P<hint>\d+)\)",
        "without chunked prefill max_num_batched_tokens must be at least max_model_len",
    ),
    _rule(
        "Infeasible",
        "LongPrefillThresholdTooHigh",
        r"long_prefill_token_threshold\s+\(\d+\)\s+cannot\s+be\s+greater\s+than\s+the\s+max_model_len\s+\((?P<hint>\d+)\)",
        "lower long_prefill_token_threshold",
    ),
    _rule(
        "Infeasible",
        "ActiveSeqsAboveSeqs",
        r"max_num_active_seqs \(\d+\)\s+cannot\s+be\s+greater\s+than\s+max_num_seqs\s+\((?P<hint>\d+)\)",
        "lower max_num_active_seqs, or remove it: max_num_seqs is tuned",
    ),
    _rule(
        "BadArguments",
        "ConflictingGraphSizes",
        r"max_cudagraph_capture_size\b.{0,80}?\s+should\s+be\s+consistent\s+with|cudagraph_capture_sizes\s+are\s+mutually\s+exclusive",
        "give the graph sizes once: as a flag or in --compilation-config",
    ),
    _rule(
        "Infeasible",
        "InvalidSchedulerConfig",
        r"validation errors? for SchedulerConfig[^\n]*\n(?:[^\n]*\n){0,2}?[^\n]*(?=\[type=)",
        "correct that limit",
    ),
    _rule(
        "Infeasible",
        "InvalidCacheConfig",
        r"validation errors? for CacheConfig[^\n]*\n(?:[^\n]*\n){0,2}?[^\n]*(?=\[type=)",
        "correct that value",
    ),
    _rule(
        "BadArguments",
        "InvalidConfig",
        r"validation errors? for \w+Config[^\n]*\n(?:[^\n]*\n){0,2}?[^\n]*(?=\[type=)",
        "correct that argument",
    ),
)

_CAPACITY_RULES = (
    _rule(
        "Infeasible",
        "OutOfMemoryAtSamplerWarmUp",
        r"out of memory occurred when warming up (?:sampler|pooler) with (?P<hint>\d+) dummy requests",
        "lower max_num_seqs or gpu_memory_utilization",
    ),
    _rule(
        "Infeasible",
        "TooFewMambaBlocks",
        r"exceeds\s+available\s+Mamba\s+cache\s+blocks[\s\S]{0,300}?lower\s+max_num_seqs\s+to\s+at\s+most\s+(?P<hint>\d+)",
        "lower max_num_seqs to that",
    ),
    _rule(
        "Infeasible",
        "NoMemoryForKVCache",
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache after weights and activations: raise gpu_memory_utilization or lower "
        "max_num_batched_tokens",
        quote=False,
    ),
    _rule(
        "Infeasible",
        "KVCacheBelowModelLength",
        r"To serve at least one request with[\s\S]{0,500}?estimated\s+maximum\s+model\s+length\s+is\s+(?P<hint>\d+)",
        "raise gpu_memory_utilization or lower max_model_len",
    ),
    _rule(
        "Infeasible",
        "KVCacheBelowModelLength",
        r"To serve at least one request with[\s\S]{0,200}?larger\s+than\s+the\s+available\s+KV\s+cache\s+memory",
        "raise gpu_memory_utilization or lower max_model_len",
    ),
    _rule(
        "Infeasible",
        "HostMemoryBelowKVCache",
        r"Available memory on node [^(]*\([\d./]+ GiB\) on kv cache\s+allocation is less than requested memory for kv",
        "lower the KV cache's size (VLLM_CPU_KVCACHE_SPACE) or free host memory",
    ),
)

_ENVIRONMENT_RULES = (
    _rule(
        "Environment",
        "ServiceEnvironmentClash",
        r"VLLM_PORT '[^']*' appears to be a URI",
        "a Service named vllm injects VLLM_PORT: set enableServiceLinks: false",
    ),
    _rule(
        "Environment",
        "NoDevice",
        r"No CUDA GPUs are available|No HIP GPUs are available|Failed to infer device type|Found no NVIDIA driver on your system"
        r"|CUDA-capable device\(s\) is/are busy or unavailable|no CUDA-capable device is detected",
        "the container sees no usable GPU: check the resource request, the runtime class and the driver",
    ),
    _rule(
        "Environment",
        "DriverTooOld",
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old[^\n]{0,60}",
        "the node's driver is older than the image needs: pin another node or image",
    ),
    _rule(
        "Environment",
        "ModelAccessDenied",
        r"GatedRepoError|Access to model \S+ is restricted|Invalid (?:user )?(?:token|credentials)|401 Client Error[^\n]{0,80}",
        "give the container a token that may read the model",
    ),
    _rule(
        "Environment",
        "ModelUnavailable",
        r"RepositoryNotFoundError|is not a local folder and is not a valid model identifier|LocalEntryNotFoundError"
        r"|OfflineModeIsEnabled|outgoing traffic has been disabled|cannot find the (?:requested files|appropriate snapshot)"
        r"|couldn't connect to '?https?://[^\s']+|Max retries exceeded with url|Invalid repository ID or local directory",
        "the model cannot be read: check its name, its volume and the network",
    ),
    _rule(
        "Environment",
        "DiskFull",
        r"No space left on device",
        "a volume is full: enlarge the model or cache volume, or /dev/shm",
    ),
    _rule(
        "Environment",
        "SharedMemoryTooSmall",
        r"unable to (?:open|allocate|mmap) shared memory[^\n]{0,80}|Bus error[^\n]{0,60}|insufficient shared memory",
        "give the pod a larger memory volume at /dev/shm",
    ),
    _rule(
        "Environment",
        "PortInUse",
        r"(?:Errno 98\b[^\n]{0,60}|address already in use)",
        "another process of the pod listens on the engine's port: choose another benchmark port",
    ),
    _rule(
        "Environment",
        "CollectiveFailed",
        r"ncclSystemError|ncclUnhandledCudaError|ncclInternalError|NCCL error[^\n]{0,80}",
        "the GPUs cannot talk to each other: check shared memory, NVLink and the NCCL settings of the target",
    ),
    _rule(
        "Environment",
        "DeviceFault",
        r"uncorrectable ECC error|an illegal memory access was encountered|unspecified launch failure|Xid \(",
        "the GPU or a kernel failed: try another node",
    ),
    _rule(
        "Environment",
        "BrokenImage",
        r"(?:ModuleNotFoundError|ImportError): [^\n]{0,120}",
        "the image lacks what the command needs",
    ),
    _rule(
        "Environment",
        "CommandNotFound",
        r"cannot run '[^']*': [^\n]{0,80}|exec: [^\n]{0,80}: not found",
        "the command is not in the image: set benchmark.command",
    ),
)

RULES: tuple[Rule, ...] = (*_ARGUMENT_RULES, *_CAPACITY_RULES, *_ENVIRONMENT_RULES)
"""Tried in this order; the memory rules that compare numbers stand in ``failures``."""
