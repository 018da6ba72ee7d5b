"""Renders the kustomizations of this repository, and refuses what else kustomize could do.

CI need not have a kustomize: Debian's kubectl (1.20) is too old to know components. So this knows
the few features that are used here, each in its plainest form; `test_kustomize.py` compares it with
a real one where there is one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

_FIELDS = frozenset(
    {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images"}
)
# List -> the field by which Kubernetes merges its items. Other lists are replaced as a whole.
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
    """What a kustomization asks for is not known here, or cannot be had."""


def read(path: Path) -> Manifest:
    """The one document in a file."""
    text = path.read_text(encoding="utf-8")
    _refuse_keys_given_twice(yaml.compose(text, Loader=yaml.SafeLoader))
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise KustomizeError(f"{path} holds no object")
    return document


def build(folder: Path) -> list[Manifest]:
    """What `kubectl kustomize FOLDER` prints, in the order of the files."""
    kustomization = _kustomization(folder, kind="Kustomization")
    manifests: list[Manifest] = []
    for resource in kustomization.get("resources", ()):
        path = folder / resource
        manifests += build(path) if path.is_dir() else [read(path)]
    for component in kustomization.get("components", ()):
        _patch(manifests, folder / component, _kustomization(folder / component, kind="Component"))
    _patch(manifests, folder, kustomization)
    if "namespace" in kustomization:
        for manifest in manifests:
            manifest["metadata"]["namespace"] = kustomization["namespace"]
    for image in kustomization.get("images", ()):
        _set_image(manifests, **image)
    names = [identity(manifest) for manifest in manifests]
    if len(set(names)) < len(names):
        raise KustomizeError(f"{folder}: an object stands there twice: {names}")
    return manifests


def identity(manifest: Manifest) -> tuple[str, str]:
    """Kind and name."""
    return manifest["kind"], manifest["metadata"]["name"]


def each_list(value: Any, change: Callable[[str, list[Any]], None], field: str = "") -> None:
    """Calls `change` with every list below the value, and the field that holds it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            each_list(inner, change, name)
    elif isinstance(value, list):
        for inner in value:
            each_list(inner, change)
        change(field, value)


def _refuse_keys_given_twice(node: Any) -> None:
    """PyYAML would take the last of them."""
    if node.id == "sequence":
        for item in node.value:
            _refuse_keys_given_twice(item)
    elif node.id == "mapping":
        keys = [key.value for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise KustomizeError(f"a key stands there twice: {node.start_mark}")
        for _, value in node.value:
            _refuse_keys_given_twice(value)


def _kustomization(folder: Path, *, kind: str) -> Manifest:
    kustomization = read(folder / "kustomization.yaml")
    if kustomization["kind"] != kind:
        raise KustomizeError(f"{folder} is a {kustomization['kind']} and no {kind}")
    known = _FIELDS if kind == "Kustomization" else {"apiVersion", "kind", "patches"}
    unknown = sorted(kustomization.keys() - known)
    if unknown:
        raise KustomizeError(f"{folder}: not known here: {', '.join(unknown)}")
    return kustomization


def _patch(manifests: list[Manifest], folder: Path, kustomization: Manifest) -> None:
    for patch in kustomization.get("patches", ()):
        if patch.keys() != {"path"}:
            raise KustomizeError(f"{folder}: a patch is a path and nothing else here: {patch}")
        given = read(folder / patch["path"])
        targets = [each for each in manifests if identity(each) == identity(given)]
        if len(targets) != 1:
            raise KustomizeError(f"{folder}/{patch['path']}: there is no {identity(given)}")
        _merge(targets[0], given)


def _merge(target: Manifest, patch: Manifest) -> None:
    for field, value in patch.items():
        if value is None or field.startswith("$"):
            raise KustomizeError(f"nothing is taken out here: {field}")
        held = target.get(field)
        if isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value)
        elif isinstance(held, list) and field in MERGE_KEYS:
            _merge_lists(held, value, key=MERGE_KEYS[field])
        elif isinstance(held, list) and field not in _REPLACED:
            raise KustomizeError(f"it is not known here how the lists of {field} are merged")
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
        pod = manifest["spec"].get("template", {}).get("spec", {}) if "spec" in manifest else {}
        for container in pod.get("containers", ()):
            if container["image"].partition(":")[0] == name:
                container["image"] = f"{newName}:{newTag}"
