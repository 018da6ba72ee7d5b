"""Static checks of docker/ and docker-compose.yml."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import validator_for

from app.settings import Settings
from tests.integration.packaging.container_files import (
    COMPOSE,
    CPU,
    GPU,
    ROOT,
    bind_mounts,
    compose,
    copied,
    exec_form,
    health_check,
    instructions,
    values,
)

# https://github.com/compose-spec/compose-spec; Apache-2.0, see LICENSE.compose-spec.
SCHEMA = Path(__file__).with_name("compose-spec.json")
SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|API_KEY(?!S_FILE)|PRIVATE", re.I)

dockerfiles = pytest.mark.parametrize("path", [CPU, GPU], ids=lambda path: path.name)


def variables(service: str) -> dict[str, Any]:
    held: dict[str, Any] = compose()["services"][service].get("environment", {})
    return held


def seconds(duration: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(s|m)", duration).groups()  # type: ignore[union-attr]
    return float(number) * {"s": 1, "m": 60}[unit]


def test_compose_follows_the_compose_specification() -> None:
    schema = json.loads(SCHEMA.read_text())
    faults = validator_for(schema)(schema).iter_errors(compose())
    assert [(list(fault.absolute_path), fault.message) for fault in faults] == []


@dockerfiles
def test_an_image_runs_as_a_user_that_is_not_root_and_has_a_fixed_number(path: Path) -> None:
    user = values(path, "USER")[-1]
    assert user == "10001:10001"
    assert any("--uid 10001" in run for run in values(path, "RUN"))


@dockerfiles
def test_the_service_itself_gets_the_signals(path: Path) -> None:
    assert exec_form(values(path, "ENTRYPOINT")[-1]) == ["scope-judge", "serve"]
    assert values(path, "STOPSIGNAL") == ["SIGTERM"]


@dockerfiles
def test_the_health_check_waits_longer_than_readyz_may_take(path: Path) -> None:
    options, command = health_check(path)
    assert "/readyz" in command[-1]
    compile(command[-1], "HEALTHCHECK", "exec")
    assert seconds(options["timeout"]) > 2
    assert seconds(options["start-period"]) >= 300


@dockerfiles
def test_no_layer_holds_a_secret(path: Path) -> None:
    set_here = [value for kind, value in instructions(path) if kind in {"ENV", "ARG", "LABEL"}]
    assert [value for value in set_here if SECRET.search(value)] == []


@dockerfiles
def test_copied_files_exist_and_pass_dockerignore(path: Path) -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for source in copied(path):
        assert (ROOT / source).exists(), source
        assert source in allowed


@dockerfiles
def test_the_environment_of_an_image_are_settings_that_exist(path: Path) -> None:
    names = re.findall(r"(SCOPE_\w+)=", " ".join(values(path, "ENV")))
    assert {name.removeprefix("SCOPE_").lower() for name in names} <= set(Settings.model_fields)
    assert "SCOPE_API_KEYS_FILE" in names


@pytest.mark.parametrize("service", ["judge", "judge-gpu"])
def test_every_setting_is_passed_on_to_a_judge(service: str) -> None:
    given = {name: value for name, value in variables(service).items() if name[:6] == "SCOPE_"}
    # The published ports and Prometheus lead to these.
    addresses = {"SCOPE_HOST", "SCOPE_PORT", "SCOPE_METRICS_PORT"}
    settings = {f"SCOPE_{name.upper()}" for name in Settings.model_fields}
    assert given.keys() - addresses == settings - addresses
    for name in given.keys() - addresses:
        # Without a value here, it has the one of the shell or of .env, or stays unset.
        assert given[name] is None or given[name].startswith(f"${{{name}:-"), name
    # Compose removes a variable without a value, the image's too.
    image = GPU if service == "judge-gpu" else CPU
    of_image = dict(re.findall(r"(SCOPE_\w+)=(\S+)", " ".join(values(image, "ENV"))))
    assert all(given[name] is not None for name in of_image.keys() - addresses)
    file = of_image["SCOPE_API_KEYS_FILE"]
    assert given["SCOPE_API_KEYS_FILE"] == f"${{SCOPE_API_KEYS_FILE:-{file}}}"


def test_prometheus_alone_reaches_the_metrics() -> None:
    services = compose()["services"]
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    for service in ("judge", "judge-gpu"):
        port = variables(service)["SCOPE_METRICS_PORT"]
        assert job["static_configs"][0]["targets"] == [f"judge:{port}"]
        assert [each.rpartition(":")[2] for each in services[service]["ports"]] == ["8000"]


def test_the_gpu_image_is_a_vllm_that_the_package_allows() -> None:
    (image,) = values(GPU, "FROM")
    version = image.rpartition(":v")[2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras["gpu"][0] == f"vllm=={version}"
    assert f"vllm=={version}" in (ROOT / "requirements" / "gpu.lock").read_text().split("\n")


def test_the_image_has_the_versions_that_the_tests_have_and_no_test_tools() -> None:
    tested = set((ROOT / "requirements" / "cpu.lock").read_text().split("\n"))
    shipped = set((ROOT / "docker" / "image.lock").read_text().split("\n"))
    assert shipped < tested
    assert not any(re.match(r"(pytest|mypy|ruff|hypothesis)\b", line) for line in shipped)


def test_files_that_compose_names_exist() -> None:
    for _, source, _ in bind_mounts():
        assert (ROOT / source).exists(), source
    for service in compose()["services"].values():
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_a_judge_for_the_gpu_starts_no_second_one_for_the_cpu() -> None:
    services = compose()["services"]
    assert services["judge-gpu"]["profiles"] == ["gpu"]
    started, left = set(), ["judge-gpu", "prometheus", "grafana"]
    while left:
        name = left.pop()
        started.add(name)
        left += [each for each in services[name].get("depends_on", ()) if each not in started]
    assert started == {"judge-gpu", "prometheus", "grafana", "redis"}
    # If both are started, the second cannot bind the port.
    assert services["judge"]["ports"] == services["judge-gpu"]["ports"]


def test_only_this_machine_reaches_the_published_ports() -> None:
    for name, service in compose()["services"].items():
        for port in service.get("ports", ()):
            assert re.match(r"\$\{\w+_PUBLISH:-127\.0\.0\.1:\d+\}:\d+$", port), name
    assert "ports" not in compose()["services"]["redis"]


def test_every_service_is_confined() -> None:
    services = compose()["services"]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # Any of these would lift the confinement.
        assert not service.keys() & {"privileged", "pid", "ipc", "network_mode", "devices"}, name
        assert service.get("user") not in ("root", "0", 0, "0:0"), name
        for volume in service["volumes"]:
            assert not volume.startswith("/"), name
    writable = {name for name, service in services.items() if service["read_only"] is not True}
    # vLLM on a GPU caches its compiled kernels in several folders of its image.
    assert writable == {"judge-gpu"}
    for name in services.keys() - writable:
        assert services[name]["tmpfs"] == ["/tmp"], name


def test_redis_is_reached_by_judges_alone() -> None:
    in_store = {
        name for name, service in compose()["services"].items() if "store" in service["networks"]
    }
    assert in_store == {"redis", "judge", "judge-gpu"}
    assert compose()["networks"]["store"]["internal"] is True


def test_redis_keeps_acknowledged_writes() -> None:
    command = compose()["services"]["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"
    # At the container's limit it would be killed; a rewrite of its file may copy all of its memory.
    held = compose()["services"]["redis"]["mem_limit"]
    assert int(options["--maxmemory"].removesuffix("gb")) * 2 <= int(held.removesuffix("g"))


@pytest.mark.parametrize("service", ["judge", "judge-gpu"])
def test_a_judge_has_the_time_that_its_requests_have(service: str) -> None:
    settings = Settings()
    grace = seconds(compose()["services"][service]["stop_grace_period"])
    assert grace > settings.drain_lag_s + settings.drain_s


def test_compose_holds_no_secret() -> None:
    for name, service in compose()["services"].items():
        environment = service.get("environment", {})
        held = {key for key, value in environment.items() if SECRET.search(key) and value}
        # Whether Grafana creates an admin is no secret.
        assert held <= {"GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"}, name


@pytest.mark.parametrize("path", [CPU, GPU, COMPOSE], ids=lambda path: path.name)
def test_images_are_pinned_and_no_registry_is_named(path: Path) -> None:
    if path is COMPOSE:
        images = [each["image"] for each in compose()["services"].values()]
    else:
        stages = {value.split(" AS ")[1] for value in values(path, "FROM") if " AS " in value}
        images = [value.split(" AS ")[0] for value in values(path, "FROM")]
        images = [image for image in images if image not in stages]
    for image in images:
        tag, _, digest = image.partition("@")
        assert re.fullmatch(r"([a-z][a-z-]*/)?[a-z][a-z-]*:[\w.-]+", tag), image
        assert not tag.endswith(":latest")
        # Our own images, and vLLM's, whose digest was not at hand.
        is_pinned = re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
        assert is_pinned or tag.startswith(("scope-judge:", "vllm/")), image
