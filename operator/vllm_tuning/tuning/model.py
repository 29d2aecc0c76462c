"""The words of the project, as frozen values.

Units stand in the names: ``_seconds``, ``_milliseconds``, ``_percent`` (0-100), ``_fraction``
(0-1), ``_tokens``.
``None`` always means *not known* or *not set*, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias


class Metric(StrEnum):
    """What an SLO may bound."""

    TTFT = "TTFT"
    """Time to first token: scheduled send to first content chunk."""
    TPOT = "TPOT"
    """Time per output token: (last chunk - first chunk) / (output tokens - 1), a mean per request.
    """
    ITL = "ITL"
    """Inter-token latency: every gap between chunks, per token, clustered by request."""
    MAX_GAP = "MaxGap"
    """The longest gap between two chunks of a request; shows stalls that TPOT hides."""
    E2E_LATENCY = "E2ELatency"
    ERROR_RATE = "ErrorRate"
    PREEMPTION_RATE = "PreemptionRate"
    """Preemptions per 100 finished requests."""


@dataclass(frozen=True, slots=True)
class SLO:
    """At least ``percentile`` percent of requests have ``metric`` within the bound.

    Latency metrics take ``percentile`` and ``max_milliseconds``; rates take ``max_percent`` only.
    """

    metric: Metric
    percentile: int | None = None
    max_milliseconds: int | None = None
    max_percent: int | None = None

    def __str__(self) -> str:
        if self.max_milliseconds is None:
            return f"{self.metric} ≤ {self.max_percent} %"
        return f"p{self.percentile} {self.metric} ≤ {self.max_milliseconds} ms"

    def implies(self, loose: SLO) -> bool:
        """Tell whether meeting this means meeting ``loose``: p99 ≤ 300 ms means p95 ≤ 500 ms."""
        if self.metric is not loose.metric:
            return False
        if loose.max_percent is not None:
            return self.max_percent is not None and self.max_percent <= loose.max_percent
        return (
            self.max_milliseconds is not None
            and loose.max_milliseconds is not None
            and self.max_milliseconds <= loose.max_milliseconds
            and (self.percentile or 0) >= (loose.percentile or 0)
        )


class Objective(StrEnum):
    """What is made best among the settings that meet the SLA."""

    MAX_RATE = "MaxRateUnderSLO"
    MIN_LATENCY = "MinLatencyAtRate"
    MAX_THROUGHPUT = "MaxThroughputAtConcurrency"


@dataclass(frozen=True, slots=True)
class Limits:
    """The batch limits of one server. ``None`` = leave the target's own value."""

    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int | None = None
    enable_chunked_prefill: bool | None = None
    long_prefill_token_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Closed range of a parameter; ``None`` = open on that side."""

    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """What may be tuned, and how far. A parameter that is ``None`` is left as the target has it."""

    max_num_seqs: Bounds | None = Bounds()
    max_num_batched_tokens: Bounds | None = Bounds()
    gpu_memory_utilization_percent: Bounds | None = None
    enable_chunked_prefill: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts.

    Fixed if ``cv_percent`` is 0, else lognormal with that mean, clipped to ``maximum``. A
    ``histogram`` (upper edge of each bucket in tokens, inclusive and rising; its weight) replaces
    both: the form in which a running engine tells its own lengths.
    """

    mean: int
    cv_percent: int = 0
    maximum: int | None = None
    histogram: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """The traffic that the limits are measured under."""

    input_tokens: Lengths
    output_tokens: Lengths
    arrival: Literal["Open", "Closed"] = "Open"
    concurrency: int | None = None
    """Clients of a closed loop; the demand of ``MaxThroughputAtConcurrency``."""
    rate_per_second: float | None = None
    """The demand of ``MinLatencyAtRate``."""
    burstiness: float = 1.0
    """Shape of the gamma arrivals: 1 = Poisson, below 1 = burstier. The same convention as ``vllm
    bench serve``.
    """
    shared_prefix_percent: int = 0
    trace_path: str | None = None
    """File of recorded requests (``tuning.recorded``), which are sent instead of drawn ones: their
    lengths, their shared blocks, and with open arrivals the shape of their arrivals. The lengths
    above are then the trace's own, for what has to be known before.
    """
    trace_sha256: str | None = None
    """Of that file's content, in hexadecimal; another content is refused."""
    origin: str = ""
    """Where the traffic comes from, for people: learnt from so many requests, a trace of so many
    rows. Nothing depends on it.
    """


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Arrivals at a fixed rate, never slowed by responses."""

    rate_per_second: float
    burstiness: float = 1.0
    kind: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """A fixed number of clients, each sending its next request when the last one ended."""

    concurrency: int
    kind: Literal["closed"] = "closed"


Load: TypeAlias = OpenLoad | ClosedLoad


class Purpose(StrEnum):
    """Why a probe or a start is made; also ``VLLMTrial.spec.purpose``."""

    BASELINE = "Baseline"
    CALIBRATE = "Calibrate"
    SEARCH = "Search"
    CONFIRM = "Confirm"
    VERIFY = "Verify"


class Verdict(StrEnum):
    """The answer of one probe, or of a sequence of probes."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class Start:
    """Ask for a server start. ``hook`` = with live limits (never for a confirmation)."""

    id: str
    purpose: Purpose
    limits: Limits
    hook: bool
    why: str = ""
    """One sentence for people: what this start is for. Nothing depends on it."""


