# Two commands: `make demo` and `make test`. Both make their own environment first.
.DELETE_ON_ERROR:
.PHONY: demo dist test proof lint environment lock

# Compiled bytecode is what makes the second start of a server several times faster.
unexport PYTHONDONTWRITEBYTECODE

READY := .venv/.ready
INPUTS := pyproject.toml setup.py requirements.lock UPSTREAM.toml scripts/environment \
	$(shell find fork patches -name '*.py')

$(READY): $(INPUTS)
	@scripts/environment
	@touch $@

# The tree under build/editable follows the patches and new files of the overlay.
environment: $(READY)
	@.venv/bin/python -m fork refresh >/dev/null

# make demo MODEL=path/of/a/checkpoint ARGS="--flags --of the-server"
demo: environment
	@.venv/bin/python -m demo $(if $(MODEL),--model "$(MODEL)") -- $(ARGS)

# The wheel of the fork for this Python, in dist/.
dist: environment
	@.venv/bin/python -m fork wheel dist

lint: environment
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

test: environment lint
	.venv/bin/python -m pytest

# Every NVFP4 kernel at every M from 1 to 130, interpreted and emulated, in about an hour;
# then each commit of the exported series with its own tests, in half an hour.
proof: environment
	.venv/bin/python -m pytest -m exhaustive test/sgl_kernel_nvfp4 test/patches

# Pins every dependency of upstream's wheel and of our tools, for all Pythons.
lock:
	scripts/lock
