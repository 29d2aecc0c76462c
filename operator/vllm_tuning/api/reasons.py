"""Every condition type, condition reason and event reason of the project, each with its meaning.

One registry: the operator takes its words from here, and ``docs/reference/reasons.md`` is generated
from it. Words are stable; a new meaning gets a new word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """A string enumeration whose members carry a one-line meaning."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Create a member that equals ``value``."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class ConditionType(Described):
    """What a condition is about."""

    READY = (
        "Ready",
        "The operator understands the object and can work on it. Stays True during a run.",
    )
    ACCEPTED = "Accepted", "The wish is valid, allowed, and not in conflict with another one."
    TARGET_RESOLVED = (
        "TargetResolved",
        "The target exists and its vLLM container, flags and GPU are known.",
    )
    PROGRESSING = "Progressing", "A run or a roll-out is under way; the reason is the stage."
    RECOMMENDATION_PROVIDED = (
        "RecommendationProvided",
        "The last run ended with limits that a confirmation proved.",
    )
    APPLIED = "Applied", "The target runs the recommended limits."
    STALLED = (
        "Stalled",
        "Nothing will happen until a person changes something; the message says what.",
    )
    SUCCEEDED = (
        "Succeeded",
        "Everything that the wish asks for is done. Wait for this one in scripts.",
    )
    REPRESENTATIVE = (
        "Representative",
        "Random tokens represent the target's traffic; False bars automatic application.",
    )
    POLICY_COMPLIANT = "PolicyCompliant", "The wish is within every VLLMSLAPolicy that concerns it."
    PROGRAMMED = "Programmed", "All rules of a VLLMSLAPolicy hold."


