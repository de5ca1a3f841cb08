# The front door. CMake does the work; see CMakePresets.json for the builds.
#   make              build/powerinfer and the libraries
#   make run          the same, then a story from the bundled model
#   make test         the same with -Werror in build-test, all tests, house rules included
#   make test-kernels the GPU sources by nvcc and clang: their PTX in an interpreter, every AMD family
#   make test-sanitize   the tests again under ASan + UBSan, then TSan
#   make asan | tsan  one of the two
#   make test-arm     the tests built for 64-bit ARM, run under qemu (Debian, Ubuntu)
#   make test-cpus    this build on emulated older x86 processors
#   make test-gpu     the tests that a GPU can run, on a real one [DEVICE=cuda] [UNDER=compute-sanitizer]
#   make cuda-all     the CUDA backend for every architecture that nvcc knows
#   make check-hip    the GPU sources read as HIP for every AMD family, by a current clang
#   make fuzz         FUZZ_SECONDS (60) for each fuzz target, under ASan + UBSan
#   make format | tidy | install [PREFIX=/usr/local] | clean

MODEL        = models/novella-7m.q8_0.powerinfer.gguf
PROMPT       = The old lighthouse keeper
PREFIX       = /usr/local
DEVICE       = cuda
UNDER        =
FUZZ_SECONDS = 60

# Ninja where it is there; the generator of an existing build folder stays as it was.
GENERATOR = $$(command -v ninja >/dev/null 2>&1 && echo -G Ninja)
configure = $(call drop_foreign,$(2)); \
            if [ -f $(2)/CMakeCache.txt ]; then cmake $(2) $(3) >/dev/null; \
            else cmake --preset $(1) -B $(2) $(GENERATOR) $(3); fi
# A build folder that came along when the tree was copied or moved would build the old tree.
drop_foreign = from=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $(1)/CMakeCache.txt 2>/dev/null); \
            if [ -n "$$from" ] && ! [ "$$from" -ef . ]; then \
                echo "$(1) was made for $$from: making it anew"; rm -rf $(1); fi
JOBS      = $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
build     = cmake --build $(1) --parallel $(JOBS)

# Hostile sizes in the tests ask for more memory than there is; the answer must be NULL, as it is
# without a sanitizer.
# The program reports faults of mapped files itself. A SIGBUS that arrives before `main` must end the
# program as it does without a sanitizer.
ASAN = ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:handle_sigbus=0
UBSAN = UBSAN_OPTIONS=print_stacktrace=1
TSAN = TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1:handle_sigbus=0
CTEST = ctest --output-on-failure --no-tests=error

# On an ARM processor with everything, then what executes kernels on one without I8MM. What starts
# the program itself (cli) would need the system to know how to run it.
ARM_KERNELS = ^(kernel|ops|attention|engine_sparse|golden|novella)$$

.PHONY: all deps test-deps run test test-kernels test-sanitize asan tsan test-arm test-cpus test-gpu cuda-all \
        check-hip fuzz format tidy install clean

# Where a driver says that there is a GPU.
HAS_NVIDIA = $(wildcard /proc/driver/nvidia/version /dev/dxg)
HAS_AMD    = $(wildcard /dev/kfd)

# Without the tests, which need cmocka. GPU backends take minutes to compile: only those of GPUs that
# are there.
all: deps
	@$(call drop_foreign,build)
	@[ -f build/CMakeCache.txt ] || $(call configure,release,build,-DPI_TESTS=OFF \
	    -DPI_CUDA=$(if $(HAS_NVIDIA),auto,off) -DPI_HIP=$(if $(HAS_AMD),auto,off))
	@$(call build,build)

deps:
	@scripts/install-deps.sh

test-deps:
	@scripts/install-deps.sh --tests

run: all
	build/powerinfer run -m $(MODEL) -p "$(PROMPT)" -n 100 --display-prompt

# Tests have a folder of their own, so that they never recompile what `make` built. It has no GPU
# backends, which take minutes to compile: `make test-kernels` and `make test-gpu` build them.
test: test-deps
	@$(call configure,test,build-test,)
	@$(call build,build-test)
	@cd build-test && $(CTEST) -j $(JOBS)

# sm_80 is the first with all instructions that the kernels use.
test-kernels: test-deps
	@scripts/install-deps.sh --kernels
	@$(call configure,test,build-kernels,-DPI_CUDA=auto -DPI_CUDA_ARCHS=80 -DPI_TEST_KERNELS=ON)
	@$(call build,build-kernels) --target kernel_tests
	@cd build-kernels && $(CTEST) -j $(JOBS) -L '^kernels$$'

test-sanitize: asan tsan

# The house rules were checked by `make test`; they do not depend on the build. Tests labelled
# no-asan or no-tsan say beside their pi_test why (pi_not_under).
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

test-cpus: test-deps
	@scripts/install-deps.sh --cpus
	@$(call configure,test,build-test,)
	@$(call build,build-test) --target old_cpus
	@cd build-test && $(CTEST) -j $(JOBS) -C cpus -L cpus

# One after the other: they measure, and share the device. Without it this fails.
test-gpu: test-deps
	@$(call configure,test,build-gpu,-DPI_CUDA=auto -DPI_HIP=auto -DPI_CUDA_ARCHS=common \
	    -DPI_TEST_DEVICE=$(DEVICE) -DPI_TEST_UNDER="$(UNDER)")
	@$(call build,build-gpu)
	@build-gpu/powerinfer inspect --devices | grep '^$(DEVICE)' | tee build-gpu/devices.txt
	@grep -q '^$(DEVICE) [0-9]' build-gpu/devices.txt
	@cd build-gpu && $(CTEST) -L '^device$$'

# In a folder of its own: the everyday build keeps the common architectures.
cuda-all: deps
	@cmake -B build-cuda $(GENERATOR) -DPI_TESTS=OFF -DPI_CUDA=on -DPI_CUDA_ARCHS=all
	@cmake --build build-cuda --parallel $(JOBS) --target powerinfer_cuda

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

format:
	@find src include tests examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' 2>/dev/null | xargs clang-format -i

tidy: test-deps
	@$(call configure,test,build-test,)
	@$(call build,build-test) --target tidy
	@build-test/tidy --self-test && build-test/tidy . build-test/modules.txt

install: all
	cmake --install build --strip --prefix "$(PREFIX)"

clean:
	rm -rf build build-test build-kernels build-gpu build-debug build-asan build-tsan build-arm build-cuda
