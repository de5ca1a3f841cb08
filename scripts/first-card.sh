#!/bin/sh
# Tests and measures one GPU in less than ten minutes: correctness first, then bandwidths, kernels,
# exchange, speed of four models compared with the predictions of `place`, overlap and memory. It
# needs no network, no compiler and no CMake.
#   scripts/first-card.sh [-d DEVICE] [-o FOLDER] [-w FOLDER] [-t SECONDS] [-m MODEL] [-T "TESTS"] [-M "MODELS"] [-r] [BUILD]
#   scripts/first-card.sh -p FOLDER [-m MODEL] [-T "TESTS"] [BUILD]
#   scripts/first-card.sh -j FIGURES
# BUILD   folder with powerinfer and test_gpu_* (default: the script's folder, or build-gpu); a copy is
#         enough, and it is not written to
# -d      cuda, hip, sim (default: the first GPU that inspect --devices shows)
# -o      folder for report.md, figures.tsv and what every command wrote (default: first-card)
# -w      folder for the models, 6.5 GB (default: models in the folder of -o); deleted at the end
# -t      seconds for everything (default 570)
# -m      model whose text is compared (default: the bundled one)
# -T      device tests to run, such as "gpu_mat gpu_token" (default: all)
# -M      models to measure (default: "dense experts sparse split")
# -r      rehearse: tiny models, no judgement
# -p      only copy what a machine without the source needs into FOLDER, with this script: 100 MB, of
#         which the model, device tests and libraries share much (tar cJf)
# -j      only list what contradicts the predictions in a figures.tsv
# Every command has a time limit; what fails or takes too long is reported, and the rest goes on.
# Prints Markdown. Status 1: a check of correctness failed. 2: no GPU, or wrong arguments.
set -u

here=$(cd "$(dirname "$0")" && pwd)
device='' out=first-card work='' seconds=570 model='' tests='' measured='dense experts sparse split' rehearse='' pack='' judge=''
while getopts d:o:w:t:m:T:M:rp:j: option; do
    case $option in
    d) device=$OPTARG ;;
    o) out=$OPTARG ;;
    w) work=$OPTARG ;;
    t) seconds=$OPTARG ;;
    m) model=$OPTARG ;;
    T) tests=$OPTARG ;;
    M) measured=$OPTARG ;;
    r) rehearse=yes ;;
    p) pack=$OPTARG ;;
    j) judge=$OPTARG ;;
    *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))

# ---- what contradicts the predictions ------------------------------------------------------------

# Lines of figures.tsv: what, unit, predicted, measured, rule. Rules: near (20% more or less is a
# contradiction), most (20% more), least (20% less), shown (no prediction).
contradictions() { # FIGURES
    awk -F'\t' '
        function short(x) { return sprintf(x >= 1000 ? "%.0f" : "%.4g", x) }
        BEGIN { limit = 1.2 }
        $5 == "shown" || $3 + 0 <= 0 { next }
        {
            judged++
            ratio = $4 / $3
            high = ratio > limit && $5 != "least"
            low = ratio < 1 / limit && $5 != "most"
            if (!high && !low) next
            if (!n++) printf "| what | unit | predicted | measured | ratio |\n|---|---|---:|---:|---:|\n"
            printf "| %s | %s | %s | %s | %.2f |\n", $1, $2, short($3), short($4), ratio
        }
        END {
            if (n) printf "\n%d of %d predictions.\n", n, judged
            else if (judged) printf "None of %d predictions.\n", judged
            else print "No prediction could be checked."
        }' "$1"
}
if [ -n "$judge" ]; then
    [ -r "$judge" ] || { echo "no such file: $judge" >&2; exit 2; }
    contradictions "$judge"
    exit
fi

build=${1:-}
if [ -z "$build" ]; then
    build=$here
    [ -x "$build/powerinfer" ] || build=$here/../build-gpu
