# The usual commands. CMake does the work; CMakePresets.json defines the builds.
#   make              builds build/powerinfer, the libraries and the GPU backends
#   make run          builds the program only, then writes a story with the bundled model
#   make test         builds everything with -Werror in build-test, runs all tests and the house rules
#   make test-kernels compiles the GPU sources with clang, runs their PTX in an interpreter
#   make test-sanitize   runs the tests under ASan + UBSan, then under TSan
#   make asan | tsan  one of the two
#   make test-arm     builds the tests for 64-bit ARM and runs them under qemu (Debian, Ubuntu)
#   make windows      cross-builds build-windows/powerinfer-windows-x86_64.zip (Debian, Ubuntu)
#   make test-windows builds the tests for Windows and runs them under wine (Debian, Ubuntu)
#   make test-cpus    runs the build on emulated older x86 CPUs
#   make test-gpu     runs the device tests on a real GPU [DEVICE=cuda] [UNDER=compute-sanitizer]
#   make check-hip    compiles the GPU sources for every AMD family, with a current clang
#   make fuzz         runs each fuzz target for FUZZ_SECONDS (60) under ASan + UBSan
#   make deb          builds Debian packages in build-deb (docs/install.md); test-deb tests them in a chroot
#   make zip          builds build-zip/powerinfer-linux-x86_64.zip; test-zip tests it in a chroot
#   make recipes      fills in the recipes for Homebrew and winget in build-recipes URL=https://...
#   make bindings     packages the bindings for Python and Node in build/bindings
#   make format | tidy | install [PREFIX=/usr/local] | clean

MODEL        = models/novella-7m.q8_0.powerinfer.gguf
PROMPT       = The old lighthouse keeper
PREFIX       = /usr/local
DEVICE       = cuda
UNDER        =
FUZZ_SECONDS = 60

# Ninja where it is installed. An existing build folder keeps its generator.
GENERATOR = $$(command -v ninja >/dev/null 2>&1 && echo -G Ninja)
configure = $(call drop_foreign,$(2)); \
            if [ -f $(2)/CMakeCache.txt ]; then cmake $(2) $(3) >/dev/null; \
            else cmake --preset $(1) -B $(2) $(GENERATOR) $(3); fi
# After the tree was copied or moved, its build folder would still build the old tree.
drop_foreign = from=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $(1)/CMakeCache.txt 2>/dev/null); \
            if [ -n "$$from" ] && ! [ "$$from" -ef . ]; then \
                echo "$(1) belongs to $$from: removing it"; rm -rf $(1); fi
JOBS      = $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
build     = cmake --build $(1) --parallel $(JOBS)

# Tests with hostile sizes request more memory than exists; the allocator must return NULL, as it
# does without a sanitizer. The program itself reports faults of a mapped file (SIGBUS), and a SIGBUS
# before `main` must end the program as it does without a sanitizer.
ASAN = ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:handle_sigbus=0:quarantine_size_mb=16
UBSAN = UBSAN_OPTIONS=print_stacktrace=1
TSAN = TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1:handle_sigbus=0
CTEST = ctest --output-on-failure --no-tests=error

# These tests execute kernels; they run again on an ARM CPU without I8MM. Tests labelled cli start
# the program itself, which the system cannot run without an emulator.
ARM_KERNELS = ^(kernel|ops|attention|engine_sparse|golden|novella)$$

.PHONY: all configured deps gpu-deps test-deps run test test-kernels test-sanitize asan tsan test-arm test-cpus test-gpu \
        windows test-windows test-windows-sample \
        check-hip fuzz bindings format tidy install deb zip recipes test-deb test-zip clean

all: gpu-deps configured
	@! grep -qs '^PI_CUDA:STRING=later$$' build/CMakeCache.txt || \
	    cmake build -DPI_CUDA=auto -DPI_HIP=auto >/dev/null
	@$(call build,build)

# Without the tests, which need cmocka.
KERNELS = auto
configured: deps
	@$(call drop_foreign,build)
	@[ -f build/CMakeCache.txt ] || $(call configure,release,build,-DPI_TESTS=OFF -DPI_CUDA=$(KERNELS) \
	    -DPI_HIP=$(KERNELS))

