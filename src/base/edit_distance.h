/* edit_distance.h: the edit distance of two names, for suggestions ("did you mean"). */
#ifndef BASE_EDIT_DISTANCE_H
#define BASE_EDIT_DISTANCE_H

#include <stddef.h>

enum { EDIT_DISTANCE_MAX = 64 }; /* bytes of a name */

/* Edits (insert, delete, replace, swap neighbours) from a to b: Damerau-Levenshtein, optimal string
 * alignment. Names beyond the limit count as EDIT_DISTANCE_MAX + 1. */
size_t edit_distance(const char *a, const char *b);

#endif