class FailureKind(StrEnum):
    """Why an engine did not start."""

    INFEASIBLE = "Infeasible"
    """This setting does not fit (out of memory, KV cache too small, argument rule): prune it and
    what it dominates.
    """
    BAD_ARGUMENTS = "BadArguments"
    """The engine refused the command line (exit 2): never retried."""
    ENVIRONMENT = "Environment"
    """Image, volume, token, no GPU, memory taken by another process: not the setting's fault."""
    TIMEOUT = "Timeout"


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A typed failure of a start, with what the engine itself offers."""

    kind: FailureKind
    reason: str
    """CamelCase, stable, e.g. ``OutOfMemoryAtGraphCapture``."""
    message: str
    """One sentence that says what to do."""
    hint: int | None = None
    """The number that the engine offered (largest model length, Mamba blocks, ...), as it stands in
    its message.
    """
    log_tail: str = ""
    """At most 2 KiB, secrets masked."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a started engine says about itself. Absent facts are ``None``."""

    version: str | None = None
    kv_cache_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    non_default_args: str | None = None
    """The engine's own ``non-default args`` line."""
    prefix_caching: bool | None = None
    data_parallel_ranks: int = 1
    graph_tokens: int | None = None
    """Largest step, in tokens, that has a CUDA graph; ``None`` = none has, or it is not told."""
    live_limits: str | None = None
    """``None`` = proven to work; else why not (then limits need restarts)."""


@dataclass(frozen=True, slots=True)
class StartResult:
    """How a start ended: exactly one of ``facts`` and ``failure`` is set."""

    start: Start
    seconds: float
    facts: EngineFacts | None = None
    failure: StartFailure | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask for one load point on the running server.

    The driver warms up at ``load``, then measures ``windows`` windows of ``window_seconds``. With
    ``stop_on_fail`` it stops at a FAIL, and where a confirmation has become hopeless.
    """

    id: str
    purpose: Purpose
    limits: Limits
    load: Load
    seed: int
    window_seconds: float
    windows: int = 1
    warmup_seconds: float | None = None
    """``None`` = until the load is steady by what the warm-up itself shows, at most one window."""
    stop_on_fail: bool = True
    decide: bool = False
    """True only in a confirmation: a PASS may be claimed. Else the verdict is provisional, for
    ordering.
    """
    alpha: float = 0.05
    """Level of the one-sided bounds of the verdict: this probe's share of the run's ``alpha``."""
    why: str = ""
    """One sentence for people: what this probe is to tell. Nothing depends on it."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one latency metric, in milliseconds.

    ``p99`` is ``None`` below 1,000 samples unless asked with an interval.
    """

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class SLOResult:
    """How one SLO fared in a probe."""

    slo: SLO
    attainment: float | None
    """Share of requests within the bound (0-1); for rates, the measured percent / 100. ``None`` =
    not measured.
    """
    lower: float | None = None
    """Confidence bound used by the verdict; model-based, calibrated by simulation."""
    upper: float | None = None
    verdict: Verdict = Verdict.UNDECIDED
    observed_milliseconds: float | None = None
    """The SLO's percentile as measured: what people compare with the bound."""
    effective_count: float | None = None
    """Independent requests that the correlated ones are worth; lets probes be pooled."""
    upper_milliseconds: float | None = None
    """Upper confidence bound of that percentile: a PASS needs it within the SLO's bound."""
    quarter_milliseconds: tuple[float, ...] = ()
    """The percentile in each quarter of each whole window, where a PASS may be claimed; what
    ``upper_milliseconds`` follows from, so that probes can be pooled.
    """


