# Three commands do everything on a fresh machine with Python 3.11+, make and git:
#   make quick   installs what needs no TensorFlow into .venv-quick, and tests that
#   make demo    installs into .venv and trains with two workers
#   make test    installs into .venv and passes all the tests

PYTHON ?= python3
PIP = pip install --quiet --disable-pip-version-check --no-compile
# uv takes seconds where pip takes a minute, but it does not read pip's settings, such as the index
# of packages. Where uv fails, pip is used instead. `@D` is the environment.
INSTALL = .venv/bin/uv pip install --quiet --python $(@D)/bin/python $(WANTED) || \
	$(@D)/bin/$(PIP) $(WANTED)
# How many files of tests run at a time: more than there are CPUs, as tests also wait.
# tests/conftest.py has the longest run first.
FILES = 3
PYTEST = python -m pytest --numprocesses $(FILES) --dist loadfile --no-loadscope-reorder
# `make test` runs for forty minutes with real processes, signals and clocks on a machine that others
# may use too. A test that fails there is tried twice more, six tries in all, and is listed with its
# traceback below "rerun test summary info": one that then passes is still a defect to be explained.
AGAIN = --reruns 2 --max-suite-reruns 6 --rerun-show-tracebacks
# Debian's packages that the tests need, each with a program of it.
PACKAGES = chromium:chromium iproute2:ip iptables:iptables munge:munged openssh-client:ssh \
	openssh-server:sshd slurm-wlm:slurmctld
# Python compiles a module when it is first imported, and keeps that. A third of what pip installs
# is ever imported, and pip would compile everything; with this variable set, each of thousands of
# processes would compile what it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo quick test check fix lint unit others colab ray nightly next gpu docs site words pictures film notebooks lab release clean

demo: .venv/demo
	.venv/bin/mwmagic demo

# The rooms without processes, which need no TensorFlow: a first look at the project.
QUICK = $(addprefix tests/,model gang cells logs record words diagnosis test_rooms.py test_public.py)
quick: FILES = 2
quick: .venv-quick/test
	.venv-quick/bin/$(PYTEST) -m "not slow" $(QUICK)

test:
	+$(MAKE) --jobs packages .torch/tried .venv/test
	+$(MAKE) --jobs lint site unit others

# Beside the unit tests, so that no CPU is idle while one of them waits. What each prints
# appears when it ends.
others:
	+$(MAKE) --jobs .venv-colab/test .venv-ray/test .venv-next/test
	+$(MAKE) --jobs=1 --keep-going --output-sync=target colab ray nightly

# Style, types, links and the fast tests: for after each edit.
check: lint site
	.venv/bin/$(PYTEST) -m "not slow"

# Formats, corrects what ruff can correct, and writes what is generated from the code.
fix: .venv/test
	.venv/bin/ruff check --fix-only --exit-zero .
	.venv/bin/ruff format .
	+$(MAKE) docs words

lint: .venv/test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# `make demo`'s test runs the quickstart here, and nbval runs it with Colab's versions.
unit: .venv/test .torch/tried packages
	.venv/bin/$(PYTEST) $(AGAIN) --deselect "tests/notebooks/test_notebooks.py::test_nbval_passes[quickstart]"

# The versions that Colab ships, in an environment of their own. Of Keras's rows two workers show
# what another version changes; three workers, several devices and tf-keras are tried above.
colab: FILES = 1
colab: .venv-colab/test
	.venv-colab/bin/$(PYTEST) $(AGAIN) -k "not three and not keras2 and not keras_2" \
	  tests/magics tests/dashboard tests/worker/test_downloads.py tests/worker/test_iterators.py \
	  tests/recovery/test_collectives.py tests/test_live_training.py \
	  "tests/test_live_recovery.py::test_training_goes_on_after[2-an error in batch 3]" \
	  $(addprefix tests/repairs/test_keras_,install.py unknown.py numbers.py alone.py reading.py saving.py scalars.py) \
	  "tests/notebooks/test_notebooks.py::test_nbval_passes[quickstart]"

# The nightly build of Keras, and the release candidate of TensorFlow, that were tried last: whether
# the repairs know them, and Keras's rows on two workers.
nightly: FILES = 1
nightly: .venv-next/test
	.venv-next/bin/$(PYTEST) $(AGAIN) -k "not three and not keras2 and not keras_2" \
	  $(addprefix tests/repairs/test_keras_,install.py unknown.py numbers.py)

# The same with all that the repairs' tests try, and with the newest Keras and TensorFlow there are.
next:
	rm -rf .venv-newest
	$(MAKE) .venv-newest/test
	.venv-newest/bin/$(PYTEST) -k "not keras2 and not keras_2" tests/repairs

# A real Ray of three nodes. Their workers are those of `.venv`, which has TensorFlow.
ray: .venv-ray/test .venv/test packages
	.venv-ray/bin/python -m pytest $(AGAIN) tests/engines/test_ray.py tests/engines/test_matrix.py

# What needs a GPU; elsewhere each test says why it is skipped. Only where the driver lists a GPU
# is TensorFlow installed with NVIDIA's libraries, which are gigabytes.
GPU_VENV = $(if $(shell nvidia-smi --list-gpus 2>/dev/null),.venv-gpu,.venv)
gpu:
	$(MAKE) $(GPU_VENV)/test
	$(GPU_VENV)/bin/python -m pytest -m gpu tests/test_gpu.py

