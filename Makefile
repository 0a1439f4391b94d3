# Two commands: `make demo` and `make test`. Both make their own environment first.
.DELETE_ON_ERROR:
.PHONY: demo dist test proof lint environment lock

# Compiled bytecode is what makes the second start of a server several times faster.
unexport PYTHONDONTWRITEBYTECODE

# make test UPSTREAM=0.5.22: the same on another release that UPSTREAM.toml pins.
UPSTREAM ?=
VENV := .venv$(addprefix -,$(UPSTREAM))
LOCK := requirements$(addprefix -,$(UPSTREAM)).lock
export SGLANG_UPSTREAM_VERSION := $(UPSTREAM)

READY := $(VENV)/.ready
INPUTS := pyproject.toml setup.py $(LOCK) UPSTREAM.toml scripts/environment \
	$(shell find fork patches -name '*.py')

$(READY): $(INPUTS)
	@scripts/environment $(VENV) $(LOCK)
	@touch $@

# The tree under build/editable follows the patches and new files of the overlay.
environment: $(READY)
	@$(VENV)/bin/python -m fork refresh >/dev/null

# make demo MODEL=path/of/a/checkpoint ARGS="--flags --of the-server"
demo: environment
	@$(VENV)/bin/python -m demo $(if $(MODEL),--model "$(MODEL)") -- $(ARGS)

# The wheels of the fork for every Python and platform, checksums and a bill of
# materials, in dist/. `python -m fork wheel` builds the one for this Python alone.
dist: environment
	@$(VENV)/bin/python -m fork release dist

lint: environment
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: environment lint
	$(VENV)/bin/python -m pytest

# Every NVFP4 kernel at every M from 0 to 130, interpreted and emulated: many products of
# small matrices, for which the threads of BLAS would wait longer than they work;
# then each commit of the exported series with its own tests, NEXTN against the alias with
# 1, 2, 3 and 5 steps, and odd checkpoints against their plain twins.
proof: environment
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
		$(VENV)/bin/python -m pytest -m exhaustive test/sgl_kernel_nvfp4
	$(VENV)/bin/python -m pytest -m exhaustive test/patches test/server

# Pins every dependency of upstream's wheel and of our tools, for all Pythons.
lock:
	scripts/lock
