# make test            every check, in environments that it makes itself (kept outside the clone)
# make test-old-torch  with torch 2.9.1, those tests of PyTorch and Lightning that `make test` runs with the newest only
# make demo            train, kill, resume, report
# make bench           what it costs: figures beside their targets
PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# What one test's process has compiled, the next one's need not.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test check test-main test-torch-xla test-newest-jax test-old-torch demo bench envs clean

test: check test-main test-torch-xla test-newest-jax

envs:
	@for name in main torch-xla newest-jax; do $(PYTHON) tools/envs.py $$name; done

check:
	python=$$($(PYTHON) tools/envs.py main) && \
	$$python -m ruff check . && \
	$$python -m mypy && \
	$$python -m mypy tools

# Many tests compare a report with what a script timed itself, and wait more than they compute. They run three at a time,
# and what fails is run once more, alone: a test that is wrong fails again, one that the machine held up does not.
run-tests = { $$python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(1) || \
	$$python -m pytest --last-failed --last-failed-no-failures none $(1); }

test-main:
	python=$$($(PYTHON) tools/envs.py main) && $(call run-tests,tests)

# PyTorch/XLA and the torch that it is tied to: what concerns either, and what their plugins promise.
test-torch-xla:
	export PLUGINS_UNDER_TEST=torch,torch_xla; python=$$($(PYTHON) tools/envs.py torch-xla) && \
	$(call run-tests,$(wildcard tests/test_xla_*.py) $(patsubst %,tests/test_torch_%.py,loop checkpoints data) \
		tests/test_contract.py -k "torch_xla or too_old or core or bit or not contract")

# What test-torch-xla leaves out to be short; for a release.
test-old-torch:
	python=$$($(PYTHON) tools/envs.py torch-xla) && \
	$(call run-tests,$(wildcard tests/test_lightning_*.py) $(patsubst %,tests/test_torch_%.py,startup trainers))

# The newest JAX, on Python 3.12: what concerns either. Tests that need what it lacks (torch) skip themselves and say so.
# Which functions of ours may fail is tried in the main environment, one by one; here, all at once.
test-newest-jax:
	python=$$($(PYTHON) tools/envs.py newest-jax) && \
	$(call run-tests,$(wildcard tests/test_jax_*.py tests/test_flax_*.py tests/test_orbax_*.py) \
		$(patsubst %,tests/test_%.py,contract exit import_watch packaging processes session signals switch) -k "not each_function")

demo:
	@python=$$($(PYTHON) tools/envs.py main) && $$python examples/demo.py

bench:
	@python=$$($(PYTHON) tools/envs.py main) && for benchmark in record start report jax_loop lightning_loop; do \
		echo "== benchmarks/$$benchmark.py"; $$python benchmarks/$$benchmark.py; done

clean:
	rm -rf dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