@dataclass(frozen=True, slots=True)
class EngineDeltas:
    """What the engine's own metrics and the hook say about the window."""

    preemptions: int | None = None
    running_mean: float | None = None
    running_max: int | None = None
    waiting_mean: float | None = None
    waiting_max: int | None = None
    kv_usage_peak_fraction: float | None = None
    steps: int | None = None
    tokens_per_step: float | None = None
    prefix_hit_fraction: float | None = None
    hook_running_max: int | None = None
    """Largest ``running`` in any step, by the hook's own record: the proof of live
    ``max_num_seqs``.
    """
    hook_scheduled_tokens_max: int | None = None
    """Largest number of tokens scheduled in a step, by the hook: the proof of the live budget."""
    engines: int | None = None
    """Data-parallel engines that ``running``, ``waiting`` and ``preemptions`` are summed over."""
    queue_seconds_mean: float | None = None
    """Of the requests that ended: from arrival in the engine to their first step."""
    prefill_seconds_mean: float | None = None
    decode_seconds_mean: float | None = None


@dataclass(frozen=True, slots=True)
class GPUActivity:
    """GPU counters over the window, means over samples and GPUs. Absent = ``None``."""

    source: str
    """``NVML``, ``GPM`` or ``DCGM``; ``NVML+DCGM`` where the second filled the first's gaps."""
    memory_used_bytes: int | None = None
    dram_active_percent: float | None = None
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    engine_active_percent: float | None = None
    """Share of time with work on the compute engine (DCGM's ``GR_ENGINE_ACTIVE``)."""
    memory_utilization_percent: float | None = None
    sm_clock_megahertz: float | None = None
    power_watts: float | None = None
    throttled: str | None = None
    others_percent: float | None = None
    """Share of time with kernels of processes that are not the engine's, on the busiest GPU."""


class Bottleneck(StrEnum):
    """What bound a load point."""

    COMPUTE = "ComputeBound"
    MEMORY_BANDWIDTH = "MemoryBandwidthBound"
    KV_CAPACITY = "KVCapacityBound"
    SCHEDULER = "SchedulerBound"
    CLIENT = "ClientBound"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Everything one probe showed. The one type between bench, search, status, trial and report."""

    probe: Probe
    verdict: Verdict
    reason: str
    """CamelCase, stable: ``WithinSLO``, ``SLOViolated``, ``QueueGrowing``, ``OutOfReach``,
    ``ClientLag``, ...
    """
    message: str
    """With numbers: "p95 TTFT 412 ms > 300 ms (81.3 % of 240 requests within)"."""
    seconds: float
    """Wall time from the probe's first request to the end of its drain."""
    measured_seconds: float = 0.0
    measured_from: float | None = None
    """Unix seconds, by the bench's clock, at which the first window began; windows follow each
    other without gaps. What others measured meanwhile is joined by it.
    """
    sent: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    ttft: Percentiles = Percentiles(count=0)
    tpot: Percentiles = Percentiles(count=0)
    itl: Percentiles = Percentiles(count=0)
    max_gap: Percentiles = Percentiles(count=0)
    e2e: Percentiles = Percentiles(count=0)
    request_rate: float | None = None
    """Completed requests per second of the measured windows."""
    output_tokens_per_second: float | None = None
    input_tokens_per_second: float | None = None
    goodput_fraction: float | None = None
    """Share of requests that meet every latency SLO jointly."""
    slos: tuple[SLOResult, ...] = ()
    engine: EngineDeltas = EngineDeltas()
    gpu: GPUActivity | None = None
    bottleneck: Bottleneck = Bottleneck.UNKNOWN
    bottleneck_evidence: str = ""
    send_lateness_p99_ms: float | None = None
    client_cpu_fraction: float | None = None


