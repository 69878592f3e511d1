# `make demo` runs the main job, `make test` checks everything; both set up what they need from Python 3.11 and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SEEDS ?= 4
WORKERS ?= 3  # on two cores: tests wait for servers, browsers and disks a third of their time

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint types imports unit bench faults wheel mutants gpu gpu-wheels docs lock audit clean

help: ## show these lines
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

# hashes would be asked of this project itself too, which has none
$(VENV)/.user: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	sed -e '/^ *--hash/d' -e 's/ \\$$//' requirements-dev.lock > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@ $(VENV)/.user

demo: $(VENV)/.user ## a simulated fleet with known answers: stored, reported, drawn
	$(BIN)/ullage demo

test: $(VENV)/.dev lint imports ## everything that CI runs
	@$(MAKE) --no-print-directory -j 2 types unit  # a minute of types on one core, beside tests on the others

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks docs gpu tools
	$(BIN)/ruff format --check --quiet src tests benchmarks docs gpu tools

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

# asserts are rewritten, which takes ten seconds of each worker, only to say what failed: those tests run once more for that
unit: $(VENV)/.dev
	@$(BIN)/python -m compileall -q src tests gpu  # once, and not again in each worker, and each program that tests start where Python may write no bytecode
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not full" --assert=plain || { $(BIN)/pytest --last-failed --last-failed-no-failures none -m "not full"; exit 1; }

# torch 2.13: any build of it will do; the CPU's is the smallest
$(VENV)/.full: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[certify,spark,trackers,trainers]' 'torch==2.13.*' 'moto[server]>=5.1'
	@touch $@

test-full: $(VENV)/.full lint types imports ## the long checks too: certificates of every architecture, the trainers and trackers, Spark where Java is (needs torch, which it installs)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

bench: $(VENV)/.dev ## speed beside the peers; prints ratios
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python benchmarks/run.py

faults: $(VENV)/.dev ## precision and recall of what is found in simulated fleets with planted faults; SEEDS=4 of each kind of fleet
	$(BIN)/python benchmarks/finding_faults.py $(SEEDS)
	$(BIN)/python benchmarks/trust_faults.py $(SEEDS)
	$(BIN)/python benchmarks/audit_seeds.py $(SEEDS)
	$(BIN)/python benchmarks/audit_labelled.py
	$(BIN)/python benchmarks/straggler_fleets.py $(SEEDS)
	$(BIN)/python benchmarks/blind_stragglers.py --count $(SEEDS)
	$(BIN)/python benchmarks/watch_changes.py $(SEEDS) --fleets $(SEEDS) --no-wait

wheel: $(VENV)/.dev ## a wheel in dist/ with the recorder built for x86-64 and AArch64, for nodes without a compiler, and its bill of materials
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[wheel]'
	$(BIN)/python tools/prebuilt_recorder.py
	rm -rf build
	$(BIN)/python -m build --wheel --outdir dist . ; built=$$? ; rm -rf build src/ullage/cupti/native/prebuilt ; exit $$built
	$(BIN)/python tools/sbom.py dist/*.whl

mutants: $(VENV)/.dev ## whether the tests notice small changes of what computes; MINUTES=10, EACH=40 of a module, NAMES="ofu windows" for some
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutants]'
	$(BIN)/python tools/mutants.py --minutes $(or $(MINUTES),10) --each $(or $(EACH),40) $(NAMES)

gpu: ## every check that needs a GPU; writes results/<gpu>/; needs no installation
	$(PYTHON) gpu/run.py

gpu-wheels: $(VENV)/.dev ## what a machine with a GPU and no network may lack, into gpu/wheels/; BARER=1: more of it
	$(BIN)/python gpu/carried.py $(if $(BARER),--barer)

docs: $(VENV)/.dev ## print the generated pages of docs/ from the code
	$(BIN)/python docs/generate.py

lock: ## renew the lock file for development (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev --quiet --no-header --no-annotate --generate-hashes pyproject.toml -o requirements-dev.lock

audit: ## known vulnerabilities of what development installs (asks PyPI; needs pip-audit)
	pip-audit --requirement requirements-dev.lock --require-hashes --disable-pip

clean: ## remove what make made
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants
