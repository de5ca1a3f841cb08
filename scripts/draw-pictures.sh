#!/bin/sh
# Draws the pictures of the documentation into docs/img (or FOLDER):
#   module-graph.svg    the modules of src/ and their dependencies, from the SEES lists of the build
#   layer-timeline.svg  one sparse layer of a decode step on two devices over time
#   hot-prefix.svg      a layer's neurons by frequency, with the hot prefix
#   scripts/draw-pictures.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
folder=${1:-docs/img}
mkdir -p "$folder"

# Shared by the three programs: start and end of a drawing, boxes, texts, arrows.
common='
function start(w, h) {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n", w, h, w, h
    print "<style>text{font-family:system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",Helvetica,Arial,sans-serif;" \
          "font-size:13px;fill:#222}.mid{text-anchor:middle}.end{text-anchor:end}.small{font-size:11.5px;fill:#555}" \
          ".strong{font-weight:600}path{fill:none}</style>"
    print "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">" \
          "<path d=\"M0 0L8 4L0 8z\" style=\"fill:#666\"/></marker></defs>"
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", w, h
}
function box(x, y, w, h, fill, stroke) {
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"%s\"/>\n", x, y, w, h, fill, stroke
}
function text(x, y, class, s) { printf "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, s }
function arrow(d) { printf "<path d=\"%s\" stroke=\"#666\" stroke-width=\"1.2\" marker-end=\"url(#head)\"/>\n", d }
function labelled(x, y, w, h, fill, stroke, s) {
    box(x, y, w, h, fill, stroke)
    text(x + w / 2, y + h / 2 + 4, "mid", s)
}
'

# "module: dependency dependency ..." for every module. The program's modules see the public
# functions of all modules that define some.
folders=$(ls src/*/CMakeLists.txt src/*/*/CMakeLists.txt | xargs -n 1 dirname | sed 's|^src/||')
public=$(grep -l PUBLIC_HEADERS src/*/CMakeLists.txt | xargs -n 1 dirname | xargs -n 1 basename | grep -vx -e cli -e server | tr '\n' ' ')
dependencies() {
    for module in $folders; do
        sees=$(tr '\n' ' ' <"src/$module/CMakeLists.txt" | sed -n 's/.* SEES \([^)]*\)).*/\1/p' | sed 's/PUBLIC_HEADERS//')
        case $module in
        cli) sees="$public $sees" ;;
        server) sees="api $sees" ;; # it uses only the public headers of api
        esac
        printf '%s: %s\n' "$module" "$sees"
    done
}

