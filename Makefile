# The two commands of the README, and those of CONTRIBUTING. Everything is set up by itself in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Or each of the processes that the tests start compiles our source again: a fifth of a second.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-faults test-integrations test-torch test-sources test-diagnose test-core lint bench bench-peers bench-growth \
	pictures soak clean
.DELETE_ON_ERROR:

demo: .venv/demo.done
	$(BIN)/feedline demo

# Side by side: many tests wait, for faults to be noticed and for processes to start.
FAULTS := tests/faults
INTEGRATIONS := tests/integrations tests/test_examples.py
TORCH := tests/torch src/feedline/torch
SOURCES := tests/sources src/feedline/sources
DIAGNOSE := tests/diagnose src/feedline/diagnose
test:
	$(MAKE) --jobs 3 .venv/test.done .venv/browser.done .venv/postgresql.done
	$(MAKE) --jobs 4 --keep-going --output-sync test-faults test-torch test-core test-diagnose test-sources test-integrations lint

test-faults: .venv/test.done
	$(BIN)/python -m pytest $(FAULTS)

test-integrations: .venv/test.done
	$(BIN)/python -m pytest $(INTEGRATIONS)

# Without Lightning: forking is dear in a process that has imported much.
test-torch: .venv/test.done
	$(BIN)/python -m pytest $(TORCH)

test-sources: .venv/test.done
	$(BIN)/python -m pytest $(SOURCES)

test-diagnose: .venv/test.done
	$(BIN)/python -m pytest $(DIAGNOSE)

test-core: .venv/test.done
	$(BIN)/python -m pytest $(foreach other,$(FAULTS) $(INTEGRATIONS) $(TORCH) $(SOURCES) $(DIAGNOSE),--ignore $(other))

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: .venv/test.done
	$(BIN)/python tests/faults/soak.py

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
.venv/%.done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[$*]'
	touch $@

clean:
	rm -rf .venv .venv-peers build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
