# SPDX-License-Identifier: MIT
#
# The front door. User space is built by meson, the kernel module by kbuild; this file only
# knows how to start them. Everything that is built or downloaded lands below $(B).

B           ?= build
PREFIX      ?= /usr/local
DESTDIR     ?=
KDIR        ?= /lib/modules/$(shell uname -r)/build
MESON_FLAGS ?=

# Of scripts/check.py; a wrong one is told before anything is installed.
ALL_STAGES  := user asan tsan arm static module vm bare

.DEFAULT_GOAL := all
.PHONY: all demo check check-all check-vm proofs soak bench-serve vm bench-vm install module deb format clean distclean help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
	@echo "  Variables: B=$(B) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) KDIR=$(KDIR)"

all: $(B)/build.ninja ## build library, device model, daemon and tools into build/
	ninja -C $(B)

$(B)/build.ninja:
	@sh scripts/deps.sh build
	meson setup $(B) --prefix=$(PREFIX) $(MESON_FLAGS)

# The build that scripts/check.py tests: the same, warnings are errors, and with the tests.
$(B)/check/build.ninja:
	@sh scripts/deps.sh build check
	meson setup $(B)/check -Dtests=true -Dwerror=true

demo: ## install what is missing, build, and read a fairy tale that the simulated chip writes
	@B=$(B) sh scripts/demo.sh

check: ## install what is missing, build and test, in a quarter of an hour; ends with one line of counts
	@echo "make check builds TXDA with its tests and runs those that everybody should run: unit and end-to-end tests,"
	@echo "static checks, AddressSanitizer, the kernel module, one virtual machine. About 10 minutes on two processors."
	@sh scripts/deps.sh build check vm $(if $(THEN),check-all)
	@B=$(B) python3 scripts/check.py check $(THEN)

check-all: ## every test, without a limit of time; STAGES="asan vm" for some: user asan tsan arm static module vm bare
	@$(if $(filter-out $(ALL_STAGES),$(STAGES)),$(error There is no stage $(filter-out $(ALL_STAGES),$(STAGES)); there are: $(ALL_STAGES)))
	@sh scripts/deps.sh build check check-all vm bare
	@B=$(B) python3 scripts/check.py all $(STAGES)

proofs: $(B)/check/build.ninja ## what the daemon promises whatever is done to it, in full (half an hour): tests/e2e/proof/README.md
	PROOF=full meson test -C $(B)/check --suite proof --num-processes 1 --timeout-multiplier 10 --verbose

soak: $(B)/check/build.ninja ## mixed traffic for MINUTES=30, with a table of memory, descriptors, threads and KV blocks
	MINUTES=$(or $(MINUTES),30) meson test -C $(B)/check proof-soak --timeout-multiplier 0 --verbose

bench-serve: all ## tokens a second through the daemon against those without it, in pairs: PAIRS=5 STREAMS="16 64"
	B=$(B) sh scripts/bench-serve.sh

vm: ## a shell in a virtual machine with chips, on kernel K: K=newest CHIPS=1 IRQ=msix MEM=1G
	@B=$(B) sh tests/vm/run.sh -b -k $(or $(K),newest) -n $(or $(CHIPS),1) -i $(or $(IRQ),msix) -m $(or $(MEM),1G)

check-vm: ## only the tests of the driver in virtual machines, on kernels K="6.12 newest"; K=debug: one that looks closely; LONG=1: storms in full
	@B=$(B) sh tests/vm/check.sh $(if $(LONG),-L) -k "$(or $(K),6.12 newest)"

bench-vm: ## what the way through the driver costs, against the same in one process, on kernel K=newest, J=threads of the chip
	@B=$(B) sh tests/vm/bench.sh -k $(or $(K),newest) $(if $(J),-j $(J))

install: all ## install into DESTDIR/PREFIX
	meson configure $(B) -Dprefix=$(PREFIX)
	DESTDIR=$(DESTDIR) meson install -C $(B)

module: ## build txda.ko against KDIR, or against Debian's headers when the running kernel has none
	@B=$(B) sh scripts/module.sh "$(KDIR)"

deb: ## Debian packages into build/deb
	@B=$(B) sh scripts/deb.sh

format: ## clang-format over the C files that git knows
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean: ## remove what was built, keep downloads and compiled models
	find $(B) -mindepth 1 -maxdepth 1 ! -name node ! -name kernel-headers ! -name vm ! -name bare ! -name promtool -exec rm -rf {} + 2>/dev/null || true
	rm -rf $(B)/vm/stage $(B)/vm/stage.img $(B)/vm/reference

distclean: ## remove everything that was built or downloaded
	rm -rf $(B)
