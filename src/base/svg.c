/* svg.c: SVG 1.1 shapes, one element per line. */
#include "svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "utf8_length.h"

/* The style of text and grids in all charts. */
static const char chart_style[] =
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;"
    "font-size:13px;fill:#333}\n"
    ".title{font-size:22px;font-weight:600;fill:#111}\n"
    ".sub{font-size:14px;fill:#555}\n"
    ".head{font-size:15px;font-weight:600;fill:#111}\n"
    ".tick{font-size:12px;fill:#555}\n"
    ".end{text-anchor:end}\n"
    ".mid{text-anchor:middle}\n"
    ".grid{stroke:#e4e4e4;stroke-width:1}\n";

static void put(svg *s, const char *text, size_t n) {
    if (s->status == PI_OK) s->status = file_writer_write(s->file, text, n, s->err);
}

static void put_text(svg *s, const char *text) {
    put(s, text, strlen(text));
}

/* Two decimals, from integers: printf would use the locale's decimal point. */
static void put_number(svg *s, double v) {
    enum { PARTS = 100 };
    const double most = 1e9; /* larger than any picture; also replaces NaN */
    if (!(v > -most)) v = -most;
    if (v > most) v = most;
    long long parts = llround(v * PARTS), whole = parts < 0 ? -parts : parts;
    char text[40];
    int n = snprintf(text, sizeof text, "%s%lld", parts < 0 ? "-" : "", whole / PARTS);
    if (whole % PARTS) n += snprintf(text + n, sizeof text - (size_t)n, ".%02lld", whole % PARTS);
    put(s, text, (size_t)n);
}

static void put_attribute(svg *s, const char *name, double v) {
    put_text(s, " ");
    put_text(s, name);
    put_text(s, "=\"");
    put_number(s, v);
    put_text(s, "\"");
}

/* Ends an element that has no content. */
static void put_rest(svg *s, const char *attributes) {
    put_text(s, " ");
    put_text(s, attributes);
    put_text(s, "/>\n");
}

pi_status svg_begin(svg *s, const char *path, double width, double height, const char *background,
                    const char *style, pi_error *err) {
    *s = (svg){.err = err};
    s->status = file_writer_open(path, &s->file, err);
    if (s->status) return s->status;
    put_text(s, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
    put_number(s, width);
    put_text(s, " ");
    put_number(s, height);
    put_text(s, "\"");
    put_attribute(s, "width", width);
    put_attribute(s, "height", height);
    put_text(s, ">\n<style>\n");
    put_text(s, chart_style);
    put_text(s, style);
    put_text(s, "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"");
    put_text(s, background);
    put_text(s, "\"/>\n");
    return s->status;
}

pi_status svg_end(svg *s) {
    put_text(s, "</svg>\n");
    if (s->status)
        file_writer_abort(s->file);
    else
        s->status = file_writer_commit(s->file, s->err);
    s->file = NULL;
    return s->status;
}

void svg_line(svg *s, double x0, double y0, double x1, double y1, const char *attributes) {
    put_text(s, "<line");
    put_attribute(s, "x1", x0);
    put_attribute(s, "y1", y0);
    put_attribute(s, "x2", x1);
    put_attribute(s, "y2", y1);
    put_rest(s, attributes);
}

void svg_rect(svg *s, double x, double y, double width, double height, const char *attributes) {
    put_text(s, "<rect");
    put_attribute(s, "x", x);
    put_attribute(s, "y", y);
    put_attribute(s, "width", width > 0 ? width : 0);
    put_attribute(s, "height", height > 0 ? height : 0);
    put_rest(s, attributes);
}

void svg_circle(svg *s, double x, double y, double radius, const char *attributes) {
    put_text(s, "<circle");
    put_attribute(s, "cx", x);
    put_attribute(s, "cy", y);
    put_attribute(s, "r", radius);
    put_rest(s, attributes);
}

void svg_polyline(svg *s, const double *x, const double *y, int n, const char *attributes) {
    put_text(s, "<polyline fill=\"none\" points=\"");
    for (int i = 0; i < n; i++) {
        if (i) put_text(s, " ");
        put_number(s, x[i]);
        put_text(s, ",");
        put_number(s, y[i]);
    }
    put_text(s, "\"");
    put_rest(s, attributes);
}

/* XML 1.0 excludes control characters, U+FFFE and U+FFFF. */
static bool is_xml(const unsigned char *c, size_t length) {
    if (length == 1) return c[0] >= 0x20 && c[0] != 0x7f;
    return !(length == 3 && c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe);
}

static void put_escaped(svg *s, const char *text, size_t n) {
    const unsigned char *c = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_length(c + i, n - i);
        if (length == 0 || !is_xml(c + i, length))
            put_text(s, "\xef\xbf\xbd");
        else if (c[i] == '&')
            put_text(s, "&amp;");
        else if (c[i] == '<')
            put_text(s, "&lt;");
        else if (c[i] == '>')
            put_text(s, "&gt;");
        else
            put(s, text + i, length);
        i += length ? length : 1;
    }
}

void svg_text(svg *s, double x, double y, bool quarter, const char *text, size_t n_bytes,
              const char *attributes) {
    put_text(s, "<text");
    if (quarter) {
        put_text(s, " transform=\"translate(");
        put_number(s, x);
        put_text(s, " ");
        put_number(s, y);
        put_text(s, ") rotate(-90)\"");
    } else {
        put_attribute(s, "x", x);
        put_attribute(s, "y", y);
    }
    put_text(s, " ");
    put_text(s, attributes);
    put_text(s, ">");
    put_escaped(s, text, n_bytes);
    put_text(s, "</text>\n");
}

void svg_label(svg *s, double x, double y, const char *text, const char *attributes) {
    svg_text(s, x, y, false, text, strlen(text), attributes);
}

void svg_points(char *text) {
    for (; *text; text++)
        if (*text == ',') *text = '.';
}

double svg_tick_step(double range, int most) {
    if (!(range > 0) || most < 1) return 1;
    double unit = pow(10, floor(log10(range / most)));
    const double steps[] = {1, 2, 5, 10};
    for (int i = 0; i < 3; i++)
        if (range / (unit * steps[i]) <= most * (1 + 1e-9)) return unit * steps[i];
    return unit * steps[3];
}
