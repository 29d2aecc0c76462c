"""The chart: what it renders, what it refuses, and its life on a real API server.

``UPDATE_GOLDENS=1`` rewrites the rendered manifests under ``tests/golden/chart``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.control_plane.api_server import CHART, ROOT, APIServer, ControlPlane, wait_until
from tests.control_plane.objects import tuning

pytestmark = pytest.mark.control_plane

GOLDENS = ROOT / "tests" / "golden" / "chart"

VARIANTS: dict[str, list[str]] = {
    "default": [],
    "namespaced": [
        "--set=scope.type=Namespaced",
        "--set=scope.namespaces={team-a,team-b}",
        "--set=rbac.readNodes=false",
        "--set=rbac.policies=false",
        "--set=rbac.dcgmExporter=true",
        "--set=rbac.aggregate=false",
        "--set=admissionPolicy.create=false",
        "--set=priorityClass.create=false",
        "--set=serviceAccount.create=false",
        "--set=serviceAccount.name=existing",
    ],
    "everything": [
        "--set=images.registry=registry.example/mirror/",
        "--set=images.tag=v9",
        "--set=images.pullSecrets={pull}",
        "--set=operator.quick=true",
        "--set=operator.priorityClassName=system-cluster-critical",
        "--set=operator.nodeSelector.pool=system",
        "--set=operator.podLabels.team=ml",
        "--set=operator.podAnnotations.note=yes",
        "--set=operator.tolerations[0].operator=Exists",
        "--set=metrics.podMonitor.create=true",
        "--set=metrics.podMonitor.labels.release=prometheus",
        "--set=admissionPolicy.validationActions={Warn,Audit}",
        "--set=priorityClass.name=benchmarks",
        "--set=priorityClass.value=-5",
        "--set=dcgmExporter.namespace=",
        "--set=fullnameOverride=tuner",
        "--set=serviceAccount.annotations.role=a",
    ],
}


def _render(server: APIServer, *options: str) -> str:
    done = server.helm("template", "vto", str(CHART), "--namespace=tuning", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _objects(text: str) -> list[dict[str, Any]]:
    return [body for body in YAML(typ="safe").load_all(text) if body]


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> APIServer:
    """Return the control plane with helm."""
    return APIServer(control_plane, release="chart-life")


@pytest.mark.parametrize("variant", VARIANTS)
def test_rendered_manifests_are_as_reviewed(server: APIServer, variant: str) -> None:
    golden = GOLDENS / f"{variant}.yaml"

    text = _render(server, "--set=crds.install=false", *VARIANTS[variant])

    if os.environ.get("UPDATE_GOLDENS"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_lint_is_clean(server: APIServer) -> None:
    for options in VARIANTS.values():
        done = server.helm("lint", "--strict", str(CHART), *options)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_crds_of_the_chart_are_those_of_the_project(server: APIServer) -> None:
    rendered = {
        body["metadata"]["name"]: body
        for body in _objects(_render(server))
        if body["kind"] == "CustomResourceDefinition"
    }
    committed = [_objects(path.read_text())[0] for path in (ROOT / "crds").iterdir()]

    assert len(rendered) == len(committed)
    for body in committed:
        ours = rendered[body["metadata"]["name"]]
        assert ours["spec"] == body["spec"]
        assert ours["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_every_setting_has_a_schema(server: APIServer) -> None:
    """A value without one would be refused, and a schema without a value is a dead setting."""
    values = YAML(typ="safe").load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: Any, node: dict[str, Any], path: str) -> Iterator[str]:
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].removeprefix("#/definitions/")]
        names = node.get("properties")
        if names is None:
            return
        for name in names.keys() ^ value.keys():
            yield f"{path}.{name}"
        for name in names.keys() & value.keys():
            yield from compare(value[name], names[name], f"{path}.{name}")

    assert set(compare(values, schema, "")) == {".global"}


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("--set=scope.type=Everywhere", "/scope/type"),
        ("--set=scope.namespaces={Team_A}", "/scope/namespaces/0"),
        ("--set=operator.replicas=2", "/operator/replicas"),
        ("--set=operator.quick=maybe", "/operator/quick"),
        ("--set=priorityClass.value=0", "/priorityClass/value"),
        ("--set=dcgmExporter.port=0", "/dcgmExporter/port"),
        ("--set=images.pullPolicy=Sometimes", "/images/pullPolicy"),
        ("--set=admissionPolicy.validationActions={}", "/admissionPolicy/validationActions"),
        ("--set=admisionPolicy.create=false", "admisionPolicy"),
    ],
)
def test_values_that_mean_nothing_are_refused(server: APIServer, option: str, path: str) -> None:
    done = server.helm("template", "vto", str(CHART), option)

    assert done.returncode != 0
    assert path in done.stderr


def test_pods_meet_the_restricted_standard(server: APIServer, namespace: str) -> None:
    """The API server's own pod security admission judges the operator's pod."""
    server.must("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    deployment = next(body for body in _objects(_render(server)) if body["kind"] == "Deployment")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator"},
        "spec": deployment["spec"]["template"]["spec"] | {"serviceAccountName": "default"},
    }

    done = server.try_create(pod, namespace=namespace)

    assert done.ok, done.words


def test_install_upgrade_uninstall(server: APIServer, namespace: str) -> None:
    """The CRDs come with the release, and stay with all objects when it goes."""

    def helm(*args: str) -> None:
        done = server.helm(*args, f"--namespace={server.namespace}")
        assert done.returncode == 0, done.stderr

    # Other tests of this session have put the CRDs there by kubectl: take them over.
    own = ("--take-ownership", "--force-conflicts", "--server-side=true")
    helm("install", server.release, str(CHART), "--create-namespace", *own)
    server.create(namespace, tuning())
    helm("upgrade", server.release, str(CHART), "--set=operator.replicas=0", *own)
    deployment = f"deploy/{server.release}-vllm-tuning-operator"
    path = "jsonpath={.spec.replicas}"
    assert server.must("get", deployment, "-n", server.namespace, "-o", path) == "0"

    helm("uninstall", server.release)

    assert server.get(namespace, "vt/chat")["spec"]["targetRef"]["name"] == "chat"
    left = server.must(
        "get",
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,priorityclasses",
        f"--selector=app.kubernetes.io/instance={server.release}",
        "-o",
        "name",
    )
    assert left == ""
    server.must("delete", "namespace", server.namespace, "--wait=false")


def test_people_who_edit_a_namespace_may_tune_it(server: APIServer, namespace: str) -> None:
    """The cluster's own roles gain ours by aggregation."""
    users = APIServer(server.plane, release="chart-users")
    users.install_crds()
    users.install_chart("--set=operator.replicas=0")
    for role in ("view", "edit"):
        server.must(
            "create",
            "rolebinding",
            role,
            f"--clusterrole={role}",
            f"--user={role}er",
            "-n",
            namespace,
        )

    def may(user: str, verb: str, resource: str) -> bool:
        name, _, part = resource.partition("/")
        asked = (verb, name, f"--subresource={part}", f"--as={user}", "-n", namespace)
        done = server.kubectl("auth", "can-i", *asked)
        return done.stdout.strip() == "yes"

    wait_until(lambda: may("editer", "delete", "vllmtrials.vllmtuning.io"))
    rights = {
        (user, verb, resource): may(user, verb, resource)
        for user in ("viewer", "editer")
        for verb, resource in (
            ("list", "vllmtunings.vllmtuning.io"),
            ("create", "vllmtunings.vllmtuning.io"),
            ("patch", "vllmtunings.vllmtuning.io/status"),
            ("list", "vllmtrials.vllmtuning.io"),
            ("create", "vllmtrials.vllmtuning.io"),
            ("delete", "vllmtrials.vllmtuning.io"),
        )
    }
    users.uninstall_chart()

    allowed = {question for question, yes in rights.items() if yes}
    assert allowed == {
        ("viewer", "list", "vllmtunings.vllmtuning.io"),
        ("viewer", "list", "vllmtrials.vllmtuning.io"),
        ("editer", "list", "vllmtunings.vllmtuning.io"),
        ("editer", "create", "vllmtunings.vllmtuning.io"),
        ("editer", "list", "vllmtrials.vllmtuning.io"),
        ("editer", "delete", "vllmtrials.vllmtuning.io"),
    }
