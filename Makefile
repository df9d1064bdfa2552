# The commands of the README and of CONTRIBUTING. Everything is set up by itself in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Or each of the processes that the tests start compiles our source again: a fifth of a second.
export PYTHONDONTWRITEBYTECODE :=
# The threads of torch and NumPy wait in a loop for more work, and so take the CPU from the groups beside them.
export OMP_WAIT_POLICY := passive
export OPENBLAS_THREAD_TIMEOUT := 4

.PHONY: demo docs test test-groups test-all test-often test-pythons test-faults test-integrations test-torch test-jax test-ray test-sources test-diagnose \
	test-engine test-core lint bench bench-grid bench-peers bench-growth bench-skewed bench-check bench-before-after pictures pins release-check soak clean
.DELETE_ON_ERROR:

demo: .venv/demo.done
	$(BIN)/feedline demo

# Side by side: many tests wait, for faults to be noticed and for processes to start.
FAULTS := tests/faults
ENGINE := tests/arena tests/engine tests/loader tests/machine tests/observe tests/supervise tests/workers
INTEGRATIONS := tests/integrations
TORCH := tests/torch src/feedline/torch
JAX := tests/jax src/feedline/jax
RAY := tests/ray
SOURCES := tests/sources src/feedline/sources
DIAGNOSE := tests/diagnose src/feedline/diagnose
# The longest first.
GROUPS := test-torch test-ray test-core test-engine test-sources test-faults test-integrations test-diagnose test-jax
# What each group found, for machines. A make for each run, so that two at a time do not write into one another's.
RESULTS ?= build/test-results
PYTEST = $(BIN)/python -m pytest --junitxml=$(RESULTS)/$@.xml
.venv/all-for-tests.done: .venv/test.done .venv/browser.done .venv/postgresql.done .venv/mariadb.done
	touch $@
test:
	$(MAKE) --jobs 3 .venv/all-for-tests.done
	$(MAKE) --jobs 4 --keep-going --output-sync $(GROUPS) lint

test-groups: .venv/all-for-tests.done
	$(MAKE) --jobs 4 --keep-going --output-sync $(GROUPS)

# Before an issue is called done: every kind of worker everywhere, random examples and many of them, five minutes of faults, every Python.
test-all:
	FEEDLINE_ALL=1 $(MAKE) test
	$(MAKE) soak
	$(MAKE) test-pythons

# After a larger piece of work: is any test red by chance? N runs beside two busy processes, then ONE_CPU runs on one CPU.
N ?= 10
ONE_CPU ?= 1
test-often: .venv/all-for-tests.done
	$(BIN)/python tests/often.py --runs $(N) --one-cpu $(ONE_CPU)

# The core on every Python there is.
test-pythons: .venv/test.done
	$(BIN)/python tests/pythons.py

# Builds wheel and sdist, looks into them, and tries each on every Python there is, in an empty environment.
release-check:
	$(PYTHON) tests/release.py

test-faults: .venv/test.done
	$(PYTEST) $(FAULTS)

test-integrations: .venv/test.done
	$(PYTEST) $(INTEGRATIONS)

# Without Lightning: forking is dear in a process that has imported much.
test-torch: .venv/test.done
	$(PYTEST) $(TORCH)

# JAX has threads of its own and warns of every fork: each test has a process of its own, forked from one that has only imported it.
test-jax: .venv/test.done
	$(PYTEST) $(JAX)

# A Ray of its own, whose threads no forked worker of another test should meet.
test-ray: .venv/test.done
	$(PYTEST) $(RAY)

test-sources: .venv/test.done
	$(PYTEST) $(SOURCES)

test-diagnose: .venv/test.done
	$(PYTEST) $(DIAGNOSE)

SETUP := .venv/test.done
test-engine: $(SETUP)
	$(PYTEST) $(ENGINE)

test-core: $(SETUP)
	$(PYTEST) $(foreach other,$(ENGINE) $(FAULTS) $(INTEGRATIONS) $(TORCH) $(JAX) $(RAY) $(SOURCES) $(DIAGNOSE),--ignore $(other))

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: .venv/test.done
	$(BIN)/python tests/faults/soak.py

# The site, in build/site; no network. Its check is in tests/docs/test_site.py.
docs: .venv/docs.done
	$(BIN)/python docs/make_site.py
	@echo "see build/site/index.html: $(PYTHON) -m http.server --directory build/site"

