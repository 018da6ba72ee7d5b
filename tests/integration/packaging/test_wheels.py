"""Both wheels install with pip into fresh environments, and their commands run there."""

import shutil
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from app import __version__
from app.release import COMMIT
from tests.integration.packaging.environments import CLIENT, Environment, build
from tests.unit.docs.markdown import ROOT

# The extras that the pages and messages name, without those that bring vLLM or Ray.
EXTRAS = ("ratings", "evaluation")


@pytest.fixture(scope="module")
def service_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(CLIENT, tmp_path_factory.mktemp("client"))


def requirements_of(wheel: Path, *extras: str) -> list[str]:
    """The requirements of a wheel with these extras."""
    name, version = wheel.name.split("-")[:2]
    metadata = PathDistribution(zipfile.Path(wheel) / f"{name}-{version}.dist-info")
    every = map(Requirement, metadata.requires or ())
    return [
        str(each)
        for each in every
        if not each.marker or any(each.marker.evaluate({"extra": name}) for name in ("", *extras))
    ]


def files_of(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def check_service(environment: Environment) -> None:
    """Runs the commands of the service, those of the extra `ratings` too, and its client."""
    assert environment.run("scope-judge", "--version").split()[0] == __version__
    assert "--min-battles" in environment.run("scope-judge", "leaderboard", "--help")
    program = (
        "import app.main, app.ratings.leaderboard, scope_judge; print(scope_judge.__version__)"
    )
    assert environment.run("python", "-c", program).strip() == __version__


def check_client(environment: Environment) -> None:
    program = (
        "import importlib.util, scope_judge\n"
        "print(scope_judge.ScopeClient('http://h').url, scope_judge.__version__)\n"
        "assert importlib.util.find_spec('app') is None"
    )
    assert environment.run("python", "-c", program).split() == ["http://h", __version__]


def test_the_wheel_holds_the_service_its_data_and_the_client(
    service_wheel: Path, client_wheel: Path
) -> None:
    held = files_of(service_wheel)
    for name in ("app", "scope_judge"):
        assert f"{name}/py.typed" in held
    data = ["app/demo/calibrate.jsonl", "app/demo/try.jsonl", "app/demo/model/model.safetensors"]
    assert held.issuperset(data)
    client = {name for name in files_of(client_wheel) if name.startswith("scope_judge/")}
    assert client == {name for name in held if name.startswith("scope_judge/")}
    tops = {name.partition("/")[0] for name in held}
    assert tops == {"app", "scope_judge", f"scope_judge-{__version__}.dist-info"}


def test_the_service_installs_alone_and_with_the_extras_that_the_pages_name(
    service_wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    environment.lend(requirements_of(service_wheel))
    environment.pip_install("--no-index", str(service_wheel))
    assert "--host" in environment.run("scope-judge", "serve", "--help")
    environment.lend(requirements_of(service_wheel, *EXTRAS))
    # A command that lacks an extra names it so, where scope-judge is installed already.
    environment.pip_install("--no-index", f"scope-judge[{','.join(EXTRAS)}]")
    check_service(environment)


def test_the_client_installs_beside_httpx_alone(client_wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.lend(["httpx"])
    environment.pip_install("--no-index", str(client_wheel))
    check_client(environment)


@pytest.mark.long
@pytest.mark.skipif(COMMIT is None or not shutil.which("git"), reason="needs a clone and git")
def test_pip_installs_service_and_client_from_a_git_address(
    service_wheel: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    environment.lend([*requirements_of(service_wheel), "hatchling"])
    address = f"git+{ROOT.as_uri()}@{COMMIT}"
    environment.pip_install("--no-index", "--no-build-isolation", address)
    assert COMMIT is not None
    assert COMMIT[:12] in environment.run("scope-judge", "--version")
    trainers = Environment(tmp_path / "trainers")
    trainers.lend(["httpx", "hatchling"])
    client = f"{address}#subdirectory=clients/python"
    trainers.pip_install("--no-index", "--no-build-isolation", client)
    check_client(trainers)
