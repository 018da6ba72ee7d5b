"""`make containers`: builds the images and runs them on a machine without a registry.

Runs as root on Debian, after
`apt-get install debootstrap buildah podman runc netavark aardvark-dns iptables`. debootstrap and
apt make substitutes for the images of a registry; all other steps follow the files. The program
prints which parts ran and which did not.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.integration.packaging.container_files import (
    COMPOSE,
    CPU,
    GPU,
    ROOT,
    compose,
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
# Keys of this service, tokens of the hub and of clouds, and private keys. Programs that read
# private keys contain their first line.
SECRETS = (
    "(^|[^A-Za-z0-9_])(scope_[A-Za-z0-9_]{43}|hf_[A-Za-z]{34}|AKIA[A-Z0-9]{16})([^A-Za-z0-9_]|$)"
    "|PRIVATE KEY-----[[:space:]]+[A-Za-z0-9+/]{40}"
)
NOT_RUN = (
    "Docker's own builder and engine (buildah and podman build and run the same files)",
    "the official images: Debian's Python 3.11, Redis and Prometheus replace them",
    "Grafana",
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

    def run(self, *command: str, check: bool = True, more: Mapping[str, str] | None = None) -> str:
        """Runs a command; returns its output."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self._environment, **(more or {})},
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


def check_no_secret(shop: Workshop, image: str) -> list[str]:
    """Searches every file for keys; returns those with a match that the image adds."""
    mounted = Path(shop.run("podman", "image", "mount", image))
    # -z: the pattern of a private key continues after its first line.
    grep = ("grep", "-rlazE", "--exclude-dir=proc", "--exclude-dir=sys", SECRETS, str(mounted))
    found = shop.run(*grep, check=False, more={"LC_ALL": "C"}).splitlines()
    patterns = ("**/.env", "**/.git", "**/.netrc", "**/uv.toml", "etc/pip.conf", "**/id_rsa")
    named = [path for pattern in patterns for path in mounted.glob(pattern)]
    suspects = {
        str(path.relative_to(mounted))
        for path in [*map(Path, found), *named]
        # A file is empty where the build mounted one.
        if path.is_dir() or path.stat().st_size
    }
    keys = (mounted / "data" / "keys.json").read_text()
    shop.run("podman", "image", "unmount", image)
    if json.loads(keys) != {"keys": []}:
        raise SystemExit("the image contains keys")
    return sorted(each for each in suspects if not (shop.folder / "base" / each).exists())


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


def check_compose(shop: Workshop, base: str) -> dict[str, str]:
    """`compose up` of the judge, Redis and Prometheus; a verdict, a scrape, `down`."""
    make_compose_images(shop, base)
    tools = shop.folder / "podman-compose"
    shop.run(sys.executable, "-m", "venv", str(tools))
    shop.run(str(tools / "bin" / "pip"), "install", "-q", "podman-compose")

    judge, metrics = free_port(), free_port()
    ports = {
        "SCOPE_PUBLISH": f"127.0.0.1:{judge}",
        "PROMETHEUS_PUBLISH": f"127.0.0.1:{metrics}",
    }

    def composed(*words: str) -> str:
        return shop.run(
            str(tools / "bin" / "podman-compose"), "-f", str(COMPOSE), *words, more=ports
        )

    composed("up", "--detach", "--no-build", "redis", "prometheus", "judge")
    try:

        def logs() -> str:
            return composed("logs", "judge")

        ready_s = eventually(
            lambda: ask(judge, "/readyz")[0] == 200, 300, "the judge is ready", logs
        )
        key = composed("exec", "-T", "judge", "scope-judge", "keys", "add", "me", "--role", "judge")
        eventually(lambda: ask(judge, "/judge", key, PAIR)[0] == 200, 30, "a verdict", logs)
        query = "/api/v1/query?query=" + quote('up{job="scope-judge"} == 1')
        eventually(lambda: b"judge:9464" in ask(metrics, query)[1], 60, "a scrape", lambda: logs())
        if ask(judge, "/metrics")[0] != 401:
            raise SystemExit("/metrics is open on the published port")
        rules = json.loads(ask(metrics, "/api/v1/rules")[1])["data"]["groups"]
        check_composed_redis(composed)
    finally:
        composed("down", "--volumes")
    return {
        "ready after": f"{ready_s:.0f} s",
        "key, verdict": "made, given",
        "Redis": "holds the calibration, appendfsync always; not root, no capabilities",
        "Prometheus": f"scrapes judge:9464, {len(rules)} groups of rules",
    }


def make_compose_images(shop: Workshop, base: str) -> None:
    """Makes images of Redis and Prometheus from Debian's packages, under the names of Compose."""
    services = compose()["services"]
    held = shop.folder / "stand-ins"
    held.mkdir()
    # The official Redis image has protected mode off; Debian's package has it on. In both, the user
    # redis owns /data.
    redis = (
        "RUN mkdir /data && chown redis:redis /data\nVOLUME /data\nWORKDIR /data\n"
        'ENTRYPOINT ["sh", "-c", "exec \\"$@\\" --protected-mode no", "--"]'
    )
    prometheus = 'ENTRYPOINT ["/usr/bin/prometheus"]'
    made = {
        services["redis"]["image"]: ("redis-server", redis),
        services["prometheus"]["image"]: ("prometheus", prometheus),
    }
    for image, (package, rest) in made.items():
        dockerfile = held / f"Dockerfile.{package}"
        install = f"apt-get install -y --no-install-recommends {package}"
        dockerfile.write_text(f"FROM {base}\nRUN apt-get update && {install}\n{rest}\n")
        shop.build(dockerfile, f"localhost/{image}", context=held)


def check_composed_redis(composed: Callable[..., str]) -> None:
    """Checks that Redis of `compose up` keeps the calibration, and runs without rights.

    Args:
        composed: Runs podman-compose with these words, and returns its output.
    """
    stored = composed("exec", "-T", "redis", "redis-cli", "EXISTS", "scope:{default}:trail")
    on = composed("exec", "-T", "redis", "redis-cli", "CONFIG", "GET", "appendfsync").split()
    if stored != "1" or on[-1] != "always":
        raise SystemExit(f"Redis has no calibration, or no AOF: {stored} {on}")
    process = composed("exec", "-T", "redis", "cat", "/proc/1/status")
    capabilities = re.findall(r"^Cap(?:Prm|Eff|Bnd):\s*(\S+)$", process, re.MULTILINE)
    if re.search(r"^Uid:\s*0\b", process, re.M) or set(capabilities) != {"0" * 16}:
        raise SystemExit(f"Redis runs as root, or has capabilities:\n{process}")


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
    with step("the files that it adds"):
        found = check_no_secret(shop, cpu)
        whole, below = size_mb(shop, cpu), size_mb(shop, f"{STAND_IN}/{base}")
    tell({"size": f"{whole:.0f} MB, {below:.0f} of them the base"})
    tell({"like a secret": ", ".join(found) or "no file"})
    with step("its container"):
        rows = check_container(shop, cpu, dockerfile=CPU)
    tell(rows)
    with step("docker-compose.yml: judge, redis, prometheus"):
        rows = check_compose(shop, base)
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