fi
[ -x "$build/powerinfer" ] || { echo "no program: $build/powerinfer: name the build folder" >&2; exit 2; }
build=$(cd "$build" && pwd)
bundled=novella-7m.q8_0.powerinfer.gguf
for place in "$build" "$build/../models" "$here/../models"; do
    [ -n "$model" ] || [ ! -r "$place/$bundled" ] || model=$place/$bundled
done

# ---- packing -------------------------------------------------------------------------------------

if [ -n "$pack" ]; then
    set -e
    mkdir -p "$pack/lib"
    cp "$0" "$build/powerinfer" "$pack/"
    [ -z "$model" ] || cp "$model" "$pack/"
    for file in "$build"/test_gpu_* "$build"/libpowerinfer_*.so; do
        name=${file##*/test_}
        case $name in gpu_kfd | gpu_presence) continue ;; esac # of no device
        case " ${tests:-$name} " in
        *" $name "*) ;;
        *) [ "$name" = "$file" ] || continue ;; # a library
        esac
        [ ! -f "$file" ] || cp "$file" "$pack/"
    done
    # Libraries, except those of the C library, which must fit the system.
    for file in "$pack"/powerinfer "$pack"/test_gpu_* "$pack"/*.so; do
        [ -f "$file" ] || continue
        strip --strip-unneeded "$file" 2>/dev/null || true
        ldd "$file" | awk '$3 ~ "^/" { print $3 }'
    done | sort -u | grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' |
        while read -r file; do cp -L "$file" "$pack/lib/"; done
    du -sh "$pack"
    exit
fi

# ---- running commands ----------------------------------------------------------------------------

now() { date +%s; }
begin=$(now)
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=${work:-$out/models}
mkdir -p "$work" || exit 2
report=$out/report.md figures=$out/figures.tsv cache=$out/cache
: >"$report"
: >"$figures"
rm -rf "$cache"
mkdir -p "$cache/driver"
# The profile and the driver's translations are this script's own, so that its first start is one.
export XDG_CACHE_HOME="$cache" CUDA_CACHE_PATH="$cache/driver" CUDA_CACHE_MAXSIZE=2147483648
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH="$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
program=$build/powerinfer
failed=0

left() { echo $((seconds - ($(now) - begin))); }
say() { printf '%s\n' "$*" | tee -a "$report"; }
table() { tee -a "$report"; } # a table on standard input
part() { say ""; say "## $1"; say ""; echo "first-card: $1, $(left) s left" >&2; }
# LIMIT NAME COMMAND...: standard output to NAME.out, errors to NAME.err; 124: too long
limited() {
    limit=$1 name=$2
    shift 2
    [ -z "$rehearse" ] || limit=$((10 * limit)) # a simulated GPU, on a machine that others use
    [ "$limit" -le "$(left)" ] || limit=$(left)
    if [ "$limit" -lt 2 ]; then
        echo "no time is left" >"$out/$name.err"
        : >"$out/$name.out"
        return 124
    fi
    timeout -k 5 "$limit" "$@" >"$out/$name.out" 2>"$out/$name.err" </dev/null
}
# NAME STATUS: "124: too long", or the last line of what the command said
reason() {
    if [ "$2" -eq 124 ] || [ "$2" -eq 137 ]; then
        echo "took too long"
    else
        echo "status $2: $(grep -v '^ *$' "$out/$1.err" | tail -n 1 | cut -c 1-160 | tr '|' '/')"
    fi
}
skip() { say "Not measured: $1: $(reason "$2" "$3")"; }
figure() { printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$5" >>"$figures"; }
calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }
key() { awk -F': ' -v k="\"$2\"" '$1 ~ k "$" { sub(/,$/, "", $2); print $2; exit }' "$1"; } # FILE KEY
speed() { # FILE TEST: tokens per second of a test of bench
    awk -F': ' -v t="\"$2\"," '$1 ~ /"test"$/ { on = $2 == t } on && $1 ~ /"tps"$/ { print $2 + 0; exit }' "$1"
}
check() { # NAME RESULT: a row of the checks; only "ok" and what begins with - are no failure
    case $2 in ok* | -*) ;; *) failed=$((failed + 1)) ;; esac
    say "| $1 | $2 |"
}
finish() {
    trap - EXIT INT TERM
    # shellcheck disable=SC2086 # process ids
    [ -z "${writers:-}" ] || kill $writers 2>/dev/null
    rm -rf "$work"
    part "Contradicts the predictions"
    [ "$failed" -eq 0 ] || say "**Checks of correctness that failed: $failed.**
"
    if [ -n "$rehearse" ]; then
        say "Not judged: a rehearsal."
    else
        contradictions "$figures" | table
    fi
    say ""
    say "$(($(now) - begin)) s. Figures: $figures"
    [ "$failed" -eq 0 ] || exit 1
    exit 0
}

# ---- the device ----------------------------------------------------------------------------------

limited 30 devices "$program" inspect --devices
[ -n "$device" ] || device=$(sed -n 's/^\(cuda\|hip\) [0-9]*: .*/\1/p' "$out/devices.out" | head -n 1)
name=$(sed -n "s/^$device 0: //p" "$out/devices.out")
if [ -z "$device" ] || [ -z "$name" ]; then
    cat "$out/devices.out" "$out/devices.err" >&2
    echo "no GPU ${device:+of $device }can be used" >&2
    exit 2
fi
trap finish EXIT
trap 'exit 1' INT TERM
say "# First card: $name"
say ""
say "\`\`\`"
table <"$out/devices.out"
"$program" --version 2>/dev/null | table
uname -srm | table
say "\`\`\`"

# MiB of GPU memory in use by all programs; nothing where that is not known.
memory_used() {
    case $device in
    cuda) nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1 ;;
    hip) cat /sys/class/drm/card*/device/mem_info_vram_used 2>/dev/null |
        awk '$1 > most { most = $1 } END { if (NR) printf "%d\n", most / 1048576 }' ;;
    esac
}
# Runs a command (as `limited`) and sets `grown`: MiB that the memory in use grew, at most; empty: not known.
watched() {
    before=$(memory_used) most=$before grown=''
    limited "$@" &
    job=$!
    while [ -n "$before" ] && kill -0 "$job" 2>/dev/null; do
        used=$(memory_used)
        [ "${used:-0}" -le "$most" ] || most=$used
        sleep 0.1 2>/dev/null || sleep 1
    done
    wait "$job"
    status=$?
    [ -z "$before" ] || grown=$((most - before))
    return $status
}

# ---- models, written while tests run -------------------------------------------------------------

# name, shape, layers, options of synth, mode, bytes that go on the GPU of all (in percent)
if [ -n "$rehearse" ]; then
    models="dense|tiny|2|--plain|dense|100
experts|tiny-moe|2|--plain|dense|100
sparse|tiny|2||predict|100
split|tiny|2||predict|60"
    n_gen=2 prompts=9 depth=4 repeat=1 n_text=4 n_again=4 batch=16
    ladder=1,8,9
else
    models="dense|llama-7b|8|--plain|dense|100
experts|qwen3-30b-a3b|4|--plain|dense|100
sparse|bamboo-7b|8||predict|100
split|llama-70b|4||predict|60"
    n_gen=64 prompts=512,2048 depth=512 repeat=3 n_text=12 n_again=200 batch=512
    ladder=1,8,9,16,17,32,64,65,128
