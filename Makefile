# wanhe: one non-recursive makefile. `make help` lists what you can ask for.
#
#   CONFIG=release (default) | asan (address + undefined behaviour sanitizers) | debug      objects go to build/$(CONFIG)
#   T=tensor/gemm    only the tests whose path contains this

CONFIG ?= release
CC = gcc
BUILD := build/$(CONFIG)
PURE := base ledger mesh arch coll sched sim plan

PACKAGES := jansson yaml-0.1 libxxhash libpcre2-8
CPPFLAGS := -Isrc -D_GNU_SOURCE -DPCRE2_CODE_UNIT_WIDTH=8 -MMD -MP
CFLAGS := -std=c11 -O2 -g -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
          -Wno-missing-field-initializers $(EXTRA_CFLAGS)
LDLIBS := -lsleef -ljansson -lyaml -lxxhash -lpcre2-8 -lm
ifeq ($(CONFIG),asan)
CFLAGS += -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
endif
ifeq ($(CONFIG),debug)
CFLAGS += -O0
endif

# The instruction set of a kernel file is in its name; no other file may use one.
%_avx2.o: CFLAGS += -O3 -mavx2 -mfma -mf16c
%_avx512.o: CFLAGS += -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512

SOURCES := $(wildcard src/*/*.c)
PURE_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(PURE:%=src/%/*.c)))
LIB_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out src/cli/%,$(SOURCES)))
CLI_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cli/*.c))
UNIT_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard test/unit/*/test_*.c))

all: wanhe
.PHONY: all

wanhe: $(BUILD)/wanhe
	cp $< $@

$(BUILD)/libwanhe-plan.a: $(PURE_OBJECTS)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/libwanhe.a: $(LIB_OBJECTS)
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/wanhe: $(CLI_OBJECTS) $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/test/unit/%: $(BUILD)/test/unit/%.o $(BUILD)/libwanhe.a
	$(CC) $(CFLAGS) -o $@ $^ -lcmocka $(LDLIBS)

unit: $(filter $(if $(T),%,%),$(UNIT_TESTS))
	@tools/run_unit.sh $(BUILD) $(T)
.PHONY: unit

clean:
	rm -rf build wanhe
.PHONY: clean

-include $(shell find build -name '*.d' 2>/dev/null)