class Reason(Described):
    """Why a condition has its status."""

    # Accepted, Ready
    ACCEPTED = "Accepted", "Valid and allowed."
    READY = "Ready", "Accepted, and the target is resolved."
    INVALID = (
        "Invalid",
        "The spec contradicts itself or the target; the message says what to write.",
    )
    UNSUPPORTED_VERSION = (
        "UnsupportedVersion",
        "The object was stored under a schema that this operator does not understand: upgrade it.",
    )
    CONFLICTED = (
        "Conflicted",
        "An older VLLMTuning has the same target; it wins until it is deleted.",
    )
    SUSPENDED = "Suspended", "spec.suspend is true."
    TRACE_NOT_FOUND = (
        "TraceNotFound",
        "workload.traceRef names what is not there; the message says what to create.",
    )
    TRACE_INVALID = (
        "TraceInvalid",
        "The file that workload.traceRef names is not a trace of a known format.",
    )
    LABELS_SELECTED = (
        "LabelsSelected",
        "A Service would send traffic to the benchmark pod because of benchmark.labels.",
    )

    # TargetResolved
    RESOLVED = "Resolved", "The target's vLLM container and its limits are known."
    TARGET_NOT_FOUND = "TargetNotFound", "There is no Deployment of that name in the namespace."
    CONTAINER_NOT_FOUND = "ContainerNotFound", "No container of the target runs vLLM."
    CONTAINER_AMBIGUOUS = (
        "ContainerAmbiguous",
        "Several containers of the target look like vLLM: set targetRef.containerName.",
    )
    ENTRYPOINT_UNKNOWN = (
        "EntrypointUnknown",
        "What the image starts is not known: set benchmark.command.",
    )
    UNSUPPORTED_FLAGS = (
        "UnsupportedFlags",
        "The launch arguments can not be read with certainty.",
    )
    UNSUPPORTED_POD = (
        "UnsupportedPod",
        "The target's pod can not be copied for a benchmark, e.g. it names a ResourceClaim.",
    )
    UNSUPPORTED_ENGINE = "UnsupportedEngine", "This version of vLLM can not be measured."
    TARGET_NOT_STABLE = (
        "TargetNotStable",
        "The target is paused, scaled to zero or being rolled out: waiting until it is stable.",
    )

    # Progressing
    PENDING = "Pending", "A run is about to be created."
    WAITING_FOR_GPU = "WaitingForGPU", "No node has a free GPU for the benchmark pod yet."
    COOLING_DOWN = (
        "CoolingDown",
        "retunePolicy.cooldownSeconds has not passed; the message says until when.",
    )
    WAITING_FOR_WINDOW = (
        "WaitingForWindow",
        "No window is open; the message says when the next one opens.",
    )
    WAITING_FOR_QUOTA = "WaitingForQuota", "The benchmark Job is suspended by a queue."
    WAITING_FOR_APPROVAL = (
        "WaitingForApproval",
        "Mode Manual: annotate vllmtuning.io/approve with the recommendation's hash.",
    )
    STARTING = "Starting", "The benchmark pod is starting."
    BASELINE = "Baseline", "The target's own limits are measured."
    CALIBRATE = "Calibrate", "The engine's step time is learnt."
    SEARCH = "Search", "Candidates are measured."
    CONFIRM = "Confirm", "The winner is measured on a fresh start with exactly its flags."
    PREEMPTED = (
        "Preempted",
        "The benchmark pod was lost; a new attempt goes on with what was measured.",
    )
    ROLLING_OUT = "RollingOut", "The target was changed and is coming up."
    RESTORING = "Restoring", "The roll-out failed; the target's old arguments are coming back."
    COMPLETE = "Complete", "Nothing is left to do."

    # RecommendationProvided (the words of a run's ending), Succeeded, Stalled
    NOT_YET = "NotYet", "No run has ended yet."
    RECOMMENDED = "Recommended", "Limits were found that carry more load within the SLA."
    NO_IMPROVEMENT = "NoImprovement", "The current limits are as good as any that were found."
    SLA_UNSATISFIABLE = (
        "SLAUnsatisfiable",
        "No setting meets the SLA; status.recommendation.nearestMiss tells by how much.",
    )
    INCONCLUSIVE = "Inconclusive", "The evidence does not suffice for an answer."
    BUDGET_EXHAUSTED = "BudgetExhausted", "The budget ended before an answer was proven."
    ENGINE_FAILED = "EngineFailed", "The engine does not start even with the target's own limits."
    STALE = "Stale", "The target or the workload has changed since the run; it needs a new one."
    IN_PROGRESS = "InProgress", "Work is under way."
    NOT_STALLED = "NotStalled", "No person is needed."
    GAVE_UP_WAITING_FOR_GPU = (
        "GaveUpWaitingForGPU",
        "budget.scheduleDeadlineSeconds passed; the message has the scheduler's words.",
    )
    IMAGE_PULL_FAILED = "ImagePullFailed", "An image of the benchmark pod can not be pulled."
    POD_REFUSED = (
        "PodRefused",
        "Quota, limit range, pod security or an admission policy refuses the benchmark pod.",
    )
    BENCHMARK_FAILED = "BenchmarkFailed", "The benchmark pod ended without an answer."
    TOO_MANY_ATTEMPTS = "TooManyAttempts", "The benchmark pod was lost too often."
    JOB_CONFLICT = (
        "JobConflict",
        "A Job of the run's name exists and is not ours: delete or rename it.",
    )

    # Applied
    NOT_APPLIED = "NotApplied", "Nothing was changed."
    ROLLED_OUT = "RolledOut", "The target's pods serve with the recommended limits."
    ROLLED_BACK = "RolledBack", "The roll-out failed; the target has its old arguments again."
    RECOMMEND_ONLY = "RecommendOnly", "Mode Recommend: nothing is applied."
    BELOW_MINIMUM_IMPROVEMENT = (
        "BelowMinimumImprovement",
        "The gain is below updatePolicy.minimumImprovementPercent.",
    )
    MANAGED_TARGET = (
        "ManagedTarget",
        "Something else manages the target: apply the patch there, or set allowManaged.",
    )
    TARGET_CHANGED = (
        "TargetChanged",
        "The target is not as it was when it was measured; it is left alone.",
    )
    DRIFTED = "Drifted", "Somebody changed the applied limits; they are left alone."
    ROLLED_BACK_BEFORE = (
        "RolledBackBefore",
        "This recommendation failed its roll-out once and is not applied again.",
    )
    NOT_EDITABLE = "NotEditable", "The launch arguments can not be changed safely; apply by hand."
    NOT_REPRESENTATIVE = (
        "NotRepresentative",
        "Random tokens do not stand for this target's traffic; apply by hand if you trust it.",
    )
    REPRESENTATIVE = "Representative", "Nothing in the target speaks against random tokens."

    # PolicyCompliant, Programmed
    WITHIN_POLICIES = "WithinPolicies", "The wish asks for nothing that a policy forbids."
    NARROWED = (
        "NarrowedByPolicies",
        "A policy is stricter than the wish and is followed; status.effective has the result.",
    )
    EXCEEDS_POLICIES = (
        "ExceedsPolicies",
        "The wish exceeds a policy that is not enforced; the message says which and how.",
    )
    FROZEN_BY_POLICIES = "FrozenByPolicies", "Policies leave no parameter to tune."
    PROGRAMMED = "Programmed", "Every rule of the policy holds."
    OVERRULED = (
        "Overruled",
        "Bounds of the policy exclude those of one before it, and so do not hold.",
    )

    # Trials
    RUNNING = "Running", "The trial is being measured."
    ENDED = "Ended", "The trial has its outcome."


