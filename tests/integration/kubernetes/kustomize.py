"""Renders the kustomizations of this repository without kustomize.

CI may lack kustomize, and Debian's kubectl (1.20) is too old for components. This renderer supports
only the features that this repository uses and refuses all others. `test_kustomize.py` compares it
with a real kustomize if one is installed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

_FIELDS = frozenset(
    {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images"}
)
# Name of a list -> field by which Kubernetes merges its items. Other lists are replaced as a whole.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_REPLACED = frozenset({"accessModes", "command", "tolerations", "matchLabelKeys"})


class KustomizeError(Exception):
    """A kustomization is broken, or uses a feature that this renderer does not support."""


def read(path: Path) -> Manifest:
    """Reads a YAML file with one object.

    Raises:
        KustomizeError: The file is not an object, or repeats a key.
    """
    text = path.read_text(encoding="utf-8")
    _refuse_keys_given_twice(yaml.compose(text, Loader=yaml.SafeLoader))
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise KustomizeError(f"{path} is not an object")
    return document


def build(folder: Path) -> list[Manifest]:
    """The objects that `kubectl kustomize FOLDER` prints, in the order of the files."""
    kustomization = _kustomization(folder, kind="Kustomization")
    manifests: list[Manifest] = []
    for resource in kustomization.get("resources", ()):
        path = folder / resource
        manifests += build(path) if path.is_dir() else [read(path)]
    for component in kustomization.get("components", ()):
        held = _kustomization(folder / component, kind="Component")
        manifests += [read(folder / component / each) for each in held.get("resources", ())]
        _patch(manifests, folder / component, held)
    _patch(manifests, folder, kustomization)
    if "namespace" in kustomization:
        for manifest in manifests:
            manifest["metadata"]["namespace"] = kustomization["namespace"]
    for image in kustomization.get("images", ()):
        _set_image(manifests, **image)
    names = [identity(manifest) for manifest in manifests]
    if len(set(names)) < len(names):
        raise KustomizeError(f"{folder}: an object is there twice: {names}")
    return manifests


def identity(manifest: Manifest) -> tuple[str, str]:
    """Kind and name."""
    return manifest["kind"], manifest["metadata"]["name"]


def each_list(value: Any, change: Callable[[str, list[Any]], None], field: str = "") -> None:
    """Calls `change` with the field and the items of every list below the value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            each_list(inner, change, name)
    elif isinstance(value, list):
        for inner in value:
            each_list(inner, change)
        change(field, value)


def _refuse_keys_given_twice(node: Any) -> None:
    """Refuses repeated keys, of which PyYAML would silently use the last."""
    if node.id == "sequence":
        for item in node.value:
            _refuse_keys_given_twice(item)
    elif node.id == "mapping":
        keys = [key.value for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise KustomizeError(f"a key is there twice: {node.start_mark}")
        for _, value in node.value:
            _refuse_keys_given_twice(value)


def _kustomization(folder: Path, *, kind: str) -> Manifest:
    kustomization = read(folder / "kustomization.yaml")
    if kustomization["kind"] != kind:
        raise KustomizeError(f"{folder} is a {kustomization['kind']} and not a {kind}")
    in_component = {"apiVersion", "kind", "patches", "resources"}
    known = _FIELDS if kind == "Kustomization" else in_component
    unknown = sorted(kustomization.keys() - known)
    if unknown:
        raise KustomizeError(f"{folder}: not supported: {', '.join(unknown)}")
    return kustomization


def _patch(manifests: list[Manifest], folder: Path, kustomization: Manifest) -> None:
    for patch in kustomization.get("patches", ()):
        if patch.keys() != {"path"}:
            raise KustomizeError(f"{folder}: only patches with a path alone are supported: {patch}")
        given = read(folder / patch["path"])
        targets = [each for each in manifests if identity(each) == identity(given)]
        if len(targets) != 1:
            raise KustomizeError(f"{folder}/{patch['path']}: there is no {identity(given)}")
        _merge(targets[0], given)


def _merge(target: Manifest, patch: Manifest) -> None:
    for field, value in patch.items():
        if field.startswith("$"):
            raise KustomizeError(f"a directive of a patch is not supported: {field}")
        held = target.get(field)
        if value is None:
            target.pop(field, None)
        elif isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value)
        elif isinstance(held, list) and field in MERGE_KEYS:
            _merge_lists(held, value, key=MERGE_KEYS[field])
        elif isinstance(held, list) and field not in _REPLACED:
            raise KustomizeError(f"merging the lists of {field} is not supported")
        else:
            target[field] = value


def _merge_lists(held: list[Manifest], patch: list[Manifest], *, key: str) -> None:
    for item in patch:
        same = [each for each in held if each.get(key) == item[key]]
        if same:
            _merge(same[0], item)
        else:
            held.append(item)


def _set_image(manifests: list[Manifest], *, name: str, newName: str, newTag: str) -> None:  # noqa: N803
    for manifest in manifests:
        spec = manifest.get("spec", {})
        # The pods of a CronJob are those of its jobs.
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        pod = spec.get("template", {}).get("spec", {})
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            if container["image"].partition(":")[0] == name:
                container["image"] = f"{newName}:{newTag}"
