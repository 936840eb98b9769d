# What one does with a checkout. The first `make` of a target sets everything up in .venv; nothing is
# installed outside the checkout.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONLY ?=
ROUNDS ?= 100
SEED ?= 1
ROLLS ?= 100000
SEEDS ?=
CHANCE ?=
EVERY ?= 1
SECONDS ?= 600

NATIVE := $(shell find store_native/src store_native/Cargo.toml store_native/Cargo.lock -type f 2>/dev/null)
# One way through each package: broker, client and command line, source, sink, ledger, a group's job.
FAST := tests/integration/test_http_produce.py tests/integration/test_client_calls.py \
	tests/integration/test_cli_produce_tail.py \
	tests/integration/test_source_table.py \
	tests/integration/test_sink_columns.py::test_every_column_arrives \
	tests/integration/test_ledger_spark.py::test_a_batch_is_appended_once_per_checkpoint \
	tests/integration/test_ledger_consume.py::test_a_vectorised_handler_over_http_with_a_tag_filter
# Workers for the tests, of which many wait: for processes, clocks, disks.
HALF_MORE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)))

# Rust's tests that run a whole workload for each call of a disk: `make test` has them.
NOT_FAST := test_a_disk_that_lies_about_one_kind_of_sync_is_noticed \
	test_whichever_sync_fails_what_it_was_about_is_written_again \
	test_whichever_call_of_the_disk_fails_nothing_acknowledged_is_lost_and_all_heals

# Modules of tests beside each other, the longest first; WORKERS= is one after another. Of three workers two have Spark.
SESSIONS := -p tests.support.session_schedule
WORKERS := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
CARGO_TEST := cargo test --locked --no-default-features --manifest-path store_native/Cargo.toml
NIGHTLY_TEST := $(patsubst cargo,cargo +nightly,$(CARGO_TEST))
# Rust's tests beside Python's: both wait for disks and clocks often. What Rust's said comes behind.
define BESIDE
	$(CARGO_TEST) --quiet --no-run
	@said=$$(mktemp); \
	$(CARGO_TEST) --quiet $(2) > "$$said" 2>&1 & rust=$$!; \
	trap 'kill $$rust 2> /dev/null || true; rm -f "$$said"' EXIT; \
	failed=0; $(BIN)/python -m pytest $(WORKERS) --durations=20 --durations-min=10 $(1) || failed=$$?; \
	wait $$rust || failed=$$?; \
	cat "$$said"; exit $$failed
endef
# Test binaries in which threads of a store meet.
THREADED := memory failure replication store state confirmed queues recovery

# Hundreds of processes start in a run: what they import is compiled once, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test test-all test-fast check check-spark-versions check-lowest-versions bench chaos fuzz mutants lock wheel clean

help:
	@echo "make quickstart   the whole path on 336,776 real flights (Python, Java 17+, Rust)"
	@echo "make test         what must pass before a change lands"
	@echo "make test-all     all tests: with those marked nightly, which kill, repeat and vary more"
	@echo "make test-fast    unit and Rust tests, one integration test of each package"
	@echo "make check        ruff, mypy, clippy, formats, import rules"
	@echo "make check-spark-versions   the path on PySpark 4.0 and 4.1, in environments of their own"
	@echo "make check-lowest-versions   the lowest versions that pyproject.toml allows, in environments of their own"
	@echo "make bench        the measurements of docs/performance.md [ONLY=P7] (Maven)"
	@echo "make chaos        kill -9 under load; rolls of the log    [ONLY=R1 ROUNDS=100 SEED=1] [ONLY=R2 ROUNDS=100 BROKERS=3 MIN_IN_SYNC=2] [ONLY=R3 ROUNDS=100] [ONLY=DRIVER ROUNDS=20] [ONLY=FILES ROUNDS=5] [ONLY=WORKERS ROUNDS=20] [ONLY=ROLL ROLLS=100000] [ONLY=POWER SEEDS=300] [ONLY=SIMULATION SEEDS=10000] [ONLY=CRASHES SEEDS=4 CHANCE=10: of a hundred calls to cut; all take hours] [ONLY=ERRORS SEEDS=2 CHANCE=100] [ONLY=ORDERS] [ONLY=THREADS] [ONLY=MIRI]"
	@echo "make fuzz         bytes of chance against whatever reads bytes [ONLY=record SECONDS=600] (cargo-fuzz, nightly Rust)"
	@echo "make mutants      changes in the code that hurt, one at a time, against their tests [ONLY=path/of/a/file] [EVERY=10: of Python's a sample]"
	@echo "make wheel        dist/lakemq-*.whl"
	@echo "make lock         requirements.lock from pyproject.toml"

