"""HTTP answers of an API server as errors of our own, and what follows from each."""

from __future__ import annotations

import json

import pytest

from vllm_tuning.api.reasons import Reason
from vllm_tuning.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    GuardFailed,
    NameTaken,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
    error_of,
)
from vllm_tuning.controller.errors import LookAgain, Tell, consequence_of


def answer(status: int, reason: str = "", *, creating=False, guarded=False, after=None, **body):
    text = json.dumps({"kind": "Status", "message": "words", "reason": reason, **body}).encode()
    return error_of(
        status, text, doing="PUT x", creating=creating, guarded=guarded, retry_after=after
    )


@pytest.mark.parametrize(
    ("error", "kind", "follows"),
    [
        (answer(404), NotFound, LookAgain),
        (answer(409, "Conflict"), Conflict, LookAgain),
        (answer(409, "AlreadyExists", creating=True), AlreadyExists, LookAgain),
        (answer(409, "Conflict", creating=True), Conflict, LookAgain),
        (answer(422, guarded=True), GuardFailed, LookAgain),
        (answer(422, guarded=True, details={"causes": [{}]}), Refused, Tell),
        (answer(422), Refused, Tell),
        (answer(403, "Forbidden"), Refused, Tell),
        (answer(401), Refused, Tell),
        (answer(500), Unavailable, LookAgain),
        (answer(503), Unavailable, LookAgain),
        (answer(429), Throttled, LookAgain),
    ],
)
def test_each_answer_has_its_kind_and_its_consequence(error, kind, follows):
    assert type(error) is kind
    assert error.message == "words"
    assert type(consequence_of(error)) is follows


def test_a_throttling_server_says_when():
    assert consequence_of(answer(429, after="7")) == LookAgain(7.0)
    assert consequence_of(answer(429, after="Sun, 29 Nov 2026")) == LookAgain(None)


def test_an_answer_that_is_no_status_keeps_its_text():
    error = error_of(
        502, b"<html>bad gateway", doing="GET x", creating=False, guarded=False, retry_after=None
    )
    assert isinstance(error, Unavailable)
    assert "bad gateway" in str(error)


def test_a_taken_name_has_a_reason_of_its_own():
    assert consequence_of(NameTaken("Job x exists")) == Tell(Reason.JOB_CONFLICT, "Job x exists")


def test_every_kind_of_error_has_a_consequence():
    def kinds(base: type[ClusterError]) -> set[type[ClusterError]]:
        return {base}.union(*(kinds(child) for child in base.__subclasses__()))

    for kind in kinds(ClusterError):
        assert consequence_of(kind("words")) is not None
