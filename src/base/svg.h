/* svg.h: drawing charts as SVG: a handful of shapes with absolute coordinates in pixels, y
 * downwards.
 *
 * Numbers are written with a point whatever the locale. Text is escaped; bytes that are no UTF-8 or
 * no XML characters become U+FFFD. Styles are strings of attributes ("fill=\"#fff\"") that the
 * caller writes as constants: nothing from outside belongs there. Errors of writing are kept and
 * returned by svg_end. One thread at a time. */
#ifndef BASE_SVG_H
#define BASE_SVG_H

#include "file.h"

typedef struct svg {
    file_writer *file;
    pi_error *err;
    pi_status status; /* of the first error */
} svg;

/* Starts a picture on an opaque background, so that it reads the same in light and dark viewers.
 * `style` is CSS for the shapes' classes; those of words and grids (title, sub, head, tick, end,
 * mid, grid) are there. The file appears when svg_end succeeds. */
pi_status svg_begin(svg *s, const char *path, double width, double height, const char *background,
                    const char *style, pi_error *err);
/* Completes the file, or removes it when anything went wrong. */
pi_status svg_end(svg *s);

void svg_line(svg *s, double x0, double y0, double x1, double y1, const char *attributes);
void svg_rect(svg *s, double x, double y, double width, double height, const char *attributes);
void svg_circle(svg *s, double x, double y, double radius, const char *attributes);
/* x, y: [n] */
void svg_polyline(svg *s, const double *x, const double *y, int n, const char *attributes);
/* `text`: n_bytes, from anywhere. `quarter`: turned to be read from below. */
void svg_text(svg *s, double x, double y, bool quarter, const char *text, size_t n_bytes,
              const char *attributes);
void svg_label(svg *s, double x, double y, const char *text, const char *attributes);

/* ---- charts ---------------------------------------------------------------------------------- */

/* Numbers printed into `text` get points where the locale has commas. */
void svg_points(char *text);
/* A step of 1, 2 or 5 times a power of ten that cuts `range` into at most `most` parts. */
double svg_tick_step(double range, int most);

#endif
