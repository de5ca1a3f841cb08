/* svg.h: draws charts as SVG: a few shapes with absolute coordinates in pixels, y downwards.
 *
 * Numbers have a decimal point in every locale. Text is escaped; bytes that are not UTF-8 or not
 * XML characters become U+FFFD. Styles are attribute strings ("fill=\"#fff\"") that the caller
 * writes as constants: they must not contain outside text. Write errors are kept and returned by
 * svg_end. One thread at a time. */
#ifndef BASE_SVG_H
#define BASE_SVG_H

#include "file.h"

typedef struct svg {
    file_writer *file;
    pi_error *err;
    pi_status status; /* of the first error */
} svg;

/* Starts a picture on an opaque background, so that it looks the same in light and dark viewers.
 * `style` is CSS for the classes of the shapes; the classes of text and grids (title, sub, head,
 * tick, end, mid, grid) are predefined. The file appears when svg_end succeeds. */
pi_status svg_begin(svg *s, const char *path, double width, double height, const char *background,
                    const char *style, pi_error *err);
/* Completes the file, or removes it after any error. */
pi_status svg_end(svg *s);

void svg_line(svg *s, double x0, double y0, double x1, double y1, const char *attributes);
void svg_rect(svg *s, double x, double y, double width, double height, const char *attributes);
void svg_circle(svg *s, double x, double y, double radius, const char *attributes);
/* x, y: [n] */
void svg_polyline(svg *s, const double *x, const double *y, int n, const char *attributes);
/* `text`: n_bytes, may be untrusted. `quarter`: rotated to read from bottom to top. */
void svg_text(svg *s, double x, double y, bool quarter, const char *text, size_t n_bytes,
              const char *attributes);
void svg_label(svg *s, double x, double y, const char *text, const char *attributes);

/* ---- charts ---------------------------------------------------------------------------------- */

/* Replaces decimal commas of the locale by points in numbers printed into `text`. */
void svg_points(char *text);
/* A step of 1, 2 or 5 times a power of ten that divides `range` into at most `most` parts. */
double svg_tick_step(double range, int most);

#endif