fi
context=$((depth + n_gen)) # as bench has it
"$program" inspect --devices --json >"$out/devices.json" 2>/dev/null
free_mib=$(awk -F': ' -v d="\"$device\"," '$1 ~ /"device"$/ { on = $2 == d }
    on && $1 ~ /"memory_free"$/ { printf "%d", $2 / 1048576; exit }' "$out/devices.json")
drive_mib=$(df -Pk "$work" | awk 'NR == 2 { printf "%d", $4 / 1024 }')
quarters=4
if [ -z "$rehearse" ]; then
    while [ $quarters -gt 1 ] && { [ "$drive_mib" -lt $((1750 * quarters)) ] ||
        [ "${free_mib:-0}" -lt $((900 * quarters)) ]; }; do
        quarters=$((quarters / 2))
    done
fi
echo "$models" | awk -F'|' -v q=$quarters -v measured=" $measured " 'BEGIN { OFS = FS }
    index(measured, " " $1 " ") { n = int($3 * q / 4); $3 = n > 1 ? n : 1; print }' >"$out/models.txt"
(
    trap 'kill "$child" 2>/dev/null; exit 1' TERM
    while IFS='|' read -r label shape layers more mode share; do
        # shellcheck disable=SC2086 # no option, or one
        "$program" synth -q --shape "$shape" --layers "$layers" $more -o "$work/$label.part" \
            2>"$out/synth-$label.err" </dev/null &
        child=$!
        wait $child && mv "$work/$label.part" "$work/$label.gguf"
    done <"$out/models.txt"
) &
writers=$!

# ---- correctness ---------------------------------------------------------------------------------

part "Correctness"
say "| check | result |"
say "|---|---|"
text() { # NAME DEVICE N: the text that a device writes
    limited 60 "$1" "$program" run -m "$model" -p "Once upon a time" -n "$3" --temp 0 --device "$2" -v
}
started=$(date +%s.%N)
if [ -z "$model" ]; then
    check "text of the bundled model" "not found: $bundled"
else
    text first "$device" 1
    opened=$(date +%s.%N)
    text cpu cpu $n_text || check "text on the CPU" "failed: $(reason cpu $?)"
    if text gpu "$device" $n_text; then
        if ! grep -q '^GPU: ' "$out/gpu.err"; then
            check "text on the GPU" "the GPU was not used: $(tail -n 1 "$out/gpu.err" | cut -c 1-120)"
        elif cmp -s "$out/cpu.out" "$out/gpu.out"; then
            check "$n_text tokens of text are those of the CPU" ok
        else
            check "$n_text tokens of text are those of the CPU" "differ: cpu.out, gpu.out"
        fi
    else
        check "text on the GPU" "failed: $(reason gpu $?)"
    fi
    second=$(date +%s.%N)
    text again1 "$device" 1
    third=$(date +%s.%N)
    text long1 "$device" $n_again && text long2 "$device" $n_again
    status=$?
    if [ $status -eq 124 ]; then
        check "$n_again tokens are the same twice" "- took too long"
    elif [ $status -eq 0 ] && cmp -s "$out/long1.out" "$out/long2.out"; then
        check "$n_again tokens are the same twice" ok
    else
        check "$n_again tokens are the same twice" "failed: long1.out, long2.out"
    fi
    case $device in
    cuda) serial=CUDA_LAUNCH_BLOCKING=1 ;;
    hip) serial=AMD_SERIALIZE_KERNEL=3 ;;
    *) serial=SIM_DRIVER=serial ;;
    esac
    if [ -n "$rehearse" ] && [ "$device" != sim ]; then
        check "$serial: a warning, the same text" "- not rehearsed"
    else
        limited 60 serial env $serial "$program" run -m "$model" -p "Once upon a time" -n $n_text --temp 0 \
            --device "$device"
        if ! cmp -s "$out/serial.out" "$out/gpu.out"; then
            check "$serial: a warning, the same text" "another text: serial.out"
        elif ! grep -q 'launches wait until kernels have ended' "$out/serial.err"; then
            check "$serial: a warning, the same text" "no warning"
        else
            check "$serial: a warning, the same text" ok
        fi
    fi
    figure "first start, translating kernels" s 0 "$(calc "$opened - $started")" shown
    figure "start" s 0 "$(calc "$third - $second")" shown
fi
if [ -z "$tests" ]; then
    for file in token runtime mat matmul ffn choice experts attention latent recur streams rates; do
        tests="$tests gpu_$file"
    done