# The pages that are generated from the code.
docs: .venv/test
	.venv/bin/python -m docs.pages

# All pages as a site in site/, whose first one is site/index.html. A link that leads nowhere is an
# error.
site: .venv/test
	.venv/bin/sphinx-build --quiet --fail-on-warning --keep-going docs site

# What tests/words/golden.txt holds of everything that is said about failures.
words: .venv/test
	.venv/bin/python tests/words/golden.py

# Executes the notebooks and stores their results in them.
notebooks: .venv/test .torch/tried
	PYTHONPATH=$(CURDIR)/.torch .venv/bin/python tests/notebooks/storing.py

# The pictures of README and docs, and the README's film, from a real JupyterLab.
pictures: .venv/test packages
	.venv/bin/python tests/browser/pictures.py

film: .venv/test packages
	.venv/bin/python tests/browser/film.py

lab: .venv/demo
	.venv/bin/jupyter lab notebooks/quickstart.ipynb

# The sdist, the wheel and the notes in dist/, tried with several versions of Python, with Colab's
# versions, and without TensorFlow. Publishing is left to a person.
release: .venv-release/test
	.ci/release

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/bin/uv: .venv/bin/python
	.venv/bin/$(PIP) uv || echo "uv cannot be installed here: pip is used instead, which takes longer"

.venv/demo: WANTED = --editable ".[tensorflow,lab,demo]"
.venv/demo: .venv/bin/uv pyproject.toml
	$(INSTALL)
	touch $@

.venv/test: WANTED = --editable ".[tensorflow,lab,demo,test,docs]"
.venv/test: .venv/bin/uv pyproject.toml
	$(INSTALL)
	touch .venv/demo $@

.venv-quick/test: WANTED = --editable . hypothesis numpy pytest pytest-timeout pytest-xdist tqdm
.venv-quick/test: .venv/bin/uv pyproject.toml
	$(PYTHON) -m venv .venv-quick
	$(INSTALL)
	touch $@

.venv-colab/test: WANTED = --constraint tests/colab/constraints.txt --editable ".[tensorflow,demo]" \
	hypothesis nbval pytest pytest-rerunfailures pytest-timeout pytest-xdist
.venv-colab/test: .venv/bin/uv tests/colab/constraints.txt pyproject.toml
	$(PYTHON) -m venv .venv-colab
	$(INSTALL)
	touch $@

BESIDE_KERAS = --editable . hypothesis pytest pytest-rerunfailures pytest-timeout pytest-xdist scikit-learn tensorboard
.venv-next/test: WANTED = --requirement tests/next/requirements.txt $(BESIDE_KERAS)
.venv-next/test: .venv/bin/uv tests/next/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-next
	$(INSTALL)
	touch $@

# A version that names a pre-release allows others. The nightly build comes last, as a released
# Keras, where TensorFlow asks for one, has the same files.
.venv-newest/test: WANTED = "keras-nightly>=3.16.0.dev0" "tensorflow>=2.22.0rc0" $(BESIDE_KERAS)
.venv-newest/test: .venv/bin/uv pyproject.toml
	$(PYTHON) -m venv .venv-newest
	$(INSTALL)
	.venv-newest/bin/$(PIP) --force-reinstall --no-deps --pre keras-nightly
	touch $@

.venv-ray/test: WANTED = --editable ".[ray]" pytest pytest-rerunfailures pytest-timeout
.venv-ray/test: .venv/bin/uv pyproject.toml
	$(PYTHON) -m venv .venv-ray
	$(INSTALL)
	touch $@

.venv-release/test: WANTED = build check-wheel-contents towncrier twine
.venv-release/test: .venv/bin/uv
	$(PYTHON) -m venv .venv-release
	$(INSTALL)
	touch $@

.venv-gpu/test: WANTED = --editable ".[demo,test]" "tensorflow[and-cuda]>=2.16" tf-keras
.venv-gpu/test: .venv/bin/uv pyproject.toml
	$(PYTHON) -m venv .venv-gpu
	$(INSTALL)
	touch $@

# PyTorch's edition for the CPU, if pip finds it, in a folder of its own; the one that it finds
# everywhere brings gigabytes for GPUs.
.torch/tried: | .venv/bin/python
	.venv/bin/$(PIP) --target .torch "torch==2.13.0+cpu" || \
	  (rm -rf .torch; echo "no PyTorch for the CPU: its notebook is tested without")
	mkdir -p .torch && touch $@

.PHONY: packages
packages:
	@PATH=$$PATH:/usr/sbin:/sbin; for one in $(PACKAGES); do \
	  command -v $${one#*:} >/dev/null || missing="$$missing $${one%:*}"; done; \
	[ -z "$$missing" ] || (echo "installing$$missing for the tests" && \
	  SUDO=$$( [ "$$(id -u)" = 0 ] || echo "sudo -n" ) && \
	  $$SUDO apt-get -qq update && $$SUDO apt-get -qq install --yes --no-install-recommends $$missing \
	    >/dev/null) || \
	  (echo "the tests need$$missing: install and try again" && exit 1)

clean:
	rm -rf .venv .venv-quick .venv-colab .venv-ray .venv-next .venv-newest .venv-gpu .venv-release \
	  .torch dist site mwmagic-demo
