"""Renders the kustomizations of this repository without kustomize, which CI lacks.

It knows only the features that this repository uses, and refuses all others.
"""

from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[3] / "deploy" / "kubernetes"
_FIELDS = {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images"}
# Name of a list -> field by which Kubernetes merges its items. Other lists are replaced as a whole.
_MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_REPLACED = {"accessModes", "command", "tolerations", "matchLabelKeys"}


def read(path: Path) -> Manifest:
    """Reads a YAML file with one object."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict), path
    return document


def the(kind: str, manifests: list[Manifest]) -> dict[str, Any]:
    """Spec of the only object of a kind."""
    (spec,) = (each["spec"] for each in manifests if each["kind"] == kind)
    assert isinstance(spec, dict)
    return spec


def literals(container: Manifest) -> dict[str, str]:
    """Environment variables of a container with a literal value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def adapter_rule() -> dict[str, Any]:
    """The only rule in the configuration of prometheus-adapter."""
    (rule,) = read(ROOT / "prometheus-adapter.yaml")["rules"]["custom"]
    assert isinstance(rule, dict)
    return rule


def build(folder: Path) -> list[Manifest]:
    """The objects that `kubectl kustomize FOLDER` prints, in the order of the files."""
    kustomization = read(folder / "kustomization.yaml")
    assert kustomization.keys() <= _FIELDS, f"{folder}: not supported"
    manifests: list[Manifest] = []
    for resource in kustomization.get("resources", ()):
        path = folder / resource
        manifests += build(path) if path.is_dir() else [read(path)]
    for component in kustomization.get("components", ()):
        held = read(folder / component / "kustomization.yaml")
        assert held["kind"] == "Component"
        manifests += [read(folder / component / each) for each in held.get("resources", ())]
        _patch(manifests, folder / component, held)
    _patch(manifests, folder, kustomization)
    for manifest in manifests if "namespace" in kustomization else ():
        manifest["metadata"]["namespace"] = kustomization["namespace"]
    for image in kustomization.get("images", ()):
        _set_image(manifests, **image)
    names = [_identity(manifest) for manifest in manifests]
    assert len(set(names)) == len(names), f"{folder}: an object is there twice"
    return manifests


def _identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _patch(manifests: list[Manifest], folder: Path, kustomization: Manifest) -> None:
    for patch in kustomization.get("patches", ()):
        (path,) = patch.values()
        given = read(folder / path)
        (target,) = (each for each in manifests if _identity(each) == _identity(given))
        _merge(target, given)


def _merge(target: Manifest, patch: Manifest) -> None:
    for field, value in patch.items():
        assert not field.startswith("$"), f"a directive of a patch is not supported: {field}"
        held = target.get(field)
        if value is None:
            target.pop(field, None)
        elif isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value)
        elif isinstance(held, list) and field in _MERGE_KEYS:
            key = _MERGE_KEYS[field]
            for item in value:
                same = [each for each in held if each.get(key) == item[key]]
                if same:
                    _merge(same[0], item)
                else:
                    held.append(item)
        else:
            assert not isinstance(held, list) or field in _REPLACED, f"merging {field}"
            target[field] = value


def _set_image(manifests: list[Manifest], *, name: str, newName: str, newTag: str) -> None:  # noqa: N803
    for manifest in manifests:
        spec = manifest.get("spec", {})
        # The pods of a CronJob are those of its jobs.
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        pod = spec.get("template", {}).get("spec", {})
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            if container["image"].partition(":")[0] == name:
                container["image"] = f"{newName}:{newTag}"