class EventReason(Described):
    """Reasons of Kubernetes events; Warning where a person should look."""

    RUN_STARTED = "RunStarted", "A benchmark run was created."
    WAITING_FOR_GPU = "WaitingForGPU", "The benchmark pod waits for a GPU."
    JUDGED_ANEW = (
        "JudgedAnew",
        "The SLA changed; stored measurements were judged by it. The message says what they tell.",
    )
    BASELINE_MEASURED = "BaselineMeasured", "The target's own limits were measured."
    TRIAL_MEASURED = "TrialMeasured", "A candidate was measured."
    TRIAL_INFEASIBLE = "TrialInfeasible", "The engine can not run with a candidate's limits."
    RUN_PREEMPTED = "RunPreempted", "The benchmark pod was lost; another attempt follows."
    RUN_FAILED = "RunFailed", "A run ended without an answer."
    RECOMMENDATION_PROVIDED = "RecommendationProvided", "A run recommends new limits."
    NO_IMPROVEMENT = "NoImprovement", "A run found the current limits as good as any."
    SLA_UNSATISFIABLE = "SLAUnsatisfiable", "A run found no setting that meets the SLA."
    INCONCLUSIVE = "Inconclusive", "A run ended without enough evidence."
    BUDGET_EXHAUSTED = "BudgetExhausted", "A run reached its budget."
    APPROVAL_REQUIRED = "ApprovalRequired", "A recommendation waits for approval."
    APPLYING = "Applying", "The target is being changed."
    APPLIED = "Applied", "The target serves with the recommended limits."
    ROLLOUT_FAILED = "RolloutFailed", "The changed target did not come up."
    ROLLED_BACK = "RolledBack", "The target has its old arguments again."
    APPLY_REFUSED = "ApplyRefused", "A recommendation was not applied; the message says why."
    DRIFT_DETECTED = "DriftDetected", "Somebody changed the applied limits."
    POLICY_VIOLATION = "PolicyViolation", "A wish exceeds a policy that is not enforced."
    TUNING_CREATED = "TuningCreated", "A policy's autoCreate made a VLLMTuning for a Deployment."
    SLA_MISSED = "SLAMissed", "A serving Deployment's own metrics show that it misses its SLA."
    SLA_HELD_AGAIN = "SLAHeldAgain", "A serving Deployment meets its SLA again."
    INVALID_SPEC = "InvalidSpec", "A VLLMTuning can not be worked on as it is."
    TARGET_LOST = "TargetLost", "The target disappeared during a run."
