/* place_svg.c: a placement as a picture. Left: a row per layer with the device of attention, and
 * the bar of neurons with the GPU's part. Right: the predicted time of each layer, with the neurons
 * of both devices one above the other because they are computed at the same time. Below: bytes per
 * device. */
#include <math.h>
#include <string.h>

#include "place_tool.h"
#include "svg.h"

enum {
    WIDTH = 1200,
    TOP = 130,
    ROW_MIN = 6,
    ROW_MAX = 26,
    ROWS_HEIGHT = 620, /* of all layers together */
    LEFT = 90,
    ATTENTION = 40, /* width of the cell of attention */
    BAR = 440,      /* width of the bar of a layer's neurons */
    TIME_LEFT = 690,
    TIME_WIDTH = 460,
    FOOT = 190,
    TEXT_BYTES = 256
};

static const char style[] = ".gpu{fill:#2e7d5b}\n"
                            ".cpu{fill:#d9a441}\n"
                            ".always{fill:#4878a8}\n"
                            ".kv{fill:#7e57a8}\n"
                            ".sync{fill:#d1495b}\n"
                            ".free{fill:#eeeeee}\n";

static const char *const primary_class[PLAN_SIDES] = {"class=\"cpu\"", "class=\"gpu\""};

typedef struct picture {
    svg out;
    const place_report *r;
    double row;    /* height of a layer's row */
    double scale;  /* pixels per second, on the right */
    double bottom; /* of the rows */
} picture;

static double top_of(const picture *p, int layer) {
    return TOP + p->row * layer;
}

static void draw_layer(picture *p, int i) {
    const plan_split *c = &p->r->plan->splits[i];
    double y = top_of(p, i), height = p->row - (p->row > 10 ? 3 : 1);
    double share = (double)plan_split_end(c) / (double)p->r->work->layers[i].n;
    svg_rect(&p->out, LEFT, y, ATTENTION, height, primary_class[c->primary]);
    double x = LEFT + ATTENTION + 8;
    if (share > 0) svg_rect(&p->out, x, y, BAR * share, height, primary_class[SIDE_GPU]);
    if (share < 1)
        svg_rect(&p->out, x + BAR * share, y, BAR * (1 - share), height, primary_class[SIDE_CPU]);
}

static void draw_time(picture *p, int i) {
    const place_layer_time *t = &p->r->layers[i];
    double y = top_of(p, i), height = p->row - (p->row > 10 ? 3 : 1), x = TIME_LEFT;
    const struct {
        double seconds;
        const char *attributes;
    } parts[] = {{t->always, "class=\"always\""}, {t->kv, "class=\"kv\""}};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        svg_rect(&p->out, x, y, parts[k].seconds * p->scale, height, parts[k].attributes);
        x += parts[k].seconds * p->scale;
    }
    svg_rect(&p->out, x, y, t->gpu * p->scale, height / 2, primary_class[SIDE_GPU]);
    svg_rect(&p->out, x, y + height / 2, t->cpu * p->scale, height / 2, primary_class[SIDE_CPU]);
    x += fmax(t->gpu, t->cpu) * p->scale;
    svg_rect(&p->out, x, y, t->sync * p->scale, height, "class=\"sync\"");
}

static void draw_rows(picture *p) {
    char text[TEXT_BYTES];
    int n = p->r->plan->n_layers;
    int step = (int)fmax(1, svg_tick_step(n, 16));
    for (int i = 0; i < n; i++) {
        draw_layer(p, i);
        draw_time(p, i);
        if (i % step) continue;
        snprintf(text, sizeof text, "%d", i);
        svg_label(&p->out, LEFT - 10, top_of(p, i) + p->row / 2 + 4, text, "class=\"tick end\"");
    }
    svg_label(&p->out, LEFT, TOP - 14, "Attn", "class=\"head\"");
    svg_label(&p->out, LEFT + ATTENTION + 8, TOP - 14, "Neurons, hottest first", "class=\"head\"");
    svg_label(&p->out, TIME_LEFT, TOP - 14, "Predicted time per layer", "class=\"head\"");
    svg_text(&p->out, LEFT - 52, TOP + p->row * n / 2, true, "layer", strlen("layer"),
             "class=\"mid\"");
}

/* Grid lines of the right half, drawn before the bars. */
static void draw_time_axis(picture *p, double most) {
    char text[TEXT_BYTES];
    double micro = most * 1e6, step = svg_tick_step(micro, 6);
    for (double v = 0; v <= micro + step * 1e-6; v += step) {
        double x = TIME_LEFT + v * 1e-6 * p->scale;
        svg_line(&p->out, x, TOP - 6, x, p->bottom, "class=\"grid\"");
        snprintf(text, sizeof text, step >= 1 ? "%.0f" : "%.2f", v);
        svg_points(text);
        svg_label(&p->out, x, p->bottom + 18, text, "class=\"tick mid\"");
    }
    svg_label(&p->out, TIME_LEFT + TIME_WIDTH / 2.0, p->bottom + 38, "microseconds",
              "class=\"mid\"");
}