# The row of a module is its longest path to a module without dependencies; arrows that follow from
# others are omitted. An arrow over several rows passes through a point in each row. These points take
# part in the layout, so that no arrow crosses a box. The layout orders each row by the mean place of
# neighbours, then moves modules near that mean.
dependencies | awk "$common"'
function reaches(a, b,   i) {
    if (a == b) return 1
    for (i = 1; i <= n_sees[a]; i++) if (reaches(sees[a, i], b)) return 1
    return 0
}
function depth(m,   i, d, best) {
    if (m in level) return level[m]
    if (m in open) { print "modules in a circle: " m > "/dev/stderr"; exit 1 }
    open[m]; best = 0
    for (i = 1; i <= n_sees[m]; i++) if ((d = depth(sees[m, i]) + 1) > best) best = d
    return level[m] = best
}
function add(node, l) { level[node] = l; row[l, ++width[l]] = node }
function join(upper, lower) { near[upper, ++degree[upper]] = lower; near[lower, ++degree[lower]] = upper }
function half(node) { return node in sees_any ? 52 : 12 } # half of the room that a node takes
# Mean place of the neighbours in the rows below (side -1), above (1) or both (0).
function mean(node, side,   i, sum, count) {
    for (i = 1; i <= degree[node]; i++)
        if (side == 0 || level[near[node, i]] == level[node] + side) { sum += x[near[node, i]]; count++ }
    return count ? sum / count : x[node]
}
function sort_row(l, side,   k, j, m) {
    for (k = 1; k <= width[l]; k++) key[row[l, k]] = mean(row[l, k], side)
    for (k = 2; k <= width[l]; k++)
        for (j = k; j > 1 && key[row[l, j]] < key[row[l, j - 1]]; j--) {
            m = row[l, j]; row[l, j] = row[l, j - 1]; row[l, j - 1] = m
        }
}
function spread(l,   k, at, shift) { # in order, apart, as near to `key` as that allows
    for (k = 1; k <= width[l]; k++) {
        x[row[l, k]] = key[row[l, k]]
        if (k > 1) {
            at = x[row[l, k - 1]] + half(row[l, k - 1]) + half(row[l, k])
            if (x[row[l, k]] < at) x[row[l, k]] = at
        }
        shift += x[row[l, k]] - key[row[l, k]]
    }
    for (k = 1; k <= width[l]; k++) x[row[l, k]] -= shift / width[l]
}
{
    m = substr($1, 1, length($1) - 1)
    name[++n] = m
    listed[m] = $0
    sees_any[m]
}
END {
    for (k = 1; k <= n; k++) { # words after the modules are other arguments
        words = split(listed[name[k]], word, " ")
        for (i = 2; i <= words && word[i] in listed; i++)
            if (!((name[k], word[i]) in seen)) {
                seen[name[k], word[i]]
                sees[name[k], ++n_sees[name[k]]] = word[i]
            }
    }
    for (k = 1; k <= n; k++) if (depth(name[k]) > top) top = level[name[k]]
    for (k = 1; k <= n; k++) row[level[name[k]], ++width[level[name[k]]]] = name[k]
    for (k = 1; k <= n; k++) {
        m = name[k]
        for (i = 1; i <= n_sees[m]; i++) {
            d = sees[m, i]; direct = 1
            for (j = 1; j <= n_sees[m]; j++) if (j != i && reaches(sees[m, j], d)) direct = 0
            if (!direct) continue
            from[++n_arrows] = m
            points[n_arrows] = 0
            for (l = level[m] - 1; l > level[d]; l--) {
                node = m "." d "." l
                add(node, l)
                join(points[n_arrows] ? via[n_arrows, points[n_arrows]] : m, node)
                via[n_arrows, ++points[n_arrows]] = node
            }
            join(points[n_arrows] ? via[n_arrows, points[n_arrows]] : m, d)
            via[n_arrows, ++points[n_arrows]] = d
        }
    }
    for (l = 0; l <= top; l++) for (k = 1; k <= width[l]; k++) x[row[l, k]] = 100 * k - 50 * width[l]
    for (turn = 0; turn < 24; turn++) {
        if (turn % 2) for (l = top - 1; l >= 0; l--) { sort_row(l, 1); spread(l) }
        else for (l = 1; l <= top; l++) { sort_row(l, -1); spread(l) }
    }
    for (turn = 0; turn < 60; turn++)
        for (l = 0; l <= top; l++) {
            for (k = 1; k <= width[l]; k++) key[row[l, k]] = mean(row[l, k], 0)
            spread(l)
        }
    left = 1e9; right = -1e9
    for (node in level) {
        if (x[node] - half(node) < left) left = x[node] - half(node)
        if (x[node] + half(node) > right) right = x[node] + half(node)
    }
    h = (top + 1) * 70 + 10
    for (node in level) { x[node] = int(x[node] - left + 10.5); y[node] = h - 45 - 70 * level[node] }
    start(int(right - left + 20), h)
    for (k = 1; k <= n_arrows; k++) {
        m = from[k]; at = x[m]; over = y[m] + 15
        line = "M" at " " over
        for (i = 1; i <= points[k]; i++) {
            d = via[k, i]; end = i == points[k] ? y[d] - 16 : y[d]; middle = int((over + end) / 2)
            line = line "C" at " " middle " " x[d] " " middle " " x[d] " " end
            at = x[d]; over = end
        }
        arrow(line)
    }
    for (k = 1; k <= n; k++)
        labelled(x[name[k]] - 44, y[name[k]] - 15, 88, 30, "#eef3f8", "#4878a8", name[k])
    print "</svg>"
}' >"$folder/module-graph.new"
mv "$folder/module-graph.new" "$folder/module-graph.svg"