class Ending(StrEnum):
    """How a run ended; also the reason of the condition ``RecommendationProvided``."""

    RECOMMENDED = "Recommended"
    NO_IMPROVEMENT = "NoImprovement"
    SLA_UNSATISFIABLE = "SLAUnsatisfiable"
    INCONCLUSIVE = "Inconclusive"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    ENGINE_FAILED = "EngineFailed"
    """The engine does not start even with the target's own limits."""


@dataclass(frozen=True, slots=True)
class ParameterChoice:
    """One recommended parameter, in VPA's words."""

    name: str
    """Canonical, e.g. ``max_num_seqs``."""
    current: str | None
    recommended: str
    lower_bound: str | None = None
    upper_bound: str | None = None
    uncapped: str | None = None


@dataclass(frozen=True, slots=True)
class SLOMargin:
    """Distance to an SLO at the recommended point; positive = room left."""

    slo: SLO
    observed_milliseconds: float | None
    attainment: float | None
    margin_percent: float | None


@dataclass(frozen=True, slots=True)
class DecisionStep:
    """One decision in the order an engineer makes them.

    SLA, traffic, sequences, token budget, memory share, chunked prefill.
    """

    topic: str
    decision: str
    why: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What a run found.

    ``limits`` is set only if a confirmation on a fresh start with the exact args passed.
    """

    ending: Ending
    message: str
    limits: Limits | None = None
    parameters: tuple[ParameterChoice, ...] = ()
    load: Load | None = None
    """The largest load confirmed within the SLA."""
    result: ProbeResult | None = None
    """The confirming probe."""
    baseline: ProbeResult | None = None
    """The current limits' best load within the SLA (or the nearest miss)."""
    before: ProbeResult | None = None
    """The current limits at the load to be confirmed, judged by the rule of the confirmation."""
    margins: tuple[SLOMargin, ...] = ()
    gain_percent: float | None = None
    """Capacity (or throughput) over the baseline. ``None`` = the baseline carries nothing within
    the SLA.
    """
    gain_range_percent: tuple[float, float] | None = None
    """Least and greatest gain that the measurements allow: by the brackets of both loads, or by
    repeats. ``None`` = not known.
    """
    replicas: int | None = None
    """Replicas that carry the workload's own rate at ``load`` each; ``None`` = no rate was given.
    """
    binding_limit: str = ""
    """What stops more load: an SLO, ``max_num_seqs``, KV capacity, ..."""
    nearest_miss: ProbeResult | None = None
    decisions: tuple[DecisionStep, ...] = ()
    engine_starts: int = 0
    probes: int = 0
    engine_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The search has ended."""

    recommendation: Recommendation


Question: TypeAlias = Start | Probe | Done
"""What ``ask`` returns."""

Answer: TypeAlias = StartResult | ProbeResult
"""What ``tell`` takes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps of a run."""

    gpu_seconds: float
    """GPUs x seconds from the pod's binding to its release."""
    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a search needs to know before it starts."""

    slos: tuple[SLO, ...]
    objective: Objective
    workload: Workload
    current: Limits
    """The effective limits of the running target."""
    space: Space
    budget: Budget
    gpus: int = 1
    alpha: float = 0.05
    """Probability that the run recommends a point whose attainment is below target; owned by the
    whole run.
    """
    minimum_gain_percent: float = 5.0
    seed: int = 1
    quick: bool = False
    """Shorter windows for tiny engines (demo, tests). Same rules, less evidence demanded; told in
    the report.
    """
    window_seconds: float | None = None
    """Overrides the window length of the confirmation (default: max(30 s, 10 x E2E p95))."""
