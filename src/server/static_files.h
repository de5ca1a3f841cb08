/* static_files.h: serves the files of a folder (--path). */
#ifndef SERVER_STATIC_FILES_H
#define SERVER_STATIC_FILES_H

#include "exchange.h"

/* Answers with the file that the path names below the server's folder; for a folder, with its
 * index.html. Names that begin with a dot, and links that lead out of the folder, are not
 * served. */
enum MHD_Result static_files_reply(exchange *x);

#endif
