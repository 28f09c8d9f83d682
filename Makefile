# wanhe: one non-recursive makefile. `make help` lists what you can ask for.
#
#   CONFIG=release        default; also asan (address and undefined-behaviour sanitizers), tsan (thread sanitizer; for
#                         test/unit/comm/test_threads alone, it doesn't know OpenMP), debug, fuzz
#   CC=gcc                or clang; objects go to build/CONFIG, or build/CONFIG-clang
#   T=tensor/gemm         only the tests whose path contains this
#   TEXT=file             your own text for `make demo`
#   FUZZ_SECONDS=3        time for each fuzz target

CONFIG ?= release
CC = gcc
PYTHON ?= /usr/bin/python3
FUZZ_SECONDS ?= 3
BUILD := build/$(CONFIG)$(if $(findstring clang,$(CC)),$(if $(filter fuzz,$(CONFIG)),,-clang))
PURE := base ledger mesh arch coll sched config sim plan

CPPFLAGS := -Isrc -I. -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -MMD -MP
CFLAGS := -std=c11 -O2 -g -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
          -Wno-missing-field-initializers $(EXTRA_CFLAGS)
LDLIBS := -lsleef -ljansson -lyaml -lxxhash -lpcre2-8 -lhwloc -lm -ldl
ifneq ($(filter asan fuzz,$(CONFIG)),)
CFLAGS += -O1 -fno-omit-frame-pointer
INSTRUMENT := -fno-sanitize-recover=all -fsanitize=address,undefined
endif
ifeq ($(CONFIG),tsan)
CFLAGS += -O1 -fno-omit-frame-pointer $(if $(findstring gcc,$(CC)),-Wno-tsan)
INSTRUMENT := -fsanitize=thread
endif
ifeq ($(CONFIG),fuzz)
INSTRUMENT := $(INSTRUMENT),fuzzer-no-link
# Parsers never call kernels, and instrumenting those takes clang half a minute.
$(BUILD)/src/tensor/%.o: INSTRUMENT :=
endif
ifeq ($(CONFIG),debug)
CFLAGS += -O0
endif

# The instruction set of a kernel file is in its name; no other file may use one. Fuzzers hardly run kernels: there they needn't be fast.
FAST := $(if $(filter release,$(CONFIG)),-O3)$(if $(filter asan,$(CONFIG)),-O2)
%_avx2.o: CFLAGS += $(FAST) -mavx2 -mfma -mf16c
%_avx512.o: CFLAGS += $(FAST) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
programs = $(patsubst %.c,$(BUILD)/%,$(1))
# Those of the words $(1) that contain $(T).
matching = $(if $(T),$(foreach w,$(1),$(if $(findstring $(T),$(w)),$(w))),$(1))

