# Everything needs only make and a Python >= 3.11; PYTHON=/path/to/python3 chooses another than the first found.
SECONDS ?= 30
WORKERS ?= 2
JOBS ?=
COUNT ?= 2000
CASES ?= 6000
MINUTES ?= 10
ARGS ?= tests
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo stand psql test package-test image-test chart-test chart-docs retain sample tracing transport hanging rate producers catalog browser screenshots pages rollout pooled failover matrix bench backlog troubles profile model histories lanes fuzz faults resources soak chaos lint ruff types floors migrations docs wheel requirements clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

venv: $(READY) ## prepare .venv with all that the other targets need

define find_python
	for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
		"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
		python=; \
	done; \
	test -n "$$python" || { echo "no Python >= 3.11 with venv found;" \
		"name one with PYTHON=..., or install one (Debian: apt-get install python3-venv)" >&2; exit 1; }
endef

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Hashed requirements first, then the package itself with the build backend that was among them.
$(DEMO): requirements-demo.txt pyproject.toml
	@echo "preparing .venv, once: about a minute" >&2
	@$(find_python); test -x $(BIN)/pip || "$$python" -m venv --clear .venv
	@$(PIP) --require-hashes -r requirements-demo.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(READY): $(DEMO) requirements-dev.txt
	@echo "adding the tools of development to .venv, once: some minutes" >&2
	@$(PIP) --require-hashes -r requirements-dev.txt
	@touch $@

demo: $(DEMO) ## the whole story in SECONDS=30, JSON=1 for a last line to parse
	@$(BIN)/relay demo --seconds $(SECONDS) $(if $(JSON),--json)

stand: $(DEMO) ## a PostgreSQL and a receiver to try the relay with, until Ctrl-C; see docs/getting-started.md
	@$(BIN)/python -m relay.demo.stand

psql: $(DEMO) ## psql in the stand's database
	@$(BIN)/python -m relay.demo.stand psql

test: $(READY) ## the core suite; ARGS=tests/rules for a part, RELAY_TEST_POSTGRES=15 for another PostgreSQL
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

package-test: $(READY) ## the wheel's demo in a clean environment of every Python on this machine
	@$(BIN)/pytest tests/package/installed.py

image-test: $(READY) ## build and run the image without a daemon (Debian: apt-get install buildah podman runc mmdebstrap)
	@$(BIN)/pytest tests/image/image.py

chart-test: $(READY) ## the chart with Helm 3 and 4 against Kubernetes 1.27 to 1.37
	@$(BIN)/pytest -q $(addprefix tests/chart/,rendered.py hardened.py refused.py installed.py documented.py test_written.py)

chart-docs: $(READY) ## write the chart's schema, table of values and golden render
	@$(BIN)/python -m tests.chart

retain: $(READY) ## what cleaning up 2 million rows costs the claims beside it, and bloat over 20 turnovers; QUICK=1 JSON=1
	@$(BIN)/python -m tests.bench.retain $(if $(QUICK),--quick) $(if $(JSON),--json)

sample: $(READY) ## what the sampled gauges read with 2 million jobs
	@$(BIN)/pytest tests/metrics/pages.py

tracing: $(READY) ## deliveries per CPU second with tracing off, at 1 % and at 100 %
	@$(BIN)/python -m tests.bench.tracing

transport: $(READY) ## CPU of one POST, aiohttp's client beside ours; JSON=1
	@$(BIN)/python -m tests.bench.transport $(if $(JSON),--json)

hanging: $(READY) ## how little 19 destinations notice of one that hangs; JSON on the last line
	@$(BIN)/python -m tests.bench.hanging

rate: $(READY) ## how exactly a rate limit holds over 30 s
	@$(BIN)/python -m tests.bench.rate

producers: $(READY) ## the producers' pages of every language (Debian packages: head of tests/producers/stacks.py)
	@$(BIN)/pytest tests/producers/stacks.py

catalog: $(READY) ## write schema/catalog.txt from the migrations
	@$(BIN)/python -m tests.schema.snapshot

browser: $(READY) ## the dashboard in a real Chromium (Debian packages: chromium npm)
	@$(BIN)/pytest tests/browser/stories.py

screenshots: $(READY) ## write docs/images/*.png
	@$(BIN)/pytest tests/browser/screenshots.py

pages: $(READY) ## what each page of the dashboard reads with 2 million jobs
	@$(BIN)/python -m tests.bench.pages

rollout: $(READY) ## a version takes over from another, and 1 replica becomes 8 and 1 again, under load
	@$(BIN)/pytest -s tests/rollout/rollout.py