$(VENV)/.prerequisites:
	@.ci/prerequisites $(PYTHON) java cargo
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: requirements.lock | $(VENV)/.prerequisites
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.built: pyproject.toml $(NATIVE) | $(VENV)/.installed
	VIRTUAL_ENV=$(CURDIR)/$(VENV) PATH=$(CURDIR)/$(BIN):$$PATH maturin develop --release --locked
	@touch $@

$(VENV)/.built: $(VENV)/.installed

# Without it the tests take longer, and that is all.
$(VENV)/spark-classes.jsa: $(VENV)/.installed .ci/spark-classes | $(VENV)/.built
	.ci/spark-classes $@

quickstart: $(VENV)/.built
	$(BIN)/lakemq quickstart

# With Maven installed, the tests against RocketMQ's own broker run too.
test test-all: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(HALF_MORE)
test: $(VENV)/.built $(VENV)/spark-classes.jsa
	$(call BESIDE,$(SESSIONS) -m "not nightly",)

test-all: $(VENV)/.built $(VENV)/spark-classes.jsa
	$(call BESIDE,$(SESSIONS),)

# Unit and Rust tests, with a part of their examples and seeds, and one integration test of each package: for every save.
# Meant to stay under 2 minutes on two quiet cores: 1 min 42 s there on 2026-11-27, compiled before (2 min 5 s on another machine).
test-fast: export LAKEMQ_TEST_FAST = 1
test-fast: export PYTEST_XDIST_AUTO_NUM_WORKERS = $(HALF_MORE)
test-fast: export LAKEMQ_LINK_SEEDS = 40
test-fast: export LAKEMQ_SIMULATION_SEEDS = 40
test-fast: export LAKEMQ_RUBBISH_SEEDS = 100
test-fast: export LAKEMQ_CRASH_CHANCE = 2
test-fast: $(VENV)/.built $(VENV)/spark-classes.jsa
	$(call BESIDE,-p tests.support.schedule -m "not long and not nightly" tests/unit $(FAST),-- $(addprefix --skip ,$(NOT_FAST)))

check: $(VENV)/.built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m mypy.stubtest store_native._store
	cargo fmt --manifest-path store_native/Cargo.toml --check
	cargo clippy --locked --manifest-path store_native/Cargo.toml --no-default-features --all-targets -- -D warnings
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --locked --manifest-path store_native/Cargo.toml -- -D warnings

check-spark-versions: $(VENV)/.built
	.ci/spark-version 4.0 pyspark==4.0.4 delta-spark==4.0.1
	.ci/spark-version 4.1 pyspark==4.1.4 delta-spark==4.1.0
	$(BIN)/python -m pytest tests/integration/test_spark_versions.py

# The second part: the floors of deltalake and pyarrow beside Spark, everything else as locked.
check-lowest-versions: $(VENV)/.built
	.ci/lowest-versions
	.ci/spark-version lowest deltalake==1.6.1 pyarrow==21.0.0
	.spark-versions/lowest/bin/python -m pytest tests/unit/delta_tables tests/integration/test_source_table.py \
	    tests/integration/test_ledger_spark.py::test_a_batch_is_appended_once_per_checkpoint \
	    tests/integration/test_ledger_spark.py::test_spark_and_deltalake_answer_the_views_alike

bench: $(VENV)/.built
	@.ci/prerequisites mvn
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

chaos: $(VENV)/.built
	@[[ " R1 R2 R3 DRIVER FILES WORKERS ROLL POWER SIMULATION CRASHES ERRORS ORDERS THREADS MIRI " = *" $(or $(ONLY),R1) "* ]] || { echo "no chaos scenario $(ONLY); there are R1, R2, R3, DRIVER, FILES, WORKERS, ROLL, POWER, SIMULATION, CRASHES, ERRORS, ORDERS, THREADS and MIRI"; exit 2; }
ifneq ($(filter R1,$(or $(ONLY),R1)),)
	$(BIN)/python -m tests.cluster.chaos.r1 --rounds $(ROUNDS) --seed $(SEED)
endif
ifneq ($(filter R2,$(or $(ONLY),R2)),)
	$(BIN)/python -m tests.cluster.chaos.r2 --rounds $(ROUNDS) --seed $(SEED) \
	    --brokers $(or $(BROKERS),2) --min-in-sync $(or $(MIN_IN_SYNC),1)
