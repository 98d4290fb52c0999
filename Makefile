# Each target does all of its own set-up; `make help` lists them.
SHELL := /bin/sh
PYTHON ?= python3
DEV = .venv-dev/bin/python
SANDBOX = $(PYTHON) -m sandbox
STACK = dev
BUNDLE = build/bundle
UV_VERSION = 0.13.8
# Where it is set, each of the hundreds of programs that the tests start compiles the project anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 18

setup: ## install what is missing: packages, virtualenvs, tools (built or downloaded, cached)
	@$(SANDBOX) setup

demo: ## start a one-node Kubernetes, train on it with `pulumi up`, show loss and a sample
	@$(SANDBOX) demo

demo-down: ## `pulumi destroy` and stop the cluster; the data stays
	@$(SANDBOX) demo-down

demo-local: ## the same training on this machine, no root, no cluster (PRESET= PROCESSES= DEVICE=cuda STEPS=)
	@$(SANDBOX) demo-local $(if $(PRESET),--preset $(PRESET)) $(if $(PROCESSES),--processes $(PROCESSES)) \
		$(if $(DEVICE),--device $(DEVICE)) $(if $(STEPS),--steps $(STEPS))

test: lint ## lint and the quick tests; `bash .ci/run` runs all that every commit has to pass
	@$(SANDBOX) setup --for-tests
	$(DEV) -m pytest tests -n 2 --maxfail 20 --dist loadgroup --no-loadscope-reorder --second-try --require tests/e2e --require tests/node --junitxml=build/junit.xml

lint: ## ruff, pyright, shellcheck
	@$(SANDBOX) setup --only-dev
	.venv-dev/bin/ruff check .
	.venv-dev/bin/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv-dev/bin/pyright
	.venv-dev/bin/shellcheck -x -a -P infra/node/scripts infra/node/scripts/*.sh
	.venv-dev/bin/shellcheck infra/node/scripts/lib/root.sh cli/scripts/*.sh disttrain .ci/run \
		tests/node/boot.sh tests/node/stand_in/*.sh

unit: ## the unit tests, about a minute
	@$(SANDBOX) setup --only-dev
	$(DEV) -m pytest tests/unit -n 2 --dist loadgroup

e2e: ## only the end-to-end tests
	@$(SANDBOX) setup --for-tests
	$(DEV) -m pytest tests/e2e --require tests/e2e

test-kinds: ## of every kind of workload: the place of each rank, and the same weights
	@$(SANDBOX) setup --for-tests
	DISTTRAIN_TESTS=commit $(DEV) -m pytest tests/e2e/test_engines.py --second-try --require tests/e2e

missing-tools: ## name the tools of the tests that are not in the cache
	@$(SANDBOX) setup --missing

test-engines: ## the tests that take hours: all topologies and queues, more faults, NFS
	@$(SANDBOX) setup --for-tests-in-depth
	DISTTRAIN_TESTS=all $(DEV) -m pytest tests -m in_depth

bench: ## measure the trainer into docs/benchmarks.md (long; one row: .venv-dev/bin/python -m bench throughput)
	@$(SANDBOX) setup --only-dev
	$(DEV) -m bench

test-gpu: ## the tests that need a GPU, with the torch of $(PYTHON); status 77: no GPU, nothing was run
	@$(PYTHON) -m tests.gpu

bench-gpu: ## measure the trainer on a GPU into docs/benchmarks.md; status 77: no GPU, nothing was run
	@$(PYTHON) -m bench.gpu

bundle: ## fill build/bundle for machines without a network (STACK=dev BUNDLE=folder OPTIONS="--without ...")
	@$(PYTHON) -c "from sandbox.venvs import ensure_venv; ensure_venv('.venv')"
	@.venv/bin/python -m infra.airgap pack --stack $(STACK) --output $(BUNDLE) $(OPTIONS)

lock: ## write requirements.lock from requirements.txt (OPTIONS=--upgrade also moves what is not pinned there)
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@build/lock/bin/uv pip compile requirements.txt --quiet --universal --python-version 3.11 \
		--generate-hashes --custom-compile-command 'make lock' --output-file requirements.lock $(OPTIONS)

docs: ## write docs/settings.md from Pulumi.yaml
	@$(PYTHON) -c "from sandbox.venvs import ensure_venv; ensure_venv('.venv')"
	@.venv/bin/python -m infra.settings.document

clean-cache: ## empty the cache of tools, virtualenvs and images
	@$(SANDBOX) clean-cache

.PHONY: help setup demo demo-down demo-local test lint unit e2e test-kinds missing-tools test-engines bench test-gpu bench-gpu bundle lock docs clean-cache
