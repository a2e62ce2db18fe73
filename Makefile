# `make validate` and `make test` are all a fresh machine needs.
PYTHON ?= $(or $(shell command -v python3.11),python3)
# make test TORCH=2.14.1: with another torch, in an environment of its own.
TORCH ?=
VENV ?= $(if $(TORCH),build/venv-torch-$(TORCH),.venv)
JOBS ?= auto
PYTEST_ARGS ?=
VALIDATE_ARGS ?=
SECONDS ?= 60
FUZZ_ARGS ?=
OCLGRIND_ARGS ?=
SANITIZE_ARGS ?=
GPU_ARGS ?=
LIBRARIES_VENV ?= build/libraries-venv

python := $(VENV)/bin/python
tools := tools/setup_environment.py tools/build_requirements.py
lint_python := $(VENV)/.lint-environment
docs_python := $(VENV)/.docs-environment
build_environment := $(VENV)/.build-environment
test_environment := $(VENV)/.test-environment
editable := $(VENV)/.editable-install
torch_option := $(if $(TORCH),--torch $(TORCH))
libraries := $(LIBRARIES_VENV)/.installed

.PHONY: help build test test-libraries test-rusticl fuzz validate oclgrind sanitize wheel docs lint format clean gpu-lab gpu-gate
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

validate: $(editable) ## compare whole networks on every OpenCL device with the CPU
	$(python) validate/run_all.py $(VALIDATE_ARGS)

test: $(editable) ## run the test suite on every OpenCL driver
	$(python) -m pytest -n $(JOBS) $(PYTEST_ARGS) || failed=1; \
	$(python) -m pytest -n $(JOBS) --gpu-class $(PYTEST_ARGS) || failed=1; \
	$(python) -m pytest -n $(JOBS) --guard $(PYTEST_ARGS) || failed=1; \
	$(python) -m pytest -n $(JOBS) --guard --gpu-class $(PYTEST_ARGS) && test -z "$$failed"

# Needs Debian's mesa-opencl-icd. Not yet in `make test`: docs/lab/rusticl.md has what fails.
test-rusticl: $(editable) ## run the kernel tests for GPUs on Mesa's llvmpipe, which has no float64
	RUSTICL_ENABLE=llvmpipe TORCH_OPENCL_TEST=rusticl $(python) -m pytest -n $(JOBS) --gpu-class \
		validate/ops validate/runtime/test_without_float64.py $(PYTEST_ARGS)

# An environment of its own: the libraries would bring their versions of everything.
test-libraries: $(libraries) | build ## run the recipes of docs/libraries
	PYTHONPATH=python $(LIBRARIES_VENV)/bin/python -m pytest -p no:cacheprovider validate/libraries $(PYTEST_ARGS)

fuzz: $(editable) ## run random programs on every OpenCL driver for SECONDS each
	$(python) validate/run_fuzz.py --device all --seconds $(SECONDS) $(FUZZ_ARGS)

oclgrind: $(editable) ## look for races and accesses out of bounds in a simulator
	$(python) validate/run_oclgrind.py $(OCLGRIND_ARGS)

sanitize: $(editable) ## run the runtime's tests with address and thread sanitizers
	$(python) validate/run_sanitizers.py $(SANITIZE_ARGS)

build: $(build_environment) ## build the extension in place
	@$(python) setup.py -q build_ext --inplace

wheel: $(editable) ## build a wheel and use it in another environment
	$(python) validate/packaging/check_wheel.py

gpu-lab: $(editable) ## judge the kernels for GPUs without one: docs/gpu.md
	PYTHONPATH=benchmarks $(python) -m gpu.lab $(GPU_ARGS)

gpu-gate: $(editable) ## compile the kernels for GPUs; no spills, no new private memory
	PYTHONPATH=benchmarks $(python) -m gpu.lab --gate $(GPU_ARGS)

docs: $(docs_python) ## build the pages as a site, build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

# OpenCL C is left alone: clang-format takes kernel attributes for functions.
lint: $(lint_python) ## check style
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	git ls-files '*.cpp' '*.h' | xargs $(VENV)/bin/clang-format --dry-run -Werror

format: $(lint_python) ## rewrite the files in the project's style
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	git ls-files '*.cpp' '*.h' | xargs $(VENV)/bin/clang-format -i

clean: ## remove what a build made; the virtual environment stays
	rm -rf build dist python/*.egg-info python/torch_opencl/_generated
	rm -f python/torch_opencl/_C*.so $(editable)

$(lint_python): pyproject.toml $(tools)
	@$(PYTHON) tools/setup_environment.py --venv $(VENV) --only lint
	@touch $@

$(docs_python): pyproject.toml $(tools)
	@$(PYTHON) tools/setup_environment.py --venv $(VENV) --only docs
	@touch $@

$(build_environment): pyproject.toml $(tools)
	@$(PYTHON) tools/setup_environment.py --venv $(VENV) $(torch_option) --only build
	@touch $@

$(test_environment): pyproject.toml $(tools)
	@$(PYTHON) tools/setup_environment.py --venv $(VENV) $(torch_option)
	@touch $@ $(build_environment)

$(libraries): $(test_environment) validate/libraries/requirements.txt
	@echo "== installing libraries into $(LIBRARIES_VENV)"
	@mkdir -p $(@D) && cp -a $(VENV)/. $(LIBRARIES_VENV)
	@$(LIBRARIES_VENV)/bin/python -m pip install -q --disable-pip-version-check -c $(VENV)/constraints.txt \
		-r validate/libraries/requirements.txt
	@touch $@

# Built before, where its progress can be seen; pip finds nothing left to do.
$(editable): pyproject.toml setup.py $(test_environment) | build
	@echo "== installing torch_opencl into $(VENV)"
	@$(python) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