awk "$common"'
BEGIN {
    cpu = "#dbe7f3"; gpu = "#e6efd8"; wait = "#f4f4f4"; edge = "#777"
    start(960, 250)
    text(156, 62, "end strong", "GPU (primary)"); text(156, 80, "end small", "neurons [0, hot)")
    text(156, 172, "end strong", "CPU (secondary)"); text(156, 190, "end small", "neurons [hot, n_ff)")
    text(254, 24, "mid small", "attention half"); text(610, 24, "mid small", "FFN half")
    printf "<path d=\"M345 14V214\" stroke=\"#bbb\" stroke-dasharray=\"4 4\"/>\n"
    labelled(170, 42, 168, 44, gpu, edge, "norm, QKV, attention")
    labelled(352, 42, 112, 44, gpu, edge, "norm, predictor")
    labelled(472, 42, 62, 44, gpu, edge, "publish")
    labelled(542, 42, 186, 44, gpu, edge, "selected hot neurons")
    labelled(736, 42, 68, 44, gpu, edge, "receive")
    labelled(812, 42, 62, 44, gpu, edge, "x +=")
    text(882, 69, "small", "next layer")
    labelled(170, 152, 332, 44, wait, "#bbb", "workers spin on the flag")
    labelled(528, 152, 176, 44, cpu, edge, "selected cold neurons")
    labelled(712, 152, 66, 44, cpu, edge, "publish")
    labelled(786, 152, 88, 44, wait, "#bbb", "spin")
    arrow("M503 86C503 120 528 118 532 150")
    text(494, 122, "end small", "FFN input, bitmaps")
    arrow("M745 152C745 118 770 120 770 88")
    text(778, 122, "small", "partial sums")
    arrow("M170 226H876"); text(890, 230, "small", "time")
    print "</svg>"
}' >"$folder/layer-timeline.svg"

# Frequencies of synth for density 0.1 and skew 0.26:0.8 (docs/synth.md): a neuron fires with probability
# Phi(t), where t is normal with mean mu and deviation tau. Bisection finds the tau at which the share of
# activations is the share of the sum of frequencies.
awk "$common"'
function phi(t,   u, p) { # normal distribution, Abramowitz and Stegun 26.2.17
    u = 1 / (1 + 0.2316419 * (t < 0 ? -t : t))
    p = 0.39894228 * exp(-t * t / 2) * u * (0.31938153 + u * (-0.356563782 + u * (1.781477937 + u * (-1.821255978 + u * 1.330274429))))
    return t < 0 ? p : 1 - p
}
function quantile(p,   lo, hi, i) {
    lo = -8; hi = 8
    for (i = 0; i < 60; i++) if (phi((lo + hi) / 2) < p) lo = (lo + hi) / 2; else hi = (lo + hi) / 2
    return lo
}
function frequency(share, tau) { return phi(mu1 * sqrt(1 + tau * tau) + tau * quantile(1 - share)) }
function mass(a, tau,   i, sum, part) {
    for (i = 0; i < 400; i++) { f = frequency((i + 0.5) / 400, tau); sum += f; if ((i + 0.5) / 400 < a) part += f }
    return part / sum
}
BEGIN {
    mu1 = quantile(0.1); lo = 0; hi = 4
    for (i = 0; i < 30; i++) if (mass(0.26, (lo + hi) / 2) < 0.8) lo = (lo + hi) / 2; else hi = (lo + hi) / 2
    tau = lo; left = 60; right = 780; base = 250; high = 210; bars = 96; step = (right - left) / bars
    hot = left + 0.26 * (right - left)
    start(820, 320)
    for (i = 0; i < bars; i++) {
        f = frequency((i + 0.5) / bars, tau)
        printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", left + i * step, base - f * high,
            step - 1.5, f * high, i + 0.5 < 0.26 * bars ? "#8fb35a" : "#7ba3cc"
    }
    printf "<path d=\"M%d %dH%d\" stroke=\"#555\"/>\n", left, base, right
    printf "<path d=\"M%d 30V%d\" stroke=\"#222\" stroke-width=\"1.5\" stroke-dasharray=\"5 4\"/>\n", hot, base + 8
    text(hot + 8, 42, "strong", "split point: hot")
    text((left + hot) / 2, base + 24, "mid strong", "hot prefix [0, hot)"); text((left + hot) / 2, base + 42, "mid small", "on the GPU: 26% of the neurons,")
    text((left + hot) / 2, base + 58, "mid small", "80% of the activations")
    text((hot + right) / 2, base + 24, "mid strong", "cold neurons [hot, n_ff)"); text((hot + right) / 2, base + 42, "mid small", "on the CPU: rows are read only where selected")
    text((left + right) / 2 + 60, 80, "mid small", "height: frequency, the fraction of tokens for which the neuron is active")
    text((left + right) / 2 + 60, 98, "mid small", "(density 0.1, skew 0.26:0.8, as planted by synth)")
    text(left - 8, base + 4, "end small", "0"); text(left - 8, base - high + 4, "end small", "1")
    printf "<path d=\"M%d %dV%d\" stroke=\"#555\"/>\n", left, base - high, base
    print "</svg>"
}' >"$folder/hot-prefix.svg"
