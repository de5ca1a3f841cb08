/* inspect_svg.c: three charts of a prepared model's neurons, for a report.
 *
 *   left          hot/cold curves, one per layer: the share of all activations that the most active
 *                 share of the neurons has; the thick one is the median over layers
 *   right, above  per layer, the share of neurons that fires for a token (bars), and the share that
 *                 the predictor selects (dots)
 *   right, below  per layer, the predictor's contribution recall
 *
 * Positions are pixels of a fixed picture. A chart is a `panel`: a rectangle with linear scales. */
#include "inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "svg.h"

enum {
    WIDTH = 1200,
    HEIGHT = 700,
    TICKS = 6,       /* at most, per axis */
    LAYER_TICKS = 9, /* likewise, along layers */
    TEXT_BYTES = 256
};

static const char style[] = ".start{text-anchor:start}\n"
                            ".axis{stroke:#555;stroke-width:1}\n"
                            ".even{stroke:#999;stroke-width:1;stroke-dasharray:5 4}\n"
                            ".guide{stroke:#111;stroke-width:1;stroke-dasharray:2 3}\n"
                            ".median{stroke:#111;stroke-width:3;stroke-linejoin:round}\n"
                            ".fires{fill:#4878a8}\n"
                            ".selects{fill:#d1495b}\n"
                            ".recall{fill:#2e7d5b}\n"
                            ".recallline{stroke:#2e7d5b;stroke-width:1.5}\n";

/* ---- panels ---------------------------------------------------------------------------------- */

typedef struct panel {
    svg *out;
    double left, top, width, height;
    double x0, x1, y0, y1; /* values at the left, right, bottom and top edges */
} panel;

static double at_x(const panel *p, double v) {
    return p->left + p->width * (v - p->x0) / (p->x1 - p->x0);
}

static double at_y(const panel *p, double v) {
    return p->top + p->height * (1 - (v - p->y0) / (p->y1 - p->y0));
}

static void draw_line(const panel *p, double x0, double y0, double x1, double y1,
                      const char *attributes) {
    svg_line(p->out, at_x(p, x0), at_y(p, y0), at_x(p, x1), at_y(p, y1), attributes);
}

/* `v` with as few decimals as distinguish ticks that are `step` apart. */
static void tick_text(double v, double step, const char *unit, char text[TEXT_BYTES]) {
    int decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
    snprintf(text, TEXT_BYTES, "%.*f%s", decimals, v, unit);
    svg_points(text);
}

static void draw_frame(const panel *p, const char *head, const char *x_label, const char *y_label) {
    char text[TEXT_BYTES];
    double step = svg_tick_step(p->y1 - p->y0, TICKS);
    /* From the least visible multiple of the step; + 0.0 makes a negative zero positive. */
    double first = ceil(p->y0 / step - 1e-9) * step + 0.0;
    for (double v = first; v <= p->y1 + step * 1e-6; v += step) {
        draw_line(p, p->x0, v, p->x1, v, "class=\"grid\"");
        tick_text(v, step, "%", text);
        svg_label(p->out, p->left - 8, at_y(p, v) + 4, text, "class=\"tick end\"");
    }
    draw_line(p, p->x0, p->y0, p->x1, p->y0, "class=\"axis\"");
    draw_line(p, p->x0, p->y0, p->x0, p->y1, "class=\"axis\"");
    svg_label(p->out, p->left, p->top - 16, head, "class=\"head\"");
    svg_label(p->out, p->left + p->width / 2, p->top + p->height + 42, x_label, "class=\"mid\"");
    svg_text(p->out, p->left - 52, p->top + p->height / 2, true, y_label, strlen(y_label),
             "class=\"mid\"");
}

static void draw_x_ticks(const panel *p, double first, double last, double step, bool grid,
                         const char *unit) {
    char text[TEXT_BYTES];
    for (double v = first; v <= last + step * 1e-6; v += step) {
        if (grid) draw_line(p, v, p->y0, v, p->y1, "class=\"grid\"");
        double x = at_x(p, v), y = p->top + p->height;
        svg_line(p->out, x, y, x, y + 5, "class=\"axis\"");
        tick_text(v, step, unit, text);
        svg_label(p->out, x, y + 20, text, "class=\"tick mid\"");
    }
}

/* Layers are numbered from 0; each is in the middle of a slot of width 1. */
static void set_layers(panel *p, int n_layers) {
    p->x0 = -0.5;
    p->x1 = n_layers - 0.5;
}