static void draw_legend(picture *p) {
    static const struct {
        const char *attributes, *text;
        double x;
    } entries[] = {
        {"class=\"gpu\"", "GPU", 0},
        {"class=\"cpu\"", "CPU", 70},
        {"class=\"always\"", "always read", 140},
        {"class=\"kv\"", "KV cache", 260},
        {"class=\"sync\"", "exchange", 360},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        double x = TIME_LEFT + entries[i].x;
        svg_rect(&p->out, x, 74, 12, 12, entries[i].attributes);
        svg_label(&p->out, x + 18, 85, entries[i].text, "");
    }
}

/* A bar of resident bytes per device, on one scale; the GPU's bar shows its budget. */
static void draw_bytes(picture *p) {
    const place_prediction *t = p->r->prediction;
    const double gib = 1073741824;
    double budget = p->r->machine->has_gpu ? (double)p->r->budget : 0;
    bool bounded = budget < 1e15; /* a PiB: more is "all of it" */
    double most = fmax(fmax((double)t->resident[SIDE_CPU], (double)t->resident[SIDE_GPU]),
                       bounded ? budget : 0);
    double y = p->bottom + 72, scale = (ATTENTION + 8 + BAR) / fmax(most, 1);
    char text[TEXT_BYTES];
    svg_label(&p->out, LEFT, y - 12, "Memory", "class=\"head\"");
    for (int d = PLAN_SIDES - 1; d >= 0; d--, y += 36) {
        if (d == SIDE_GPU && !p->r->machine->has_gpu) continue;
        if (d == SIDE_GPU && bounded)
            svg_rect(&p->out, LEFT, y, budget * scale, 24, "class=\"free\"");
        svg_rect(&p->out, LEFT, y, (double)t->resident[d] * scale, 24, primary_class[d]);
        svg_label(&p->out, LEFT - 10, y + 17, d == SIDE_GPU ? "GPU" : "CPU", "class=\"end\"");
        snprintf(text, sizeof text, "%.2f GiB; %.1f MB read per token",
                 (double)t->resident[d] / gib, t->read[d] / 1e6);
        if (d == SIDE_GPU && bounded) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "; budget %.2f GiB", budget / gib);
        }
        svg_points(text + strcspn(text, "0123456789"));
        svg_label(&p->out, LEFT + 8, y + 17, text,
                  "paint-order=\"stroke\" stroke=\"#fff\" stroke-width=\"3\"");
    }
}

static void draw_title(picture *p) {
    enum { SHOWN = 70 };
    const place_report *r = p->r;
    char text[TEXT_BYTES];
    size_t n = strlen(r->model_name);
    svg_text(&p->out, LEFT - 52, 44, false, r->model_name, n < SHOWN ? n : SHOWN,
             "class=\"title\"");
    snprintf(text, sizeof text, "%s; mode %s; context %d; predicted %.1f tokens/s",
             r->machine->name, r->mode, (int)r->n_ctx, 1 / r->prediction->seconds);
    svg_label(&p->out, LEFT - 52, 70, text, "class=\"sub\"");
    snprintf(text, sizeof text, "Bound by %s. Head on the %s.",
             place_bound_name(r->work, r->prediction), r->plan->head == SIDE_GPU ? "GPU" : "CPU");
    svg_label(&p->out, LEFT - 52, 92, text, "class=\"sub\"");
}

pi_status place_write_svg(const place_report *r, const char *path, pi_error *err) {
    picture p = {.r = r};
    int n = r->plan->n_layers;
    double most = 0;
    for (int i = 0; i < n; i++) {
        const place_layer_time *t = &r->layers[i];
        most = fmax(most, t->always + t->kv + fmax(t->gpu, t->cpu) + t->sync);
    }
    p.row = fmin(ROW_MAX, fmax(ROW_MIN, (double)ROWS_HEIGHT / n));
    p.bottom = TOP + p.row * n;
    p.scale = TIME_WIDTH / fmax(most, 1e-12);
    pi_status status = svg_begin(&p.out, path, WIDTH, p.bottom + FOOT, "#fff", style, err);
    if (status != PI_OK) return status;
    draw_title(&p);
    draw_legend(&p);
    draw_time_axis(&p, most);
    draw_rows(&p);
    draw_bytes(&p);
    return svg_end(&p.out);
}
