/* inspect_svg.h: the neurons of a prepared model as a picture. */
#ifndef INSPECT_INSPECT_SVG_H
#define INSPECT_INSPECT_SVG_H

#include "inspect.h"

/* Writes hot/cold curves, densities and predictor quality of all layers to `path`, which appears
 * complete or not at all. PI_ERR_NOT_FOUND when the file has no frequencies. */
pi_status inspect_write_svg(const gguf_file *f, const inspect_summary *s, const char *path,
                            pi_error *err);

#endif