fi
tests_end=$((seconds * 45 / 100)) # of the time from the start
for test in $tests; do
    if [ ! -x "$build/test_$test" ]; then
        check "$test" "- not in this build"
        continue
    fi
    if [ $(($(now) - begin)) -gt $tests_end ]; then
        check "$test" "- not run: no time is left"
        continue
    fi
    took=$(now)
    limited 90 "$test" env CASE_EVERY=3 FFN_EVERY=3 "$build/test_$test" --device "$device"
    status=$?
    if grep -q 'SKIPPED: no device' "$out/$test.err" "$out/$test.out"; then
        check "$test" "no device"
    elif [ $status -eq 0 ]; then
        passed=$(cat "$out/$test.out" "$out/$test.err" | sed -n 's/.*PASSED  \] *\([0-9]*\).*/\1/p' | tail -n 1)
        check "$test" "ok, ${passed:-?} tests, $(($(now) - took)) s"
    elif [ $status -eq 124 ]; then
        check "$test" "- took longer than $limit s"
    else
        why=$(cat "$out/$test.out" "$out/$test.err" | grep -m 1 -E 'FAILED|ERROR' | cut -c 1-120)
        check "$test" "failed: ${why:-$(reason "$test" $status)}"
    fi
done
say ""
say "compute-sanitizer and several GPUs: docs/gpu.md."

# ---- bandwidths, kernels, exchange ---------------------------------------------------------------

while kill -0 $writers 2>/dev/null && [ "$(left)" -gt $((seconds * 2 / 5)) ]; do sleep 1; done
kill $writers 2>/dev/null
wait $writers
writers=
model=${model:-$work/dense.gguf}
part "Rates"
sheet=$(awk -F': ' -v d="\"$device\"," '$1 ~ /"device"$/ { on = $2 == d }
    on && $1 ~ /"bandwidth"$/ { printf "%.1f", $2 / 1e9; exit }' "$out/devices.json")
rate() { sed -n "s/.*gpu: streams \([0-9.]*\) GB.*/\1/p" "$out/$1.out"; } # NAME: of a placement
# Assumed times, of docs/placement.md.
case $name in
*gfx*) step=4 ;;
*sm_9* | *sm_1[0-9][0-9]*) step=1.4 ;;
*) step=2.3 ;;
esac
sync=16 stream=0
limited 30 place-unmeasured "$program" place -m "$model" --device "$device"
if limited 60 place-measure "$program" place -m "$model" --device "$device" --measure -v; then
    profile=$cache/powerinfer/machine.json
    # The figures of the GPU are the second ones.
    stream=$(awk -F': ' '/"gpu": / { on = 1 } on && /"stream_gbps"/ { print $2 + 0; exit }' "$profile")
    gather=$(awk -F': ' '/"gpu": / { on = 1 } on && /"gather_gbps"/ { print $2 + 0; exit }' "$profile")
    measured_step=$(awk -F': ' '/"gpu": / { on = 1 } on && /"step_us"/ { print $2 + 0; exit }' "$profile")
    measured_sync=$(key "$profile" sync_us)
    figure "stream, of the data sheet's 80%" GB/s "$(calc "0.8 * ${sheet:-0}")" "$stream" near
    figure "gather, of the data sheet's 72%" GB/s "$(calc "0.72 * ${sheet:-0}")" "$gather" near
    figure "bandwidth measured at open" GB/s "$stream" "$(rate place-unmeasured)" near
    figure "time of a kernel in a program" us $step "$measured_step" near
    figure "exchange (goal: 10)" us $sync "$measured_sync" near
    sync=$measured_sync
    awk -F': ' '/"cpu": / { on = 1 } on && /_gbps"/ { gsub(/[ ",]/, "", $1)
        printf "CPU %s\tGB/s\t0\t%g\tshown\n", $1, $2 } /"gpu": / { exit }' "$profile" >>"$figures"
    # With these rates neurons are split between the devices; those of a simulated GPU mean nothing.
    if [ -n "$rehearse" ]; then
        awk '/"gpu": / { gpu = 1 } /_gbps"/ { sub(/: [^,]*/, gpu ? ": 1000" : ": 10") }
            /"step_us"/ { sub(/: [^,]*/, ": 0") } /"sync_us"/ { sub(/: [^,]*/, ": 0.1") } { print }' "$profile" >"$profile.new" &&
            mv "$profile.new" "$profile"
    fi