pictures: .venv/test.done
	$(BIN)/python docs/make_pictures.py

bench: .venv/bench.done
	$(BIN)/python benchmarks/run.py

# Other loaders have an environment of their own. ARGS="--quick" for a look; docs/peers.md.
PEERS := .venv-peers/bin
bench-peers: .venv-peers/peers.done .venv-peers/ffmpeg.done
	PYTHONPATH=src:benchmarks $(PEERS)/python -m peers.run $(ARGS)

bench-growth: .venv/test.done
	PYTHONPATH=src:benchmarks $(BIN)/python benchmarks/growth.py $(ARGS)

# Whole epochs of ordinary loading beside torch, cell by cell: docs/grid.md.
bench-grid: .venv/test.done
	$(BIN)/python benchmarks/grid.py $(ARGS)

# Samples of unequal cost, beside the limit: docs/skewed.md.
bench-skewed: .venv/test.done
	$(BIN)/python benchmarks/skewed.py $(ARGS)

# Is a cell slower than the kept numbers say, or than SINCE=commit, and which commit made it so? Counts instructions (valgrind).
bench-check: .venv/test.done
	$(BIN)/python benchmarks/check.py $(if $(SINCE),--since $(SINCE)) $(ARGS)

# Is anything slower than it was? BEFORE and AFTER are folders of checkouts (git worktree add /tmp/before main). ARGS="--only text".
BEFORE ?= $(error BEFORE=… is missing: the folder of the checkout to compare with)
AFTER ?= .
bench-before-after: .venv/test.done
	$(BIN)/python benchmarks/before_after.py $(BEFORE) $(AFTER) $(ARGS)

# The report is tried in a real browser. Where none can be installed, those tests are skipped and say so.
.venv/browser.done:
	command -v chromium chromium-browser google-chrome || { test "$$(id -u)" = 0 && \
		DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=100 chromium >/dev/null 2>&1; } || \
		echo "no browser could be installed: its tests will be skipped"
	mkdir -p .venv && touch $@

# SQL is tried against a real server, which the tests start themselves. Debian would start one of its own: it is told not to.
.venv/postgresql.done:
	ls /usr/lib/postgresql/*/bin/postgres || command -v postgres || { test "$$(id -u)" = 0 && \
		mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf && \
		DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq --no-install-recommends \
		-o DPkg::Lock::Timeout=100 postgresql >/dev/null 2>&1; } || \
		echo "PostgreSQL could not be installed: its tests will be skipped"
	mkdir -p .venv && touch $@

# As the server of MySQL's tests. This package has no more than the programs: it starts nothing.
.venv/mariadb.done:
	ls /usr/sbin/mariadbd || command -v mariadbd || { test "$$(id -u)" = 0 && \
		DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq --no-install-recommends \
		-o DPkg::Lock::Timeout=100 mariadb-server-core >/dev/null 2>&1; } || \
		echo "MariaDB could not be installed: the tests of MySQL will be skipped"
	mkdir -p .venv && touch $@

.venv-peers/peers.done: benchmarks/requirements-peers.txt pyproject.toml
	test -x $(PEERS)/python || $(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check --no-compile -r benchmarks/requirements-peers.txt -e '.[images]'
	touch $@

# SPDL decodes with FFmpeg's libraries. Without them its decoder is in the table as failed, with the reason.
.venv-peers/ffmpeg.done: .venv-peers/peers.done
	ldconfig -p | grep -q libavfilter || { test "$$(id -u)" = 0 && \
		DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq --no-install-recommends \
		-o DPkg::Lock::Timeout=100 libavfilter8 libavdevice59 >/dev/null 2>&1; } || \
		echo "FFmpeg's libraries could not be installed: SPDL's decoder will fail"
	touch $@

# One stamp per extra: what is installed already is not installed again. Not compiled: most of it is never imported.
# The versions are written down: a release of a linter, an hour old, once made every `make test` red.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
.venv/%.done: pyproject.toml tests/pins.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_INSTALL) -c tests/pins.txt -e '.[$*]'
	touch $@

# The newest versions of what the tests need; `make test` then says whether they will do.
pins:
	rm -rf build/newest && $(PYTHON) -m venv build/newest
	build/newest/bin/python $(PIP_INSTALL) -e '.[test,bench]'
	build/newest/bin/python tests/pins.py

clean:
	rm -rf .venv .venv-peers .venv-pythons build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