PURE_OBJECTS := $(call objects,$(wildcard $(PURE:%=src/%/*.c)))
LIB_OBJECTS := $(call objects,$(filter-out src/cli/%,$(wildcard src/*/*.c)))
CLI_OBJECTS := $(call objects,$(wildcard src/cli/*.c))
TEST_OBJECTS := $(call objects,$(wildcard ref/*.c test/support/*.c))
UNIT_TESTS := $(call programs,$(wildcard test/unit/*/test_*.c))
FUZZERS := $(call programs,$(wildcard test/fuzz/fuzz_*.c))
BENCHES := $(call programs,$(wildcard bench/*/bench_*.c))
E2E_FULL := $(wildcard test/e2e/full_*.sh)
E2E := $(filter-out $(E2E_FULL),$(wildcard test/e2e/*.sh))

all: $(BUILD)/libwanhe.a $(BUILD)/libwanhe-plan.a $(if $(CLI_OBJECTS),wanhe) ## the program ./wanhe and its libraries

wanhe: $(BUILD)/wanhe
	cp $< $@

# The half that decides and does nothing (no files, threads, clock) links alone; test/e2e/plan_links_alone.sh proves it.
$(BUILD)/libwanhe-plan.a: $(PURE_OBJECTS)
$(BUILD)/libwanhe.a: $(LIB_OBJECTS)

# What only tests and benches link: the reference trainer and test/support.
$(BUILD)/libtest.a: $(TEST_OBJECTS)

# An archive is also made anew when a source file has come or gone.
$(BUILD)/lib%.a: $(BUILD)/sources
	@rm -f $@ && ar rcs $@ $(filter %.o,$^)

$(BUILD)/sources: FORCE
	@mkdir -p $(@D) && echo $(LIB_OBJECTS) $(TEST_OBJECTS) | cmp -s - $@ || echo $(LIB_OBJECTS) $(TEST_OBJECTS) >$@
FORCE:

$(BUILD)/wanhe: $(CLI_OBJECTS) $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) $(INSTRUMENT) -o $@ $^ $(LDLIBS)

$(BUILD)/%.o: %.c Makefile | build/packages-checked
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(INSTRUMENT) -c -o $@ $<

# Says once, in one line, what to install, instead of a compiler error about a header.
build/packages-checked:
	@tools/deps.sh --check build && mkdir -p build && touch $@

# test_*_noalloc.c counts the calls of malloc and its kin (test/support/alloc_count.h).
WRAPPED := malloc calloc realloc aligned_alloc posix_memalign free
%_noalloc: LDFLAGS += $(WRAPPED:%=-Wl,--wrap=%)
%/comm/test_wake: LDFLAGS += -Wl,--wrap=wh_futex_wait -Wl,--wrap=wh_clock_ns

$(BUILD)/test/unit/%: $(BUILD)/test/unit/%.o $(BUILD)/libtest.a $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) $(INSTRUMENT) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

$(BUILD)/test/fuzz/%: $(BUILD)/test/fuzz/%.o $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) $(INSTRUMENT) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libtest.a $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) $(INSTRUMENT) -o $@ $^ $(LDLIBS)

demo: ## train a small model on the King James Bible (or TEXT=file) for two minutes, then let it write
	@tools/deps.sh build $(if $(TEXT),,demo)
	@$(MAKE) -s all $(if $(TEXT),,data)
	@tools/demo.sh $(TEXT)

data: data/kjv-train.txt data/tiny.txt ## text to train on: data/kjv-*.txt, data/tiny.txt

data/kjv-train.txt: tools/kjv_text.sh
	tools/kjv_text.sh data

data/tiny.txt: tools/tiny_text.sh
	@mkdir -p data
	tools/tiny_text.sh 65536 >$@

test: ## everything that must hold before a commit; last line "N passed, N failed"
	@MAKE='$(MAKE)' CC='$(CC)' tools/test.sh

test-all: ## the same plus the other compiler, test matrices, longer fuzzing and lint
	@MAKE='$(MAKE)' CC='$(CC)' FUZZ_SECONDS=$(if $(filter command line environment,$(origin FUZZ_SECONDS)),$(FUZZ_SECONDS),60) tools/test.sh all

unit: $(call matching,$(UNIT_TESTS)) ## unit tests; T=tensor/gemm selects
	@tools/run_tests.sh "unit ($(BUILD:build/%=%))" $(BUILD)/log $^

e2e: all ## end-to-end scripts test/e2e/*.sh; T=... selects
	@BUILD=$(BUILD) CC=$(CC) tools/run_tests.sh e2e build/e2e/log $(call matching,$(E2E))

e2e-full: all ## the long ones, test/e2e/full_*.sh
	@BUILD=$(BUILD) CC=$(CC) TEST_SECONDS=1800 TEST_JOBS=1 tools/run_tests.sh e2e-full build/e2e/log $(call matching,$(E2E_FULL))

fuzz: ## each fuzz target for FUZZ_SECONDS
	@$(MAKE) CONFIG=fuzz CC=clang fuzz-run

fuzz-run: $(call matching,$(FUZZERS))
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/run_fuzz.sh $^

bench: $(BENCHES) all ## speed against PyTorch, BLAS and the machine's limits; writes bench/results
	@tools/deps.sh build bench
	@bench/run.sh $(call matching,$(BENCHES) bench/step bench/dp)

lint: ## formatting, layers, headers, banned calls, sizes
	@CC='$(CC)' CPPFLAGS='$(filter-out -MMD -MP,$(CPPFLAGS))' tools/lint/lint.sh

format: ## rewrite the sources as `make lint` wants them
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

help: ## this text
	@tools/help.sh Makefile

clean: ## remove everything that was built
	rm -rf build wanhe

.PHONY: all demo data test test-all unit e2e e2e-full fuzz fuzz-run bench lint format help clean FORCE

-include $(shell find build -name '*.d' 2>/dev/null)