pooled: $(READY) ## the core through PgBouncer in transaction mode, with LISTEN past it and with polling; ARGS=
	@for how in listen poll; do RELAY_TEST_POOLER=$$how $(BIN)/pytest -n $(WORKERS) \
		$(if $(ARGS:tests=),$(ARGS),tests/service tests/store) || exit 1; done

failover: $(READY) ## a standby takes over under load: what a synchronous one keeps, what an asynchronous one forgets
	@$(BIN)/pytest tests/failover/takeover.py

matrix: $(READY) ## what talks to the database, on PostgreSQL 14 to 18 with every Python of this machine
	@$(BIN)/python -m tests.matrix $(if $(MAJORS),--majors $(MAJORS)) $(if $(ARGS:tests=),--tests $(ARGS))

bench: $(READY) ## beside the textbook, bare loops and peers; QUICK=1 for the short form, JOBS= JSON=1
	@$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS)) $(if $(JSON),--json)

backlog: JOBS = 10000000
backlog: $(READY) ## pages of a claim, throughput, CPU and latency with JOBS=10000000 due
	@$(BIN)/python -m tests.bench.flat --jobs $(JOBS)
	@$(BIN)/python -m tests.bench.troubles --backlog $(JOBS)

troubles: $(READY) ## throughput, CPU and latency with a backlog, broken and many destinations, vacuum held back; QUICK=1
	@$(BIN)/python -m tests.bench.troubles $(if $(QUICK),--quick)

profile: $(READY) ## where a replica's CPU time goes; LANES=20 or LANES=each
	@$(BIN)/python -m tests.bench.profile $(if $(LANES),--lanes $(LANES))

model: ## the lane protocol's model, checked exhaustively by Spin (Debian: apt-get install spin gcc)
	@sh tests/model/check.sh

histories: $(READY) ## COUNT=2000 forced interleavings, with the claim stopped inside its statement; SEED=
	@$(BIN)/python -m tests.histories --count $(COUNT) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)

lanes: $(READY) ## bursts, locked and hot lanes, and what ordering costs; QUICK=1 for the short form
	@$(BIN)/python -m tests.bench.lanes $(if $(QUICK),--quick) $(if $(JSON),--json)

fuzz: $(READY) ## CASES=6000 of hostile rows, configuration, answers, requests and arguments; SEED= JSON=1
	@$(BIN)/python -m tests.fuzz --cases $(CASES) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)

faults: $(READY) ## the network and PostgreSQL fail under load, as root (Debian: iproute2 iptables); QUICK=1 ONLY='silent or killed'
	@$(BIN)/pytest $(addprefix tests/faults/,network.py postgresql.py disks.py defaults.py) $(if $(QUICK),-m quick) $(if $(ONLY),-k '$(ONLY)')

resources: $(READY) ## descriptors, memory, clock and log that fail a replica, as root (Debian: iproute2 faketime); QUICK=1
	@$(BIN)/pytest -q $(addprefix tests/faults/,resources.py memory.py) $(if $(QUICK),-m quick)

soak: $(READY) ## MINUTES=10 of load with restarts: nothing lost, and everything flat; SEED= JSON=1
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)

chaos: SECONDS = 60
chaos: $(READY) ## faults drawn from a SEED for SECONDS=60 against three replicas; JSON=1
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)

lint: ruff types floors migrations ## every static check

ruff: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

floors: $(READY)
	@$(BIN)/lint-imports

migrations: $(READY)
	@$(BIN)/squawk schema/*.sql

docs: $(READY) ## write docs/configuration.md from the settings and docs/cli.md from the parser
	@$(BIN)/python -c 'from relay.config import reference; print(reference(), end="")' > docs/configuration.md
	@$(BIN)/python -c 'from relay import cli, manual; print(manual.manual(cli.main, cli.EXIT_CODES), end="")' > docs/cli.md

wheel: $(READY) ## build dist/*.whl and dist/*.tar.gz
	@$(BIN)/python -m hatchling build

# For maintainers; needs uv. No index address may get into these files.
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate
requirements: ## renew every requirements*.txt: to develop, to run the demo, to run the relay, to run the peers
	$(COMPILE) pyproject.toml --extra demo --extra grpc --group dev -o requirements-dev.txt
	$(COMPILE) pyproject.toml --extra demo --group build -c requirements-dev.txt -o requirements-demo.txt
	$(COMPILE) pyproject.toml -c requirements-dev.txt -o requirements.txt
	$(COMPILE) --group pyproject.toml:peers -c requirements-dev.txt -o tests/bench/peers/requirements.txt

clean: ## remove .venv, dist and caches
	@rm -rf .venv dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