endif
ifneq ($(filter R3,$(or $(ONLY),R3)),)
	$(BIN)/python -m tests.cluster.chaos.r3 --rounds $(ROUNDS) --seed $(SEED)
endif
ifneq ($(filter DRIVER,$(or $(ONLY),DRIVER)),)
	LAKEMQ_KILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -o long_timeout=7200 tests/cluster/test_driver_killed.py
endif
ifneq ($(filter FILES,$(or $(ONLY),R1)),)
	LAKEMQ_KILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m "" -s -o long_timeout=7200 tests/cluster/test_driver_killed_anywhere.py
endif
ifneq ($(filter WORKERS,$(or $(ONLY),R1)),)
	LAKEMQ_KILL_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -m "" -o long_timeout=7200 tests/cluster/test_workers_killed.py
endif
ifneq ($(filter ROLL,$(or $(ONLY),ROLL)),)
	TMPDIR=$(or $(wildcard /dev/shm),/tmp) LAKEMQ_TEST_ROLLS=$(ROLLS) $(CARGO_TEST) --release --test failure rolls:: -- --nocapture
endif
ifneq ($(filter POWER,$(or $(ONLY),POWER)),)
	LAKEMQ_POWER_SEEDS=$(or $(SEEDS),300) $(CARGO_TEST) --test disks any_call
endif
ifneq ($(filter SIMULATION,$(or $(ONLY),SIMULATION)),)
	LAKEMQ_SIMULATION_SEEDS=$(or $(SEEDS),300) $(CARGO_TEST) --test disks simulation
endif
ifneq ($(filter CRASHES,$(or $(ONLY),R1)),)
	TMPDIR=$(or $(wildcard /dev/shm),/tmp) LAKEMQ_CRASH_CHANCE=$(or $(CHANCE),10) LAKEMQ_CRASH_SEEDS=$(or $(SEEDS),4) $(CARGO_TEST) --test disks crashes:: -- --nocapture
endif
ifneq ($(filter ERRORS,$(or $(ONLY),R1)),)
	TMPDIR=$(or $(wildcard /dev/shm),/tmp) LAKEMQ_ERROR_CHANCE=$(or $(CHANCE),100) LAKEMQ_ERROR_SEEDS=$(or $(SEEDS),2) $(CARGO_TEST) --test disks io_errors:: -- --nocapture
endif
ifneq ($(filter ORDERS,$(or $(ONLY),R1)),)
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=store_native/target/orders $(CARGO_TEST) --test orders
endif
ifneq ($(filter THREADS,$(or $(ONLY),R1)),)
	RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=store_native/target/threads LAKEMQ_TEST_ROLLS=60 $(NIGHTLY_TEST) \
	    -Zbuild-std --target x86_64-unknown-linux-gnu $(addprefix --test ,$(THREADED))
endif
ifneq ($(filter MIRI,$(or $(ONLY),R1)),)
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..8" RUSTFLAGS=-Coverflow-checks=off \
	    CARGO_TARGET_DIR=store_native/target/miri $(subst test,miri test,$(NIGHTLY_TEST)) --test memory
endif

# In a scratch copy, at the lowest priority; a path says which language.
mutants: $(VENV)/.built
ifneq ($(filter-out %.rs,$(or $(ONLY),all)),)
	LAKEMQ_MUTANTS_EVERY=$(EVERY) .ci/mutants-python $(ONLY)
endif
ifneq ($(filter-out %.py,$(or $(ONLY),all)),)
	@[[ ! -e .ci/mutants-rust ]] || .ci/mutants-rust $(ONLY)
endif

# One target after another. What is new goes to store_native/fuzz/found; the corpus of the tree stays as it is.
fuzz:
	@command -v cargo-fuzz > /dev/null || { echo "make fuzz needs: cargo install cargo-fuzz --locked; rustup toolchain install nightly"; exit 2; }
	cd store_native && for target in $(or $(ONLY),$(notdir $(wildcard store_native/fuzz/corpus/*))); do \
	    mkdir -p fuzz/found/$$target; \
	    TMPDIR=$(or $(wildcard /dev/shm),/tmp) cargo +nightly fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- \
	        -max_total_time=$(SECONDS) -max_len=16384 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1; \
	done

wheel: $(VENV)/.installed
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin build --release --locked --out dist

lock:
	uv pip compile pyproject.toml --extra dev --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --python-version 3.11 --universal --output-file requirements.lock

clean:
	rm -rf $(VENV) dist .quickstart .peers store_native/target store_native/_store*.so
