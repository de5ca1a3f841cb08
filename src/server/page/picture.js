/* The picture of neurons: a row per layer, a column per bin of neurons in the file's order, or per
 * expert. Active units glow and fade. The GPU counts the active neurons of its hot prefix without
 * saying which ones, so the prefix is one area whose brightness is their fraction. */
const picture = (() => {
    const $ = (id) => document.getElementById(id);
    const canvas = $('canvas'), gutter = 24, fade = 0.55;
    let layers = [], shown = [], scheduled = false, rate = 0, last = null, drawn = 0;
    let ramps = null;

    const channel = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
    function ramp(stops) {
        const out = [];
        for (let level = 0; level < 256; level++) {
            /* units that fire rarely must differ from units that never fire */
            const x = Math.pow(level / 255, 0.7);
            const k = Math.max(1, stops.findIndex(([at]) => at >= x));
            const [a, from] = stops[k - 1], [b, to] = stops[k], t = (x - a) / (b - a);
            const mix = [0, 1, 2].map((c) => Math.round(channel(from, c) * (1 - t) + channel(to, c) * t));
            out.push(`rgb(${mix})`);
        }
        return out;
    }
    function makeRamps() {
        const dark = document.documentElement.dataset.theme === 'dark';
        const cell = getComputedStyle(document.documentElement).getPropertyValue('--cell').trim();
        ramps = dark
            ? { cell, cpu: ramp([[0, cell], [0.3, '#7c2d12'], [0.65, '#f97316'], [1, '#fff1d6']]),
                gpu: ramp([[0, cell], [0.4, '#115e59'], [0.75, '#2dd4bf'], [1, '#d7fff8']]) }
            : { cell, cpu: ramp([[0, cell], [0.3, '#fdba74'], [0.65, '#ea580c'], [1, '#7c1d06']]),
                gpu: ramp([[0, cell], [0.4, '#99e0d8'], [0.75, '#14988c'], [1, '#0b4f4a']]) };
    }

    const columns = (layer) => (layer.kind === 'experts' ? Math.min(layer.units, layer.levels.length) : layer.levels?.length ?? 0);
    /* Expert e is in bin e * bins / experts. */
    const level = (values, layer, k) => {
        const n = columns(layer);
        return layer.kind === 'experts' ? values[Math.floor(k * values.length / n)] : values[k];
    };
    const rowHeight = () => Math.max(5, Math.min(26, Math.floor(460 / layers.length)));

    function draw() {
        scheduled = false;
        if (!layers.length || $('neurons').hidden) return;
        if (!ramps) makeRamps();
        const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = rowHeight() * layers.length;
        if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
            canvas.width = Math.round(width * scale);
            canvas.height = Math.round(height * scale);
            canvas.style.height = `${height}px`;
        }
        const g = canvas.getContext('2d'), h = rowHeight(), style = getComputedStyle(document.body);
        g.setTransform(scale, 0, 0, scale, 0, 0);
        g.clearRect(0, 0, width, height);
        g.font = `10px ${style.fontFamily}`;
        g.textBaseline = 'middle';
        g.textAlign = 'right';
        const every = Math.ceil(14 / h);
        /* Cells follow the measured values: they rise at once and fall by a fraction per frame. */
        let moving = false;
        const now = performance.now(), steps = Math.min(4, (now - drawn) / 60);
        drawn = now;
        layers.forEach((layer, i) => layer.levels?.forEach((to, k) => {
            const from = shown[i][k], aim = Math.max(0, to);
            const next = aim >= from ? aim : from + (aim - from) * (1 - Math.pow(fade, steps));
            moving = moving || Math.abs(next - aim) > 1;
            shown[i][k] = next;
        }));
        layers.forEach((layer, i) => {
            const y = i * h, gap = h > 6 ? 2 : 1, wide = width - gutter;
            if (i % every === 0) {
                g.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--muted');
                g.fillText(String(i), gutter - 8, y + h / 2);
            }
            g.fillStyle = ramps.cell;
            g.fillRect(gutter, y, wide, h - gap);
            const n = columns(layer), hot = wide * layer.hot / layer.units;
            for (let k = 0; k < n; k++) {
                const value = level(shown[i], layer, k), x0 = Math.round(wide * k / n), x1 = Math.round(wide * (k + 1) / n);
                if (value < 3) continue;
                g.fillStyle = ramps.cpu[Math.min(255, Math.round(value))];
                const space = layer.kind === 'experts' && x1 - x0 > 4 ? 1 : 0;
                g.fillRect(gutter + x0, y, x1 - x0 - space, h - gap);
            }
            if (layer.hot) {
                const share = layer.kind === 'dense' ? 1 : layer.hot_active / layer.hot;
                g.fillStyle = ramps.gpu[Math.round(255 * Math.min(1, share))];
                g.fillRect(gutter, y, hot, h - gap);
                g.fillStyle = ramps.gpu[200];
                g.fillRect(gutter + hot - 1, y, 2, h - gap);
            }
        });
        if (moving) schedule();
    }
    function schedule() {
        if (scheduled) return;
        scheduled = true;
        requestAnimationFrame(draw);
    }

    const percent = (x) => `${(100 * x).toFixed(x < 0.0995 ? 1 : 0)}%`;
    function words(event) {
        const kinds = new Set(event.layers.map((l) => l.kind));
        const gpu = event.layers.some((l) => l.hot > 0);
        if (!kinds.has('neurons') && !kinds.has('experts'))
            return 'This model runs dense: every neuron of every layer is computed for every token, so there is nothing to choose and nothing to show.';
        const unit = kinds.has('experts') ? 'expert' : 'neuron';
        const what = kinds.has('experts') ? 'The colour says how often tokens used the expert.' : 'The colour says how often the neurons of a cell fired.';
        const mixed = kinds.has('dense') ? ' Layers without cells are dense: all of their neurons are computed.' : '';
        const where = gpu ? ` The left part of a row, the hot prefix, is on the GPU, which counts its ${unit}s together.` : '';
        return `${event.layers.length} layers from top to bottom, ${unit}s from left to right in the file's order. ${what}${where}${mixed}`;
    }
    function table(event) {
        $('rows').replaceChildren(...event.layers.map((l, i) => {
            const row = document.createElement('tr'), dense = l.kind === 'dense';
            const active = dense ? l.units : l.active;
            const cellsOf = [i, l.units, active.toFixed(dense ? 0 : 1), percent(active / l.units), percent(l.hot / l.units)];
            row.append(...cellsOf.map((text, k) => {
                const cell = document.createElement(k ? 'td' : 'th');
                if (!k) cell.scope = 'row';
                cell.textContent = text;
                return cell;
            }));
            return row;
        }));
    }

    function update(event) {
        last = event;
        if (shown.length !== event.layers.length || shown.some((s, i) => s.length !== (event.layers[i].levels?.length ?? 0)))
            shown = event.layers.map((l) => new Array(l.levels?.length ?? 0).fill(0));
        layers = event.layers;
        if ($('neurons').hidden) return;
        const some = layers.some((l) => l.kind !== 'dense'), experts = layers.some((l) => l.kind === 'experts');
        $('neurons-title').textContent = experts ? 'Experts' : 'Neurons';
        $('unit').textContent = experts ? 'Experts' : 'Neurons';
        $('axis-left').textContent = experts ? 'expert 0' : 'first neuron';
        $('axis-right').textContent = experts ? `expert ${layers.find((l) => l.kind === 'experts').units - 1}` : 'last';
        $('figure-weights').textContent = percent(event.weight_share);
        $('figure-ffn').textContent = percent(event.ffn_share);
        const text = words(event);
        if ($('kind').textContent !== text) $('kind').textContent = text;
        $('picture').hidden = !some && !layers.some((l) => l.hot);
        $('numbers').hidden = false;
        $('legend-gpu').hidden = !layers.some((l) => l.hot);
        if ($('numbers').open) table(event);
        const mean = layers.filter((l) => l.kind !== 'dense').map((l) => l.active / l.units);
        canvas.setAttribute('aria-label', mean.length
            ? `Active ${experts ? 'experts' : 'neurons'} per layer: between ${percent(Math.min(...mean))} and ${percent(Math.max(...mean))}. The numbers are in the table below.`
            : 'All neurons are computed.');
        schedule();
    }

    canvas.addEventListener('pointermove', (e) => {
        const box = canvas.getBoundingClientRect(), i = Math.floor((e.clientY - box.top) / rowHeight());
        const layer = layers[i], x = (e.clientX - box.left - gutter) / (box.width - gutter);
        if (!layer || x < 0 || x > 1) {
            $('hint').textContent = '';
            return;
        }
        const n = columns(layer) || 1, k = Math.min(n - 1, Math.floor(x * n));
        const first = Math.ceil(k * layer.units / n), end = Math.max(first + 1, Math.ceil((k + 1) * layer.units / n));
        const range = end - first > 1 ? `${first}–${end - 1}` : first;
        const unit = layer.kind === 'experts' ? 'expert' : end - first > 1 ? 'neurons' : 'neuron';
        let share = 'always computed';
        if (x * layer.units < layer.hot) share = layer.kind === 'dense' ? 'GPU, always computed' : `GPU, hot prefix fires ${percent(layer.hot_active / layer.hot)}`;
        else if (layer.kind !== 'dense') share = `active ${percent(Math.max(0, level(layer.levels, layer, k)) / 255)}`;
        $('hint').textContent = `Layer ${i}, ${unit} ${range}: ${share}`;
    });
    canvas.addEventListener('pointerleave', () => { $('hint').textContent = ''; });
    $('numbers').addEventListener('toggle', () => last && table(last));
    window.addEventListener('resize', schedule);

    return {
        update,
        rate(value) {
            rate = value || rate;
            $('figure-rate').textContent = rate ? rate.toFixed(rate < 100 ? 1 : 0) : '–';
        },
        refresh() { /* the theme changed, or the panel was opened */
            ramps = null;
            if (last) update(last);
        },
    };
})();
