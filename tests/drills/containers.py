"""`make containers`: builds the images and runs them on a machine without a registry.

Runs as root on Debian, after
`apt-get install debootstrap buildah podman runc netavark aardvark-dns iptables`. debootstrap makes
a substitute for the image of a registry; all other steps follow the files. The program prints which
parts did not run.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.integration.packaging.container_files import (
    CPU,
    GPU,
    ROOT,
    health_check,
    values,
)
from tests.programs import free_port

TOOLS = ("debootstrap", "buildah", "podman", "runc", "iptables")
STAND_IN = "localhost/stand-in"
PAIR = {
    "question": "Write this word backwards: tulip",
    "response_a": "pilut",
    "response_b": "piltu",
}
# Settings for the scripted engine, which has no calibration.
SCRIPTED_PAIR = {
    "question": "Which?",
    "response_a": "quality=2",
    "response_b": "quality=1",
    "alpha": None,
}
NOT_RUN = (
    "Docker's own builder and engine (buildah and podman build and run the same files)",
    "the official image of Python: Debian's Python 3.11 replaces it",
    "docker-compose.yml, with Redis, Prometheus and Grafana",
    "vLLM's CUDA image: Dockerfile.gpu is built on the CPU build of vLLM; no GPU is reserved",
    "PyTorch's CPU index, if this machine has its own mirror",
)


class Workshop:
    """Buildah and podman with a store of their own, which is deleted at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SCOPE_")},
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        # runc: crun refuses the mixed cgroups of some machines. Limits: podman would raise them.
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\n'
            f'graphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
        )
        self.mirror = self._take_over_mirror()

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command; returns its output."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            raise SystemExit(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout.strip()

    def succeeds(self, *command: str) -> bool:
        """Runs a command; returns whether its status is 0."""
        return not subprocess.run(command, env=self._environment, capture_output=True).returncode

    def build(self, dockerfile: Path, tag: str, *options: str, context: Path = ROOT) -> None:
        """Builds an image; local substitutes replace the images of a registry."""
        stand_ins = [
            option
            for image in values(dockerfile, "FROM")
            for option in ("--build-context", _stand_in_for(image.split(" AS ")[0]))
            if ":" in image
        ]
        # Isolation by chroot: RUN uses the network of this machine and needs no container runtime.
        command = ("buildah", "build", "--format", "docker", "--isolation", "chroot", "--layers")
        self.run(*command, *stand_ins, *options, "-f", str(dockerfile), "-t", tag, str(context))

    def build_from_repository(self, dockerfile: Path, tag: str, *options: str) -> None:
        """Builds one of the images of docker/, from this machine's mirror if it has one."""
        self.build(dockerfile, tag, *self.mirror, *options)

    def _take_over_mirror(self) -> list[str]:
        """Options that let pip and uv install from the same index as this machine's pip."""
        held = dict(
            re.findall(
                r"^[^=]*\.(index-url|extra-index-url|find-links)='(.*)'$",
                self.run(sys.executable, "-m", "pip", "config", "list"),
                re.MULTILINE,
            )
        )
        if not held:
            return []
        held = {name: value.replace("\\n", " ").split() for name, value in held.items()}
        pip, uv = ["[global]"], ["system-certs = true"]
        for name, places in held.items():
            pip.append(f"{name} = {' '.join(places)}")
            uv.append(f"{name} = {json.dumps(places[0] if name == 'index-url' else places)}")
        (self.folder / "pip.conf").write_text("\n".join(pip) + "\n")
        (self.folder / "uv.toml").write_text("\n".join(uv) + "\n")
        (self.folder / "no-index").mkdir()
        mounts = {
            f"{self.folder}/pip.conf": "/etc/pip.conf",
            f"{self.folder}/uv.toml": "/etc/uv/uv.toml",
            f"{self.folder}/no-index": "/srv/no-index",
            "/etc/ssl/certs": "/etc/ssl/certs",
        }
        for place in [place for places in held.values() for place in places]:
            path = place.removeprefix("file://").removesuffix("/simple")
            if path.startswith("/"):
                mounts[path] = path
        options = [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
        return [*options, "--build-arg=TORCH_INDEX=file:///srv/no-index"]


def _stand_in_for(image: str) -> str:
    return f"{image}=container-image://{STAND_IN}/{image.partition('@')[0]}"


@contextmanager
def step(what: str) -> Iterator[None]:
    """Prints the name of a step and its duration."""
    print(f"  {what} ...", end="", flush=True)
    begun = time.monotonic()
    yield
    print(f" {time.monotonic() - begun:.0f} s", flush=True)


def eventually(
    true: Callable[[], bool], timeout_s: float, what: str, why: Callable[[], str]
) -> float:
    """Waits until a condition holds; returns the seconds that this took."""
    begun = time.monotonic()
    while not true():
        if time.monotonic() - begun > timeout_s:
            raise SystemExit(f"{what}: not within {timeout_s:.0f} s\n{why()}")
        time.sleep(0.5)
    return time.monotonic() - begun


def ask(port: int, path: str, key: str = "", body: object = None) -> tuple[int, bytes]:
    """Sends one request; the status is 0 if no process listens yet."""
    url, headers = f"http://127.0.0.1:{port}{path}", {"Authorization": f"Bearer {key}"}
    method = "GET" if body is None else "POST"
    try:
        answer = httpx.request(method, url, json=body, headers=headers if key else {}, timeout=30)
    except httpx.TransportError:
        return 0, b""
    return answer.status_code, answer.content


def make_base(shop: Workshop) -> str:
    """Makes the substitute for the Python image with debootstrap."""
    (image,) = {each for each in (v.split(" AS ")[0] for v in values(CPU, "FROM")) if ":" in each}
    root = shop.folder / "base"
    packages = "ca-certificates,python3,python3-pip,python3-venv"
    shop.run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root))
    # As in the official image: pip may install, and the image's own user does not exist yet.
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    archive = shop.folder / "base.tar"
    shop.run("tar", "-C", str(root), "-cf", str(archive), ".")
    shop.run("podman", "import", "-q", str(archive), f"{STAND_IN}/{image}")
    archive.unlink()
    return image


