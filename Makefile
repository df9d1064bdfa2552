# The two commands of the README, and those of CONTRIBUTING. Everything is set up by itself in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-faults test-frameworks test-core lint bench pictures soak clean
.DELETE_ON_ERROR:

demo: .venv/demo.done
	$(BIN)/python examples/demo.py

# Side by side: many tests wait, for faults to be noticed and for processes to start.
FAULTS := tests/faults
FRAMEWORKS := tests/integrations tests/torch tests/test_examples.py
test: lint
	$(MAKE) --jobs 3 --output-sync test-faults test-frameworks test-core

test-faults: .venv/test.done
	$(BIN)/python -m pytest $(FAULTS)

test-frameworks: .venv/test.done
	$(BIN)/python -m pytest $(FRAMEWORKS)

test-core: .venv/test.done
	$(BIN)/python -m pytest $(FAULTS:%=--ignore %) $(FRAMEWORKS:%=--ignore %)

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

# One stamp per extra: what is installed already is not installed again.
.venv/%.done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
