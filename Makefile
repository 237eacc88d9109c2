# The two commands of the README are `make run` and `make test`; each does all its own set-up.
.PHONY: all install run test test-all check-long clean deps deps-run deps-test format tidy papers

all: deps build/build.ninja
	@cmake --build build --target pando

build/build.ninja:
	@cmake --preset release >/dev/null

deps:
	@scripts/deps build

# With redis-cli, which `make run` tells people to use.
deps-run:
	@scripts/deps run

deps-test:
	@scripts/deps test

run: deps-run
	@$(MAKE) --no-print-directory all
	@scripts/run

test: deps-test
	@scripts/test

test-all: deps-test
	@scripts/test --all

# Many more seeds than the tests take time for.
check-long: all
	@build/pando check --engine sherman --seeds 1..20000 --faults all
	@build/pando check --engine dex --seeds 1..20000 --faults all

# Where: PREFIX (/usr/local), below DESTDIR if that is set.
PREFIX ?= /usr/local
install: deps build/build.ninja
	@cmake -DCMAKE_INSTALL_PREFIX="$(PREFIX)" -S . -B build >/dev/null
	@cmake --build build --target pando pando_shared pando_archive pages
	@DESTDIR="$(DESTDIR)" cmake --install build

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

tidy: deps-test
	@scripts/check-tidy

# The papers' experiments on simulated clusters: docs/results. About an hour and a half, 9 GB of memory.
papers: all
	@scripts/deps papers
	@scripts/papers

clean:
	rm -rf build