static void draw_layer_ticks(const panel *p, int n_layers) {
    double step = fmax(1, svg_tick_step(n_layers - 1, LAYER_TICKS));
    draw_x_ticks(p, 0, n_layers - 1, step, false, "");
}

/* ---- hot/cold curves ------------------------------------------------------------------------- */

/* Colours by depth, first to last layer: dark blue, purple, red, orange; all readable on white. */
static void depth_color(double depth, char color[8]) {
    static const unsigned char stops[4][3] = {
        {0x0d, 0x08, 0x87}, {0x7e, 0x03, 0xa8}, {0xcc, 0x47, 0x78}, {0xf8, 0x95, 0x40}};
    double at = fmin(fmax(depth, 0), 1) * 3;
    int i = at < 2 ? (int)at : 2;
    unsigned char mixed[3];
    for (int k = 0; k < 3; k++)
        mixed[k] = (unsigned char)lround(stops[i][k] + (at - i) * (stops[i + 1][k] - stops[i][k]));
    snprintf(color, 8, "#%02x%02x%02x", mixed[0], mixed[1], mixed[2]);
}

static double depth_of(int layer, int n_layers) {
    return n_layers > 1 ? (double)layer / (n_layers - 1) : 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over layers for each point of the curve; `y` in percent. Returns the number of layers. */
static int median_curve(const neuron_stats *n, double y[NEURONS_CURVE + 1]) {
    double values[NEURONS_MAX_LAYERS];
    int count = 0;
    for (int k = 0; k <= NEURONS_CURVE; k++) {
        count = 0;
        for (int i = 0; i < n->n_layers; i++)
            if (n->layers[i].n_neurons) values[count++] = 100 * n->layers[i].curve[k];
        qsort(values, (size_t)count, sizeof *values, ascending);
        if (count) y[k] = 0.5 * (values[(count - 1) / 2] + values[count / 2]);
    }
    return count;
}

static void draw_curve(const panel *p, const double y[NEURONS_CURVE + 1], const char *attributes) {
    double px[NEURONS_CURVE + 1], py[NEURONS_CURVE + 1];
    for (int k = 0; k <= NEURONS_CURVE; k++) {
        px[k] = at_x(p, 100.0 * k / NEURONS_CURVE);
        py[k] = at_y(p, y[k]);
    }
    svg_polyline(p->out, px, py, NEURONS_CURVE + 1, attributes);
}

/* Marks where the median reaches 80%, the usual figure for the skew of a model. */
static void draw_reading(const panel *p, const double y[NEURONS_CURVE + 1], const char *units) {
    enum { READ_AT = 80 };
    int k = 1;
    while (k < NEURONS_CURVE && y[k] < READ_AT) k++;
    double rise = y[k] - y[k - 1];
    double x = 100.0 / NEURONS_CURVE * (k - 1 + (rise > 0 ? (READ_AT - y[k - 1]) / rise : 1));
    draw_line(p, p->x0, READ_AT, x, READ_AT, "class=\"guide\"");
    draw_line(p, x, READ_AT, x, p->y0, "class=\"guide\"");
    svg_circle(p->out, at_x(p, x), at_y(p, READ_AT), 5,
               "fill=\"#fff\" stroke=\"#111\" stroke-width=\"2\"");
    /* Right of the guide if the words fit there. */
    enum { ROOM_UP_TO = 60, LINE = 18 };
    char number[TEXT_BYTES], text[2 * TEXT_BYTES], attributes[2 * TEXT_BYTES];
    bool right = x < ROOM_UP_TO;
    double at = at_x(p, x) + (right ? 14 : -14), y0 = at_y(p, READ_AT) + 2 * LINE;
    snprintf(attributes, sizeof attributes,
             "class=\"%s\" font-weight=\"600\" paint-order=\"stroke\" stroke=\"#fff\" "
             "stroke-width=\"4\"",
             right ? "start" : "end");
    tick_text(x, 0.1, "%", number);
    snprintf(text, sizeof text, "in %s of the %s", number, units);
    svg_label(p->out, at, y0, "80% of the activations", attributes);
    svg_label(p->out, at, y0 + LINE, text, attributes);
}

static void draw_curve_legend(const panel *p, int n_layers) {
    enum { STEPS = 48, BAR = 168, ROW = 24 };
    double x = p->left + p->width - BAR - 96, y = p->top + p->height - 96;
    char color[8], fill[32], text[TEXT_BYTES];
    svg_rect(p->out, x - 16, y - 20, BAR + 104, 3 * ROW + 20,
             "fill=\"#fff\" fill-opacity=\"0.85\" stroke=\"#ddd\"");
    svg_line(p->out, x, y, x + 36, y, "class=\"median\"");
    svg_label(p->out, x + 46, y + 4, "median of the layers", "");
    svg_line(p->out, x, y + ROW, x + 36, y + ROW, "class=\"even\"");
    svg_label(p->out, x + 46, y + ROW + 4, "uniform", "");
    for (int i = 0; i < STEPS; i++) {
        depth_color(depth_of(i, STEPS), color);
        snprintf(fill, sizeof fill, "fill=\"%s\"", color);
        svg_rect(p->out, x + 46 + (BAR - 60.0) * i / STEPS, y + 2 * ROW - 5,
                 (BAR - 60.0) / STEPS + 0.5, 10, fill);
    }
    svg_label(p->out, x + 36, y + 2 * ROW + 4, "layer 0", "class=\"end\"");
    snprintf(text, sizeof text, "%d", n_layers - 1);
    svg_label(p->out, x + BAR - 6, y + 2 * ROW + 4, text, "");
}

static void draw_curves(svg *out, const neuron_stats *n) {
    panel p = {.out = out, .left = 84, .top = 132, .width = 520, .height = 500};
    p.x1 = p.y1 = 100;
    char title[TEXT_BYTES], share[TEXT_BYTES];
    snprintf(title, sizeof title, "Hot and cold %s", n->units);
    snprintf(share, sizeof share, "share of the %s, most active first", n->units);
    draw_frame(&p, title, share, "share of all activations");
    draw_x_ticks(&p, 0, 100, 20, true, "%");
    draw_line(&p, 0, 0, 100, 100, "class=\"even\"");
    for (int i = 0; i < n->n_layers; i++) {
        double y[NEURONS_CURVE + 1];
        char color[8], attributes[96];
        if (!n->layers[i].n_neurons) continue;
        for (int k = 0; k <= NEURONS_CURVE; k++) y[k] = 100 * n->layers[i].curve[k];
        depth_color(depth_of(i, n->n_layers), color);
        snprintf(attributes, sizeof attributes,
                 "stroke=\"%s\" stroke-width=\"1.2\" stroke-opacity=\"0.75\"", color);
        draw_curve(&p, y, attributes);
    }
    double y[NEURONS_CURVE + 1];
    if (median_curve(n, y) > 0) {
        draw_curve(&p, y, "class=\"median\"");
        draw_reading(&p, y, n->units);
    }
    draw_curve_legend(&p, n->n_layers);
}

/* ---- per layer ------------------------------------------------------------------------------- */

static double dot_radius(const panel *p, int n_layers) {
    return fmin(5, fmax(1.5, 0.3 * p->width / n_layers));
}

static void draw_densities(svg *out, const neuron_stats *n) {
    panel p = {.out = out, .left = 720, .top = 132, .width = 440, .height = 200};
    double most = 0;
    bool selects = false;
    for (int i = 0; i < n->n_layers; i++) {
        most = fmax(most, fmax(n->layers[i].density, n->layers[i].selected)); /* NaN loses */
        selects = selects || !isnan(n->layers[i].selected);
    }
    double step = svg_tick_step(fmax(100 * most, 0.1) * 1.05, TICKS - 1);
    p.y1 = ceil(fmax(100 * most, 0.1) * 1.05 / step) * step;
    set_layers(&p, n->n_layers);
    char share[TEXT_BYTES];
    snprintf(share, sizeof share, "share of the %s", n->units);
    draw_frame(&p, "Active per token", "layer", share);
    draw_layer_ticks(&p, n->n_layers);
    double bar = fmin(44, 0.7 * p.width / n->n_layers);
    for (int i = 0; i < n->n_layers; i++) {
        const neuron_stats_layer *l = &n->layers[i];
        double y = at_y(&p, 100 * l->density);
        svg_rect(out, at_x(&p, i) - bar / 2, y, bar, p.top + p.height - y, "class=\"fires\"");
        if (!isnan(l->selected))
            svg_circle(out, at_x(&p, i), at_y(&p, 100 * l->selected), dot_radius(&p, n->n_layers),
                       "class=\"selects\" stroke=\"#fff\"");
    }
    double x = p.left + p.width, y = p.top - 20;
    svg_label(out, x, y + 4, selects ? "selected by the predictor" : "fire", "class=\"end\"");
    if (!selects) {
        svg_rect(out, x - 42, y - 6, 12, 12, "class=\"fires\"");
        return;
    }
    svg_circle(out, x - 174, y, 5, "class=\"selects\"");
    svg_label(out, x - 192, y + 4, "fire", "class=\"end\"");
    svg_rect(out, x - 234, y - 6, 12, 12, "class=\"fires\"");
}

static void draw_recall(svg *out, const neuron_stats *n) {
    panel p = {.out = out, .left = 720, .top = 432, .width = 440, .height = 200, .y1 = 100};
    double x[NEURONS_MAX_LAYERS], y[NEURONS_MAX_LAYERS], least = 1;
    int count = 0;
    for (int i = 0; i < n->n_layers; i++) least = fmin(least, n->layers[i].recall);
    double span = fmin(100, fmax(5, 100 * (1 - least) * 1.25));
    double step = svg_tick_step(span, TICKS - 1);
    p.y0 = fmax(0, 100 - ceil(span / step) * step);
    set_layers(&p, n->n_layers);
    draw_frame(&p, "Contribution recall of the predictor", "layer", "of all contributions");
    draw_layer_ticks(&p, n->n_layers);
    for (int i = 0; i < n->n_layers; i++) {
        if (isnan(n->layers[i].recall)) continue;
        x[count] = at_x(&p, i);
        y[count++] = at_y(&p, fmax(100 * n->layers[i].recall, p.y0));
    }
    if (count == 0) {
        svg_label(out, p.left + p.width / 2, p.top + p.height / 2,
                  "no predictor: every gate is computed", "class=\"sub mid\"");
        return;
    }
    svg_polyline(out, x, y, count, "class=\"recallline\"");
    for (int i = 0; i < count; i++)
        svg_circle(out, x[i], y[i], dot_radius(&p, n->n_layers), "class=\"recall\"");
}

/* ---- picture --------------------------------------------------------------------------------- */

static void append(char text[TEXT_BYTES], const char *format, long long v) {
    size_t n = strlen(text);
    snprintf(text + n, TEXT_BYTES - n, format, v);
}

/* "llama, 32 layers, n_embd 4096, n_ff 14336; frequencies of 16384 tokens; predictor ..." */
static void describe(const inspect_summary *s, char text[TEXT_BYTES]) {
    const neuron_stats *n = &s->neurons;
    text[0] = 0;
    snprintf(text, TEXT_BYTES, "%.*s",
             (int)(s->architecture.n_bytes < 40 ? s->architecture.n_bytes : 40),
             s->architecture.data);
    append(text, n->n_layers == 1 ? ", %lld layer" : ", %lld layers", n->n_layers);
    if (s->n_embd >= 0) append(text, ", n_embd %lld", s->n_embd);
    if (s->n_ff.max >= 0) append(text, ", n_ff %lld", s->n_ff.min);
    if (s->n_ff.max != s->n_ff.min) append(text, " to %lld", s->n_ff.max);
    if (n->tokens > 0) append(text, "; calibrated on %lld tokens", n->tokens);
    if (n->tokens == 0) append(text, "; planned, not measured on a text", 0);
    if (n->mean.rank > 0) append(text, "; predictor of rank %lld", (long long)n->mean.rank);
}

static void draw_title(svg *out, const gguf_file *f, const inspect_summary *s) {
    enum { SHOWN = 80 };
    gguf_string name = s->name;
    if (!name.n_bytes) {
        name.data = file_name(gguf_path(f));
        name.n_bytes = strlen(name.data);
    }
    if (name.n_bytes > SHOWN) name.n_bytes = SHOWN;
    char text[TEXT_BYTES];
    svg_text(out, 32, 48, false, name.data, (size_t)name.n_bytes, "class=\"title\"");
    describe(s, text);
    svg_label(out, 32, 74, text, "class=\"sub\"");
}

pi_status inspect_write_svg(const gguf_file *f, const inspect_summary *s, const char *path,
                            pi_error *err) {
    if (s->neurons.mean.n_neurons == 0) {
        return error_set(err, PI_ERR_NOT_FOUND,
                         "no neuron statistics: %s: only prepared models have them (powerinfer "
                         "prepare, powerinfer synth)",
                         gguf_path(f));
    }
    svg out;
    pi_status status = svg_begin(&out, path, WIDTH, HEIGHT, "#ffffff", style, err);
    if (status) return status;
    draw_title(&out, f, s);
    draw_curves(&out, &s->neurons);
    draw_densities(&out, &s->neurons);
    draw_recall(&out, &s->neurons);
    return svg_end(&out);
}