deps:
	@scripts/install-deps.sh

gpu-deps:
	@scripts/install-deps.sh --gpu

test-deps:
	@scripts/install-deps.sh --tests

# The program alone compiles in a fraction of the time that the libraries and the kernels for GPUs
# take. In a new build folder `make` adds the kernels later.
run: KERNELS = later
run: configured
	@$(call build,build) --target powerinfer
	build/powerinfer run -m $(MODEL) -p "$(PROMPT)" -n 100 --display-prompt --device cpu

# Tests have a separate build folder and never recompile what `make` built. Kernels for real GPUs take
# minutes to compile: `make test-kernels` adds them to that folder, `make test` drops them again.
NO_KERNELS = -DPI_CUDA=off -DPI_HIP=off -DPI_TEST_KERNELS=OFF
test: test-deps
	@$(call configure,test,build-test,$(NO_KERNELS))
	@$(call build,build-test)
	@cd build-test && $(CTEST) -j $(JOBS)

# For one AMD GPU. On a machine that has one it must be that one: others are hidden (gpu_kfd.h).
TEST_HIP = $$(grep -qs '^gfx_target_version [1-9]' /sys/class/kfd/kfd/topology/nodes/*/properties && \
             echo native || echo gfx1100)
test-kernels: test-deps
	@scripts/install-deps.sh --kernels
	@$(call configure,test,build-test,-DPI_CUDA=auto -DPI_HIP=on -DPI_HIP_ARCHS=$(TEST_HIP) \
	    -DPI_TEST_KERNELS=ON)
	@$(call build,build-test) --target kernel_tests
	@cd build-test && $(CTEST) -j $(JOBS) -L '^kernels$$'

test-sanitize: asan tsan

# `make test` has checked the house rules, which do not depend on the build. pi_not_under() gives the
# reason for each test labelled no-asan or no-tsan.
asan: test-deps
	@$(call configure,asan,build-asan,)
	@$(call build,build-asan)
	@cd build-asan && $(ASAN) $(UBSAN) $(CTEST) -j $(JOBS) -LE 'tidy|no-asan'

tsan: test-deps
	@$(call configure,tsan,build-tsan,)
	@$(call build,build-tsan)
	@cd build-tsan && $(TSAN) $(CTEST) -j $(JOBS) -LE 'tidy|install|no-tsan'

test-arm:
	@scripts/install-deps.sh --arm
	@$(call configure,arm,build-arm,-DPI_QEMU_CPU=max)
	@$(call build,build-arm)
	@cd build-arm && $(CTEST) -j $(JOBS) -LE 'tidy|fuzz|cli'
	@cmake build-arm -DPI_QEMU_CPU=neoverse-n1 >/dev/null
	@cd build-arm && $(CTEST) -j $(JOBS) -R '$(ARM_KERNELS)'

windows:
	@scripts/install-deps.sh --windows
	@$(call configure,windows,build-windows,-DPI_TESTS=OFF -DPI_CUDA=$(KERNELS) -DPI_HIP=$(HIP))
	@$(call build,build-windows) --target package_windows

# Tests have a separate folder. tests/not_on_windows.cmake gives the reason for each test labelled
# no-windows. The kernels are those for one NVIDIA GPU, which the fake driver runs (tests/ptx).
WINDOWS_TESTS = -DPI_TESTS=ON -DPI_CUDA=auto -DPI_CUDA_ARCHS=80 -DPI_HIP=off
test-windows:
	@scripts/install-deps.sh --windows
	@$(call configure,windows,build-windows-test,$(WINDOWS_TESTS))
	@$(call build,build-windows-test)
	@$(call build,build-windows-test) --target package_windows
	@cd build-windows-test && $(CTEST) -j $(JOBS) -LE 'tidy|fuzz|no-windows'

# What CI has time for: kernels, recorded logits, also by kernels for NVIDIA GPUs, files, Unicode paths,
# tokenizers, sampling, a memory budget, the server.
test-windows-sample:
	@scripts/install-deps.sh --windows
	@$(call configure,windows,build-windows-test,$(WINDOWS_TESTS))
	@$(call build,build-windows-test) --target windows_sample
	@cd build-windows-test && $(CTEST) -j $(JOBS) -L '^windows-sample$$'

test-cpus: test-deps
	@scripts/install-deps.sh --cpus
	@$(call configure,test,build-test,$(NO_KERNELS))
	@$(call build,build-test) --target old_cpus
	@cd build-test && $(CTEST) -j $(JOBS) -C cpus -L cpus

# Tests run one after the other, since they measure and share the device. Without a device, it fails.
test-gpu: test-deps
	@$(call configure,test,build-gpu,-DPI_CUDA=auto -DPI_HIP=auto \
	    -DPI_TEST_DEVICE=$(DEVICE) -DPI_TEST_UNDER="$(UNDER)")
	@$(call build,build-gpu)
	@build-gpu/powerinfer inspect --devices | grep '^$(DEVICE)' | tee build-gpu/devices.txt
	@grep -q '^$(DEVICE) [0-9]' build-gpu/devices.txt
	@cd build-gpu && $(CTEST) -L '^device$$'

check-hip:
	@scripts/check-hip.sh

fuzz: test-deps
	@$(call configure,asan,build-asan,)
	@$(call build,build-asan)
	@set -e; for target in build-asan/fuzz_*; do \
	    [ -x $$target ] || continue; \
	    echo "$$target"; \
	    $(ASAN) $(UBSAN) $$target --seconds $(FUZZ_SECONDS) --seed $$(date +%s); \
	done

bindings: all
	@scripts/package-bindings.sh build

format:
	@find src include tests examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' 2>/dev/null | xargs clang-format -i

tidy: test-deps
	@$(call configure,test,build-test,$(NO_KERNELS))
	@$(call build,build-test) --target tidy
	@build-test/tidy --self-test && build-test/tidy . build-test/modules.txt

install: all
	cmake --install build --strip --prefix "$(PREFIX)"

# Packages are linked with the protections of Debian's. AMD's kernels are built where such a GPU is;
# HIP=on builds them for common ones.
HIP = $(KERNELS)
HARDENED = -Wl,-z,relro,-z,now
package = $(call configure,release,$(1),-DPI_TESTS=OFF -DPI_CUDA=$(KERNELS) -DPI_HIP=$(HIP) \
    -DCMAKE_EXE_LINKER_FLAGS=$(HARDENED) -DCMAKE_SHARED_LINKER_FLAGS=$(HARDENED) \
    -DCMAKE_MODULE_LINKER_FLAGS=$(HARDENED) $(2))

deb: gpu-deps
	@scripts/install-deps.sh --packages
	@$(call package,build-deb,-DCMAKE_INSTALL_PREFIX=/usr)
	@$(call build,build-deb)
	@scripts/make-deb.sh build-deb

zip: gpu-deps
	@scripts/install-deps.sh --packages
	@$(call package,build-zip,-DPI_PORTABLE=ON)
	@$(call build,build-zip) --target powerinfer powerinfer_pages
	@scripts/make-zip.sh build-zip

# For whoever publishes a release: URL is the folder with its files, HOMEPAGE the project's page.
HOMEPAGE = $(URL)
WINDOWS_ZIP = build-windows/powerinfer-windows-x86_64.zip
SOURCE_NAME = powerinfer-$$(sed -n 's/^project(powerinfer VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
recipes:
	@mkdir -p build-recipes
	@git archive --prefix=$(SOURCE_NAME)/ -o build-recipes/$(SOURCE_NAME).tar.gz HEAD
	@scripts/make-recipes.sh "$(HOMEPAGE)" "$(URL)" build-recipes/$(SOURCE_NAME).tar.gz $(WINDOWS_ZIP) \
	    build-recipes

# As root: these tests make a fresh system in a folder.
test-deb: deb
	@scripts/install-deps.sh --test-packages
	@scripts/test-deb.sh build-deb

test-zip: zip
	@scripts/install-deps.sh --test-packages
	@scripts/test-zip.sh build-zip

clean:
	rm -rf build build-test build-kernels build-gpu build-debug build-asan build-tsan build-arm \
	    build-deb build-zip build-recipes build-windows build-windows-test