else
    skip "rates" place-measure $?
fi
rates_table() { # of the figures so far
    awk -F'\t' 'function short(x) { return sprintf(x >= 1000 ? "%.0f" : "%.4g", x) }
        BEGIN { printf "| figure | unit | assumed | measured |\n|---|---|---:|---:|\n" }
        { printf("| %s | %s | %s | %s |\n", $1, $2, $3 > 0 ? short($3) : "", short($4)) }' "$figures" | table
}
rates_table

# ---- models --------------------------------------------------------------------------------------

# Sets `budget`: the option for so many percent of a model's weights on the GPU.
choose_budget() { # LABEL FILE MODE PERCENT
    budget=''
    [ "$4" -lt 100 ] || return 0
    limited 30 "$1-whole" "$program" place -q -m "$2" --device "$device" --mode "$3" -c $context -b $batch --json
    whole=$(key "$out/$1-whole.out" gpu_bytes)
    bytes=$(wc -c <"$2")
    budget="--vram-budget $(calc "(${whole:-0} - $bytes * (100 - $4) / 100) / 1073741824")"
}
# TRACE KIND: a table of the GPU's steps in a ubatch, "token" or "prompt"
steps_of() {
    awk -F': ' -v kind="$2" -v stream="$stream" '
        function value() { sub(/,$/, "", $2); gsub(/"/, "", $2); return $2 }
        function done() {
            if (pid == 0 && (name == "token" || name == "prompt")) { on = name == kind; if (on) { from = ts; to = ts + dur } }
            if (pid == 2 && ph == "X") { n++; names[n] = name; starts[n] = ts; durs[n] = dur; sizes[n] = bytes }
            name = ph = pid = ts = dur = ""; bytes = 0
        }
        /^    \{/ { name = "" }
        /^      "name"/ { name = value() }
        /^      "ph"/ { ph = value() }
        /^      "pid"/ { pid = value() }
        /^      "ts"/ { ts = value() + 0 }
        /^      "dur"/ { dur = value() + 0 }
        /"bytes"/ { bytes = value() + 0 }
        /^    \}/ { done() }
        END {
            printf "| step | calls | us each | us | GB/s |\n|---|---:|---:|---:|---:|\n"
            for (i = 1; i <= n; i++) if (starts[i] >= from && starts[i] < to) {
                if (!(names[i] in calls)) order[++kinds] = names[i]
                calls[names[i]]++; us[names[i]] += durs[i]; size[names[i]] += sizes[i]
            }
            for (k = 1; k <= kinds; k++) {
                s = order[k]
                printf("| %s | %d | %.1f | %.0f | %s |\n", s, calls[s], us[s] / calls[s], us[s],
                    size[s] > 0 && us[s] > 0 ? sprintf("%.1f", size[s] / us[s] / 1e3) : "")
            }
        }' "$1"
}
single=0
speeds=$out/speeds.md overlaps=$out/overlaps.md memories=$out/memories.md
printf '| model | mode | on the GPU | decode, predicted | measured | prompts |\n|---|---|---|---:|---:|---|\n' >"$speeds"
printf '| model | tokens | ms | CPU ms | GPU ms | overlap | split layers | overlap there | us per exchange |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n' >"$overlaps"
printf '| model | MiB accounted | MiB measured |\n|---|---:|---:|\n' >"$memories"
part "Models"
while IFS='|' read -r label shape layers more mode share; do
    file=$work/$label.gguf
    if [ ! -r "$file" ]; then
        say "Not measured: $label ($shape): not written: $(tail -n 1 "$out/synth-$label.err" 2>/dev/null)"
        continue
    fi
    choose_budget "$label" "$file" "$mode" "$share"
    same="-m $file --device $device --mode $mode -b $batch $budget"
    # shellcheck disable=SC2086 # words
    limited 30 "$label-place" "$program" place -q $same -c $context -d $depth --json
    predicted=$(key "$out/$label-place.out" seconds_per_token)
    accounted=$(key "$out/$label-place.out" gpu_bytes)
    share_of=$(awk -F': ' '/"hot"/ { h += $2 } /"of"/ { n += $2 } END { if (n) printf "%.0f%%", 100 * h / n }' \
        "$out/$label-place.out")
    # shellcheck disable=SC2086 # words
    limited 60 "$label-decode" "$program" bench -q $same -p 0 -n $n_gen -d $depth -r $repeat --json
    status=$?
    decode=$(speed "$out/$label-decode.out" "tg$n_gen")
    if [ -z "$decode" ]; then
        skip "decode of $label" "$label-decode" $status
    else
        [ -z "$predicted" ] || figure "decode, $label ($shape, $mode, $share% of the bytes)" tokens/s \
            "$(calc "1 / $predicted")" "$decode" near
        [ "$label" != dense ] || single=$decode
    fi
    # shellcheck disable=SC2086 # words
    limited 60 "$label-prompts" "$program" bench -q $same -p $prompts -n 0 -r $repeat --json
    status=$? prompt=''
    for n in $(echo $prompts | tr ',' ' '); do
        tps=$(speed "$out/$label-prompts.out" "pp$n")
        [ -z "$tps" ] || prompt="$prompt $n tokens: $(calc "int($tps * 10 + 0.5) / 10")"
        [ -z "$tps" ] || figure "prompt of $n, $label ($shape, $mode)" tokens/s 0 "$tps" shown
    done
    [ -n "$prompt" ] || skip "prompts of $label" "$label-prompts" $status
    awk -v m="$label: $shape, $layers layers" -v mode="$mode" -v gpu="$share_of" -v p="${predicted:-0}" \
        -v d="${decode:-0}" -v prompt="$prompt" 'BEGIN { printf("| %s | %s | %s | %s | %s |%s |\n", m, mode, gpu,
            p > 0 ? sprintf("%.1f", 1 / p) : "", d > 0 ? sprintf("%.1f", d) : "", prompt) }' >>"$speeds"

    # shellcheck disable=SC2086 # words
    if limited 60 "$label-trace" "$program" bench -q $same -p ${prompts%%,*} -n 1 -r 1 --json \
        --trace "$out/$label-trace.json"; then
        awk -F': ' -v m="$label" '
            /"traced"/ { on = 1 } !on { next } { sub(/,$/, "", $2) }
            /"tokens"/ { t = $2 } /"seconds"/ { s = $2 } /"cpu_seconds"/ { c = $2 } /"gpu_seconds"/ { g = $2 }
            /"overlap"/ { o = $2 } /"split_layers"/ { l = $2 } /"split_overlap"/ { so = $2 }
            /"exchange_seconds"/ { x = $2 }
            /"clock_error"/ { printf "| %s | %d | %.2f | %.2f | %.2f | %.2f | %d | %.2f | %.1f |\n",
                m, t, s * 1e3, c * 1e3, g * 1e3, o, l, so, x * 1e6 }' "$out/$label-trace.out" >>"$overlaps"
        # The token is the last one that was traced.
        awk -F': ' -v label="$label" -v sync="$sync" '
            /"traced"/ { on = 1 } !on { next } { sub(/,$/, "", $2) } /"split_layers"/ { l = $2 }
            /"split_overlap"/ { o = $2 } /"exchange_seconds"/ { x = $2 }
            END { if (l + 0 == 0) exit
                printf "overlap of the neurons of both devices, %s\tshare\t1\t%g\tleast\n", label, o
                printf "exchange in a token, %s\tus\t%g\t%g\tmost\n", label, sync, x * 1e6 }' \
            "$out/$label-trace.out" >>"$figures"
    else
        skip "trace of $label" "$label-trace" $?
    fi

    # shellcheck disable=SC2086 # words
    watched 60 "$label-memory" "$program" bench -q $same -p 0 -n 4 -d $depth -r 1 --json
    if [ -n "$grown" ] && [ -n "$accounted" ]; then
        figure "GPU memory, $label" MiB "$(calc "$accounted / 1048576")" "$grown" near
        awk -v m="$label" -v a="$accounted" -v g="$grown" \
            'BEGIN { printf "| %s | %.0f | %d |\n", m, a / 1048576, g }' >>"$memories"
    fi
