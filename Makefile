# make test    every check, in environments that it makes itself (kept outside the clone)
# make demo    train, kill, resume, report
# make bench   what it costs: figures beside their targets
PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: test check test-main test-newest-jax demo bench envs clean

test: check test-main test-newest-jax

envs:
	@$(PYTHON) tools/envs.py main
	@$(PYTHON) tools/envs.py newest-jax

check:
	python=$$($(PYTHON) tools/envs.py main) && \
	$$python -m ruff check . && \
	$$python -m mypy && \
	$$python -m mypy tools

# Many tests compare a report with what a script timed itself. What fails is run once more, alone: a test that is
# wrong fails again, one that the machine held up does not.
test-main:
	python=$$($(PYTHON) tools/envs.py main) && { $$python -m pytest || $$python -m pytest --last-failed; }

# The newest JAX on Python 3.12; tests that need what it lacks (torch) skip themselves and say so.
test-newest-jax:
	python=$$($(PYTHON) tools/envs.py newest-jax) && { $$python -m pytest || $$python -m pytest --last-failed; }

demo:
	@python=$$($(PYTHON) tools/envs.py main) && $$python examples/demo.py

bench:
	@python=$$($(PYTHON) tools/envs.py main) && for benchmark in record start report jax_loop; do \
		echo "== benchmarks/$$benchmark.py"; $$python benchmarks/$$benchmark.py; done

clean:
	rm -rf dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
