# `make serve` runs the service, `make check` the tests that each change needs, `make test` most of
# what CI runs. Each sets up what it needs.
PYTHON ?= python3
BIN := .venv/bin
export PYTHON

.PHONY: serve check test test-all setup setup-dev lint types engine docs reference fuzz bench replicas ray containers gpu lock demo-judge clean

serve: setup  ## Run the service; settings as SCOPE_NAME=value behind it
	@$(BIN)/scope-judge serve

# Tests run in parallel, in random surroundings; SEED=N repeats those of an earlier run.
export SEED

check: setup-dev lint  ## What every change needs, in minutes: style, types, unit tests, the stores' contract
	@$(BIN)/python -m tests check $(ARGS)

test: setup-dev lint  ## Most of what CI runs, with a real Redis and a real vLLM
	@$(BIN)/python -m tests test $(ARGS)

test-all: setup-dev lint  ## The same with trainers, full disks and large sizes
	@$(BIN)/python -m tests all $(ARGS)

lint: setup-dev  ## Style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup-dev  ## mypy, strict; TypeScript over the desk's JavaScript
	$(BIN)/mypy
	$(BIN)/python -m tests.desk_types

engine: setup-dev  ## The tests on real vLLM
	$(BIN)/python -m pytest -m vllm

docs: setup-dev  ## Build the documentation into site/; a broken link or anchor fails
	$(BIN)/python -m zensical build --strict --clean

reference: setup-dev  ## Write docs/reference/ from the code, and the tables of speed from docs/measured/bench.json
	$(BIN)/python docs/tools/make_reference.py
	$(BIN)/python -m docs.tools.make_speed_tables

fuzz: setup-dev  ## At least 20,000 hostile requests (two minutes); ARGS="--seed N --requests N"
	$(BIN)/python -m tests.drills.fuzz $(ARGS)

bench: setup-dev  ## Speed and memory against what people do today, into docs/measured/; ARGS="--quick --only NAME"
	$(BIN)/python -m tests.benchmarks $(ARGS); status=$$?; $(BIN)/python -m docs.tools.make_speed_tables; exit $$status

replicas: setup-dev  ## Rolling restart of two replicas under load; ARGS="--seconds N"
	$(BIN)/python -m tests.integration.replicas.fleet $(ARGS)

ray: setup-dev  ## Ray Serve and bulk judging on two nodes of this machine, one of them killed; ARGS="--only bulk"
	$(BIN)/python -m tests.drills.fleet $(ARGS)

containers: setup-dev  ## Build the images and run them with buildah and podman (root; 5-15 minutes)
	$(BIN)/python -m tests.drills.containers $(ARGS)

gpu: setup  ## Prove the GPU path in twelve steps, into docs/measured/gpu.json; ARGS="--only NAME"
	@$(BIN)/python -m tests.drills.gpu $(ARGS)

lock: setup-dev  ## Pin what CI, the image and a machine with a GPU install, anew
	.venv/uv/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate \
	  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--extra-index-url https://download.pytorch.org/whl/cpu) \
	  --extra cpu --extra dev --extra ray --overrides requirements/overrides.txt \
	  -o requirements/cpu.lock pyproject.toml
	.venv/uv/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate \
	  $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--extra-index-url https://download.pytorch.org/whl/cpu) \
	  --extra cpu --overrides requirements/overrides.txt --constraint requirements/cpu.lock \
	  -o docker/image.lock pyproject.toml
	cp requirements/cpu.lock requirements/gpu-dev.lock  # uv keeps these versions where vLLM allows them
	.venv/uv/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate \
	  --extra gpu --extra dev --extra ray -o requirements/gpu-dev.lock pyproject.toml
	cp requirements/gpu-dev.lock requirements/gpu.lock
	.venv/uv/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate \
	  --extra gpu --extra evaluation --extra ratings \
	  --constraint requirements/gpu-dev.lock -o requirements/gpu.lock pyproject.toml

demo-judge: setup-dev  ## Train the bundled judge anew (80 minutes on 2 cores), into demo-training/
	$(BIN)/python -m tests.demo_judge.train --minutes 80

setup:
	@requirements/install.sh

setup-dev:
	@requirements/install.sh dev

clean:  ## Remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache site