done <"$out/models.txt"
table <"$speeds"
say ""
say "Tokens per second; decode after $depth tokens. \`place\` does not predict prompts."

part "Overlap"
table <"$overlaps"
say ""
say "A traced token is slower: every timestamp is a kernel."

part "Kernels"
for label in dense split; do
    [ -r "$out/$label-trace.json" ] || continue
    for kind in token prompt; do
        say "$label, $kind:"
        say ""
        steps_of "$out/$label-trace.json" $kind >"$out/$label-$kind.md"
        table <"$out/$label-$kind.md"
        say ""
    done
done
# Steps that read at least 4 MB: the time of their bytes, and 5 us for the step and its timestamp.
[ ! -r "$out/dense-token.md" ] || awk -F' *[|] *' -v stream="$stream" 'NR > 2 && stream > 0 && $4 * $6 >= 4000 {
    printf "%s in a token, dense\tus\t%g\t%g\tmost\n", $2, $4 * $6 / stream + 5, $4 }' "$out/dense-token.md" >>"$figures"

part "Memory"
if [ -n "$(memory_used)" ]; then
    watched 30 devices-memory "$program" inspect --devices
    figure "GPU memory of inspect --devices" MiB 64 "$grown" most
    say "inspect --devices: $grown MiB (goal: none)"
    say ""
    table <"$memories"
