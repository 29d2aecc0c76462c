"""Why an engine did not start: typed, with the number that the engine itself offers.

Texts are those of vLLM 0.11 to 0.33 (identical in all of them but for the spellings in the
patterns), torch, CUDA and huggingface_hub; the exit codes are the shell's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vllm_tuning.engine.failure_rules import RULES, Kind, Rule
from vllm_tuning.engine.redact import redact

EXCERPT_BYTES = 2048
SEARCHED_CHARACTERS = 1 << 18
"""What ended an engine stands near the end of its log; eight workers' tracebacks fit in this."""
_FOREIGN_MEMORY_FRACTION = 0.05
"""Of the device.

Below it, missing memory is the driver's and this process's own context, not another workload.
"""

_FREE_MEMORY = re.compile(
    r"(?:Free|Available) memory on (?:device|node)[^(]*"
    r"\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup\s+is less than"
)
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory"
    r"|cudaErrorMemoryAllocation"
)
_OTHER_PROCESS = re.compile(
    r"total capacity of (?P<total>[\d.]+) GiB.{0,400}?"
    r"Process \d+ has (?P<other>[\d.]+) GiB memory in use",
    re.DOTALL,
)
_STAGES: tuple[tuple[str, str, str], ...] = (
    (
        "AtGraphCapture",
        r"capture_model|[Cc]apturing (?:CUDA|cuda)[ _]graph|_capture_cudagraphs|graph_capture",
        "lower max_num_seqs (fewer graphs) or gpu_memory_utilization",
    ),
    (
        "AtModelLoad",
        r"Failed to load model|load_model|load_weights",
        "the weights do not fit: use a larger GPU, more tensor parallelism or quantisation",
    ),
    (
        "AtProfile",
        r"profile_run|determine_available_memory|_dummy_run|profile_cudagraph_memory",
        "lower max_num_batched_tokens or max_num_seqs",
    ),
    (
        "AtKVCacheAllocation",
        r"_allocate_kv_cache|initialize_kv_cache",
        "lower gpu_memory_utilization",
    ),
)
_ARGPARSE_ERROR = re.compile(r"^.*?\berror: (?P<text>.+)$", re.MULTILINE)
_ERROR_LINE = re.compile(
    r"^.*?(?P<text>(?:\w+\.)*\w*(?:Error|Exception|Failure)\b:? .+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class StartDiagnosis:
    """A typed failure.

    ``hint`` is the number in the engine's own message, ``excerpt`` its words (masked, <= 2 KiB).
    """

    kind: Kind
    reason: str
    message: str
    hint: int | None = None
    excerpt: str = ""


def diagnose_start(
    log: str, *, exit_code: int | None, timed_out: bool = False, host_oom_kills: int | None = None
) -> StartDiagnosis:
    """Classify a start that failed. ``log`` is all of the start's output, or its last part.

    ``exit_code`` is ``None`` when the engine had to be killed at the time-out; ``host_oom_kills``
    counts the kernel's kills for memory in the container during the start, where known.
    """
    log = log[-SEARCHED_CHARACTERS:]
    found = (
        _time_out(log, timed_out)
        or _by_rules(log)
        or _free_memory(log)
        or _out_of_memory(log)
        or _by_exit_code(log, exit_code, host_oom_kills)
        or _unclassified(log, exit_code)
    )
    diagnosis, position = found
    return StartDiagnosis(
        kind=diagnosis.kind,
        reason=diagnosis.reason,
        message=redact(diagnosis.message),
        hint=diagnosis.hint,
        excerpt=_excerpt(log, position),
    )


_Found = tuple[StartDiagnosis, int | None]
"""A diagnosis and where in the log its cause stands."""


def _time_out(log: str, timed_out: bool) -> _Found | None:
    if not timed_out:
        return None
    last = _last_line(log)
    message = (
        f"the engine was not ready in time; its last line: {last or 'none'}. "
        "Raise the start time-out or look there"
    )
    return StartDiagnosis("Timeout", "StartTimedOut", message), None


def _by_rules(log: str) -> _Found | None:
    for rule in RULES:
        match = rule.pattern.search(log)
        if match is not None:
            return _from_rule(rule, match), match.start()
    return None


def _from_rule(rule: Rule, match: re.Match[str]) -> StartDiagnosis:
    groups = match.groupdict()
    hint = groups.get("hint")
    said = " ".join(match.group(0).split())
    return StartDiagnosis(
        kind=rule.kind,
        reason=rule.reason,
        message=f"{said}: {rule.advice}" if rule.quote else rule.advice,
        hint=int(hint.replace(",", "")) if hint else None,
    )


def _free_memory(log: str) -> _Found | None:
    """The check before the weights are loaded.

    Is the share too high, or has somebody else taken memory?
    """
    match = _FREE_MEMORY.search(log)
    if match is None:
        return None
    free, total = float(match["free"]), float(match["total"])
    if free < (1 - _FOREIGN_MEMORY_FRACTION) * total:
        message = (
            f"only {free:g} of {total:g} GiB are free at the start: another process "
            "holds the rest; free the device or take another one"
        )
        return StartDiagnosis("Environment", "DeviceMemoryInUse", message), match.start()
    message = (
        f"gpu_memory_utilization asks for more than the {free:g} of {total:g} GiB that are free: "
        "lower it"
    )
    return StartDiagnosis("Infeasible", "MemoryShareTooHigh", message), match.start()


def _out_of_memory(log: str) -> _Found | None:
    match = _OUT_OF_MEMORY.search(log)
    if match is None:
        return None
    other = _OTHER_PROCESS.search(log, match.start())
    if other is not None and float(other["other"]) > _FOREIGN_MEMORY_FRACTION * float(
        other["total"]
    ):
        message = (
            f"another process holds {other['other']} of {other['total']} GiB of the device: free it"
        )
        return StartDiagnosis("Environment", "DeviceMemoryInUse", message), match.start()
    # The stage stands in the traceback around the error, which may be logged twice (engine core,
    # then API server).
    around = log[max(0, match.start() - 12_000) : match.end() + 2_000]
    for suffix, pattern, advice in _STAGES:
        if re.search(pattern, around):
            where = re.sub(r"(?<!^)(?=[A-Z][a-z])", " ", suffix).lower()
            message = f"the device ran out of memory {where}: {advice}"
            return StartDiagnosis("Infeasible", f"OutOfMemory{suffix}", message), match.start()
    message = (
        "the device ran out of memory at the start: lower gpu_memory_utilization or max_num_seqs"
    )
    return StartDiagnosis("Infeasible", "OutOfMemory", message), match.start()


def _by_exit_code(log: str, exit_code: int | None, host_oom_kills: int | None) -> _Found | None:
    if host_oom_kills:
        message = "the kernel killed the engine for host memory: raise the container's memory limit"
        return StartDiagnosis("Environment", "HostOutOfMemory", message), None
    match exit_code:
        case 2:
            errors = list(_ARGPARSE_ERROR.finditer(log))
            error = errors[-1] if errors else None  # argparse prints it and exits
            said = error["text"].strip() if error else _last_line(log)
            message = f"the engine refused its command line: {said}"
            return StartDiagnosis(
                "BadArguments", "CommandLineRefused", message
            ), error.start() if error else None
        case 126 | 127:
            message = f"the command cannot be run in this image: {_last_line(log)}"
            return StartDiagnosis("Environment", "CommandNotFound", message), None
        case 137:
            message = (
                "the engine was killed (exit code 137): most often for host memory; "
                "raise the container's memory limit"
            )
            return StartDiagnosis("Environment", "Killed", message), None
        case 132 | 134 | 135 | 139:
            message = (
                f"the engine crashed (signal {exit_code - 128}): "
                "image, driver and GPU may not fit together"
            )
            return StartDiagnosis("Environment", "EngineCrashed", message), None
    return None


def _unclassified(log: str, exit_code: int | None) -> _Found:
    errors = list(_ERROR_LINE.finditer(log))
    said = errors[-1]["text"].strip() if errors else _last_line(log)
    message = f"the engine ended with exit code {exit_code} and said: {said[:400] or 'nothing'}"
    return StartDiagnosis("Environment", "Unclassified", message), errors[
        -1
    ].start() if errors else None


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""


def _excerpt(log: str, position: int | None) -> str:
    """The log's end, or, when the cause stands further up, the cause's lines and then the end."""
    cause = redact(log[log.rfind("\n", 0, position) + 1 :] if position is not None else "")
    if not cause or len(cause.encode()) <= EXCERPT_BYTES:
        return _end(redact(log), EXCERPT_BYTES)
    half = EXCERPT_BYTES // 2
    first = cause.encode()[:half].decode("utf-8", "ignore")
    gap = "\n[...]\n"
    return first + gap + _end(cause, half - len(gap))


def _end(text: str, size: int) -> str:
    return text.encode()[-size:].decode("utf-8", "ignore")
