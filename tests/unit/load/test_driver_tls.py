"""The driver over TLS, against a certificate of the test's own."""

from __future__ import annotations

import itertools
import ssl
import subprocess

import pytest

from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.tuning.samples import RequestStatus

from .test_driver import OK, driving, one, send


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
async def tls_engine(tiny_engine, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return await tiny_engine(tls=context, ca_file=str(certificate / "cert.pem"))


async def test_streams_over_tls(tls_engine):
    samples, _ = await one(tls_engine)
    assert samples.ok.all()


async def test_an_unknown_authority_is_a_failed_connection(tls_engine):
    stranger = ServerAddress(tls_engine.address.base_url, "tiny")
    async with driving(stranger) as driver:
        await send(driver, 1)
        assert driver.recorder.counts == {RequestStatus.CONNECT_FAILED: 1}
        assert "certificate" in next(iter(driver.recorder.details)).lower()


async def test_a_tls_session_that_ends_mid_stream_is_broken(tls_engine):
    async def leave(engine, item, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:")
        writer.close()

    behaviours = itertools.chain([leave])
    tls_engine.behave = lambda _: next(behaviours)
    samples, recorder = await one(tls_engine)
    assert recorder.counts == {RequestStatus.BROKEN_STREAM: 1}
    assert samples.status[0] != OK