else
    say "Not measured: nothing here reports the memory of $device."
fi

# ---- prompts of all lengths, two contexts --------------------------------------------------------

part "Prompt lengths"
file=$work/dense.gguf
if [ -r "$file" ] && limited 60 ladder "$program" bench -q -m "$file" --device "$device" --mode dense -p $ladder -n 0 \
    -r $repeat --json; then
    ladder_rows=$out/ladder.tsv
    for n in $(echo $ladder | tr ',' ' '); do
        echo "$n $(speed "$out/ladder.out" "pp$n")"
    done >"$ladder_rows"
    awk 'BEGIN { printf "| tokens | ms | tokens/s |\n|---:|---:|---:|\n" }
        NF == 2 { printf "| %d | %.2f | %.1f |\n", $1, 1e3 * $1 / $2, $2 }' "$ladder_rows" | table
    # A prompt takes at most as long as the next longer one.
    awk 'NF == 2 { ms = 1e3 * $1 / $2
        if (n) printf "prompt of %d, at most the time of %d\tms\t%g\t%g\tmost\n", n, $1, ms, last
        n = $1; last = ms }' "$ladder_rows" >>"$figures"
else
    status=$?
    [ ! -r "$file" ] || skip "prompt lengths" ladder $status
    [ -r "$file" ] || say "Not measured: no model."
fi

part "Two contexts"
if [ -r "$file" ]; then
    pair() { limited 60 "$1" "$program" bench -q -m "$file" --device "$device" --mode dense -b $batch \
        -p 0 -n $n_gen -d $depth -r $repeat --json --vram-budget "$half"; }
    half=$(calc "${free_mib:-0} / 1024 * 0.45")
    pair pair1 &
    first=$!
    pair pair2
    wait $first
    one=$(speed "$out/pair1.out" "tg$n_gen") two=$(speed "$out/pair2.out" "tg$n_gen")
    say "| alone | first of two | second of two |"
    say "|---:|---:|---:|"
    say "| $single | ${one:-failed} | ${two:-failed} |"
    slower=$(calc "${one:-0} < ${two:-0} ? ${one:-0} : ${two:-0}")
    figure "the slower of two contexts, half the speed of one" tokens/s "$(calc "$single / 2")" "$slower" least
else
    say "Not measured: no model."
fi
finish
