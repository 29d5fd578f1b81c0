"""Both overlays are built by kustomize and fit the schemas of Kubernetes, and the gateway takes the configuration of each."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.config.loading import load_site_config
from gateway.tls.issuing import Issuer
from tests.deploy.kustomize import PROGRAM
from tests.tools.test_dependencies import PROJECT
from tools.sources import ROOT
from twinlog.errors import ConfigError

FOLDER = ROOT / "docs" / "deploy" / "kubernetes"
VERSIONS = ("1.31", "1.37")  # the oldest with ports, probes and policies as they are used here, and the newest of the schemas


@pytest.fixture(scope="module")
def kustomize() -> str:
    try:
        return str(PROGRAM.fetch())
    except ConfigError as error:
        pytest.fail(f"this test needs more of the machine: {error.message}")


def built(kustomize: str, site: str) -> dict[str, dict[str, Any]]:
    """`KIND/NAME` -> the object."""
    done = subprocess.run([kustomize, "build", str(FOLDER / f"site-{site}")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(done.stdout)}


@pytest.mark.parametrize("site", ["a", "b"])
def test_every_object_fits_its_schema(kustomize: str, site: str) -> None:
    objects = built(kustomize, site)
    assert len(objects) == 6
    for one in objects.values():
        assert one["metadata"]["namespace"] == f"twinlog-{site}"
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)


def test_a_key_that_no_schema_has_is_found(kustomize: str) -> None:
    broken = built(kustomize, "a")["StatefulSet/twinlog"]
    broken["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_what_belongs_together_has_one_name(kustomize: str) -> None:
    """Selectors, claims, ports and the configuration; and the policy's other pods keep labels of their own."""
    objects = built(kustomize, "a")
    pod = objects["StatefulSet/twinlog"]["spec"]["template"]
    labels = {"app.kubernetes.io/name": "twinlog"}
    assert pod["metadata"]["labels"] == labels
    assert objects["StatefulSet/twinlog"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["StatefulSet/twinlog"]["spec"]["serviceName"] == "twinlog-site"
    assert objects["PodDisruptionBudget/twinlog"]["spec"]["selector"]["matchLabels"] == labels
    policy = objects["NetworkPolicy/twinlog"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"] == {"twinlog-client": "yes"}
    assert policy["egress"][0]["to"][0]["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    (gateway,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    for service in ("Service/twinlog", "Service/twinlog-site"):
        assert objects[service]["spec"]["selector"] == labels
        assert all(ports[port["targetPort"]] == port["port"] for port in objects[service]["spec"]["ports"])
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    claimed = {claim["metadata"]["name"] for claim in objects["StatefulSet/twinlog"]["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in gateway["volumeMounts"]} == volumes.keys() | claimed
    assert f"ConfigMap/{volumes['config']['configMap']['name']}" in objects
    assert gateway["image"].rpartition(":")[2] == PROJECT["version"]
    paths = {gateway[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"/health/live", "/health/primary"}


@pytest.mark.parametrize("site", ["a", "b"])
def test_the_gateway_takes_the_configuration(kustomize: str, site: str, tmp_path: Path) -> None:
    """It does so with the files of both secrets in place; everything that it writes lies below a mount."""
    objects = built(kustomize, site)
    (text,) = [one["data"]["site.toml"] for name, one in objects.items() if name.startswith("ConfigMap/")]
    issuer = Issuer(tmp_path)
    issuer.make_ca("orders", 30)
    issuer.make_site("orders", site, [f"twinlog-{site}.example.org"], 30)
    for kind in ("pem", "key"):
        (tmp_path / f"site-{site}.{kind}").rename(tmp_path / f"site.{kind}")
    (tmp_path / "coordinator-url").write_text("postgresql+psycopg://witness.example.org/twinlog")
    file = tmp_path / "site.toml"
    file.write_text(text.replace("/etc/twinlog-secrets/", f"{tmp_path}/").replace("/etc/twinlog-tls/", f"{tmp_path}/"))
    load_site_config(file, {})
    table = tomllib.loads(text)
    assert (table["site"], table["peer"]["site"]) == (site, {"a": "b", "b": "a"}[site])
    (gateway,) = objects["StatefulSet/twinlog"]["spec"]["template"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in gateway["volumeMounts"] if not mount.get("readOnly")]
    for path in (table["data_dir"], table["dfs"]["own"]["path"], table["dfs"]["peer"]["path"]):
        assert any(path.startswith(mount) for mount in mounts), path
    assert {table["http"]["port"], table["peer_http"]["port"]} == {port["containerPort"] for port in gateway["ports"]}
