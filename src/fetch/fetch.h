/* fetch.h: model files from Hugging Face's hub and from URLs.
 *
 * Files of the hub are in the folder of Hugging Face's tools, in their layout, so that each program
 * finds what the others downloaded:
 *
 *     HUB/models--USER--REPO/refs/main                   the commit of the branch
 *     HUB/models--USER--REPO/blobs/ETAG                  a file; ETAG is its SHA-256
 *     HUB/models--USER--REPO/snapshots/COMMIT/FILE       symbolic link to the blob
 *     HUB/.locks/models--USER--REPO/ETAG.lock            held (flock) while the file is downloaded
 *
 * Files of other URLs are in URLS/HASH/FILE, where HASH is the hash of the URL without its
 * last part, so that the parts of a split model are in one folder.
 *
 * A download goes to a file that ends in ".incomplete", which a later download continues. The file
 * gets its name after its size and, where the server names it, its SHA-256 have been checked. This
 * module follows redirects itself, not libcurl: never from https to http, and it sends the token to
 * the hub only. Data from a server is hostile until checked: names, commits and ETags become parts
 * of paths only when they have the required form.
 *
 * Part of the program, not of the library. Threads: one call at a time per options. */
#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H

#include "fetch_options.h"

/* Whether `text` is a URL and not the name of a file. */
bool fetch_is_url(const char *text);

/* The file of "USER/REPO[:QUANT]" on the hub: the first that QUANT names, any case; without QUANT
 * Q4_K_M, else Q8_0, else the first model file. `file` (NULL: none) names one instead. All parts of
 * a split file are fetched; `path` is the first. Without a connection, files that are there already
 * are used. PI_ERR_ARG (invalid name), PI_ERR_NOT_FOUND, PI_ERR_IO (network, disk), PI_ERR_FORMAT
 * (wrong data), PI_ERR_CANCELLED (partial data is kept), PI_ERR_UNSUPPORTED (built without libcurl
 * or jansson), PI_ERR_NOMEM. */
pi_status fetch_hub(const fetch_options *o, const char *repo, const char *file, char *path,
                    size_t n_path, pi_error *err);
/* The file of a URL. A file of the hub (.../resolve/... or .../blob/...) goes where fetch_hub
 * puts it. A cached file of another URL is used without a request. */
pi_status fetch_url(const fetch_options *o, const char *url, char *path, size_t n_path,
                    pi_error *err);

#endif