def size_mb(shop: Workshop, image: str) -> float:
    return int(shop.run("podman", "image", "inspect", image, "--format", "{{.Size}}")) / 1e6


def check_container(
    shop: Workshop, image: str, *options: str, dockerfile: Path, pair: object = PAIR
) -> dict[str, str]:
    """Runs an image as its files describe, from the start to a judgment and to the stop."""
    port, name = free_port(), "under-test"
    hardened = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    shop.run(
        "podman",
        "run",
        "--detach",
        "--name",
        name,
        "--publish",
        f"127.0.0.1:{port}:8000",
        *hardened,
        "--volume=data:/data",
        "--volume=weights:/weights",
        *options,
        image,
    )

    def logs() -> str:
        return shop.run("podman", "logs", name, check=False)

    def healthy() -> bool:
        # Runs the image's own HEALTHCHECK by hand, because podman leaves health checks to systemd.
        return shop.succeeds("podman", "healthcheck", "run", name)

    start_period = health_check(dockerfile)[0]["start-period"]
    assert start_period.endswith("m")
    ready_s = eventually(healthy, int(start_period[:-1]) * 60, f"{image} is healthy", logs)
    inside = ("podman", "exec", name)
    uid = shop.run(*inside, "sh", "-c", "stat -c %u /proc/1")
    first = shop.run(*inside, "sh", "-c", r"tr '\0' ' ' < /proc/1/cmdline")
    if ask(port, "/judge", "scope_wrong", pair)[0] != 401:
        raise SystemExit("a request without a key was accepted")
    key = shop.run(*inside, "scope-judge", "keys", "add", "test", "--role", "judge")
    eventually(lambda: ask(port, "/judge", key, pair)[0] == 200, 30, "a verdict", logs)
    verdict = json.loads(ask(port, "/judge", key, pair)[1])
    states = shop.run(*inside, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null | cut -d' ' -f3")
    if "Z" in states.split():
        raise SystemExit("there are zombies in the container")
    begun = time.monotonic()
    shop.run("podman", "stop", "--time", "60", name)
    stop_s = time.monotonic() - begun
    status = shop.run("podman", "inspect", name, "--format", "{{.State.ExitCode}}")
    if status != "0" or key in logs():
        raise SystemExit(f"ended with status {status}\n{logs()}")
    shop.run("podman", "rm", "--volumes", name)
    shop.run("podman", "volume", "rm", "data", "weights")
    return {
        "process 1": f"{first} as {uid}",
        "healthy after": f"{ready_s:.0f} s",
        "verdict": f"{verdict['verdict']} by {verdict['judge']}",
        "SIGTERM": f"status {status} after {stop_s:.0f} s",
    }


def stand_in_for_vllm(shop: Workshop) -> None:
    """Makes the substitute for vLLM's image: the CPU build, without our own dependencies."""
    (image,) = values(GPU, "FROM")
    shop.build_from_repository(CPU, f"{STAND_IN}/build:1", "--target", "build")
    held = shop.folder / "vllm"
    held.mkdir()
    dockerfile = held / "Dockerfile"
    dockerfile.write_text(
        "FROM build:1\n"
        "ENV PATH=/opt/venv/bin:$PATH\n"
        "RUN uv pip install pip && uv pip uninstall scope-judge redis scipy\n"
        'ENTRYPOINT ["vllm", "serve"]\nCMD ["--help"]\n'
    )
    shop.build(dockerfile, f"{STAND_IN}/{image}", *shop.mirror[:-1], context=held)


def main() -> None:
    """Runs all steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/scope-judge-containers"))
    folder: Path = parser.parse_args().folder
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() or missing:
        raise SystemExit(f"run as root, with {', '.join(TOOLS)} (missing: {', '.join(missing)})")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shop = Workshop(folder)
    # SIGTERM ends the program in order, so that it removes everything that it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    try:
        _run_all(shop)
    finally:
        shop.run("podman", "rm", "--all", "--force", check=False)
        shop.run("umount", f"{folder}/store/overlay", check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print("\nNot run:", *(f"  {each}" for each in NOT_RUN), sep="\n")


def _run_all(shop: Workshop) -> None:
    cpu, gpu = "localhost/scope-judge:cpu", "localhost/scope-judge:gpu"
    with step("debootstrap"):
        base = make_base(shop)
    with step("each instruction of docker/Dockerfile"):
        shop.build_from_repository(CPU, cpu)
    whole, below = size_mb(shop, cpu), size_mb(shop, f"{STAND_IN}/{base}")
    tell({"size": f"{whole:.0f} MB, {below:.0f} of them the base"})
    with step("its container"):
        rows = check_container(shop, cpu, dockerfile=CPU)
    tell(rows)
    with step("each instruction of docker/Dockerfile.gpu"):
        stand_in_for_vllm(shop)
        shop.build_from_repository(GPU, gpu)
    with step("its container, with the scripted engine"):
        rows = check_container(
            shop, gpu, "--env=SCOPE_ENGINE=scripted", dockerfile=GPU, pair=SCRIPTED_PAIR
        )
    tell(rows)


def tell(rows: dict[str, str]) -> None:
    """Prints the findings."""
    for name, value in rows.items():
        print(f"      {name:15} {value}", flush=True)


if __name__ == "__main__":
    main()
