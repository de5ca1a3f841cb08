/* tidy_cycles.c: no include cycles within src/. A node is a source file with its headers: x.c, x.h
 * and x_impl.h, the inside of x that its other files share. A cycle means that none of its files
 * can be read, tested or moved without the others. */
#include <stdio.h>
#include <string.h>

#include "tidy.h"

/* Includes that may close a cycle. An entry that closes none any more is a problem itself. */
const allowed_include tidy_allowed_includes[] = {
    {"http", "dialects", "http.h is the server for all of its files, http.c calls them"},
    {"http", "http_access", "http.h is the server for all of its files, http.c calls them"},
    {"http", "static_files", "http.h is the server for all of its files, http.c calls them"},
    {"server", "dialects", "http.h takes the options of server.h, server.c calls the files"},
    {"server", "http_access", "http.h takes the options of server.h, server.c calls the files"},
    {"safetensors", "torch_zip", "safetensors.c opens archives as well, into its table"},
    {"torch_zip", "torch_pickle", "torch_zip.c hands its callback to the pickle"},
    {"fetch", "download", "download.h takes the options of fetch.h"},
    {"cli", "model_source", "cli.c opens models, model_source.c reports by cli.h"},
    {"signals", "cli", "signals.c reports by cli.h"},
    {NULL, NULL, NULL},
};

enum { EDGES_MAX = 16384 };

typedef enum node_state { UNSEEN, OPEN, DONE } node_state;

typedef struct include_node {
    char name[TIDY_NAME_MAX];
    node_state state;
    bool reached; /* by check_allowed */
} include_node;

typedef struct include_edge {
    int from, to;
    const source_file *file;
    int line;
} include_edge;

typedef struct include_graph {
    include_node nodes[TIDY_FILES_MAX];
    include_edge edges[EDGES_MAX];
    int n_nodes, n_edges;
    int path[TIDY_FILES_MAX], n_path; /* open nodes */
} include_graph;

/* "src/base/x_impl.h" is "x". */
static void name_node(const char *path, char *name, size_t n_name) {
    const char *start = path_name(path);
    snprintf(name, n_name, "%.*s", (int)strcspn(start, "."), start);
    if (path_ends(name, "_impl")) name[strlen(name) - strlen("_impl")] = '\0';
}

static int find_node(const include_graph *g, const char *name) {
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].name, name) == 0) return i;
    return -1;
}

static bool is_node(const source_file *f) {
    return path_starts(f->path, "src/") && !path_ends(f->path, ".txt");
}

static void add_edges(include_graph *g, const source_file *f, int from) {
    int number = 0;
    for (const char *line = f->text; *line;) {
        size_t n = strcspn(line, "\n");
        char header[TIDY_NAME_MAX], name[TIDY_NAME_MAX];
        number++;
        if (line[0] == '#' && sscanf(line, "# include \"%127[^\"\n]\"", header) == 1) {
            name_node(header, name, sizeof name);
            int to = find_node(g, name);
            if (to >= 0 && to != from && g->n_edges < EDGES_MAX)
                g->edges[g->n_edges++] = (include_edge){
                    .from = from, .to = to, .file = f, .line = number};
        }
        line += n + (line[n] == '\n');
    }
}

static void make_graph(include_graph *g, const source_tree *tree) {
    char name[TIDY_NAME_MAX];
    g->n_nodes = g->n_edges = g->n_path = 0;
    for (int i = 0; i < tree->n_files; i++) {
        name_node(tree->files[i].path, name, sizeof name);
        if (!is_node(&tree->files[i]) || find_node(g, name) >= 0) continue;
        g->nodes[g->n_nodes] = (include_node){0};
        memcpy(g->nodes[g->n_nodes++].name, name, sizeof name);
    }
    for (int i = 0; i < tree->n_files; i++) {
        name_node(tree->files[i].path, name, sizeof name);
        if (is_node(&tree->files[i])) add_edges(g, &tree->files[i], find_node(g, name));
    }
}

static const allowed_include *find_allowed(const include_graph *g, const include_edge *e,
                                           const allowed_include *allowed) {
    for (; allowed->from; allowed++)
        if (strcmp(allowed->from, g->nodes[e->from].name) == 0 &&
            strcmp(allowed->to, g->nodes[e->to].name) == 0)
            return allowed;
    return NULL;
}

/* The cycle that an edge to an open node closes: "a -> b -> a". */
static void report(source_tree *tree, const include_graph *g, const include_edge *e) {
    char text[1024] = "";
    size_t n = 0;
    int first = 0;
    while (g->path[first] != e->to) first++;
    for (int i = first; i < g->n_path && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s -> ", g->nodes[g->path[i]].name);
    tidy_report(tree, e->file->path, e->line, "include cycle: %s%s", text, g->nodes[e->to].name);
}

static void visit(source_tree *tree, include_graph *g, int node, const allowed_include *allowed) {
    g->nodes[node].state = OPEN;
    g->path[g->n_path++] = node;
    for (int i = 0; i < g->n_edges; i++) {
        const include_edge *e = &g->edges[i];
        if (e->from != node || find_allowed(g, e, allowed)) continue;
        if (g->nodes[e->to].state == OPEN) report(tree, g, e);
        if (g->nodes[e->to].state == UNSEEN) visit(tree, g, e->to, allowed);
    }
    g->n_path--;
    g->nodes[node].state = DONE;
}

/* Whether includes lead from one node to another. */
static bool reaches(include_graph *g, int from, int to) {
    if (from == to) return true;
    g->nodes[from].reached = true;
    for (int i = 0; i < g->n_edges; i++) {
        const include_edge *e = &g->edges[i];
        if (e->from == from && !g->nodes[e->to].reached && reaches(g, e->to, to)) return true;
    }
    return false;
}

/* An entry is needed while its include is there and closes a cycle. */
static void check_allowed(source_tree *tree, include_graph *g, const allowed_include *a) {
    int from = find_node(g, a->from), to = find_node(g, a->to);
    bool there = false;
    for (int i = 0; i < g->n_nodes; i++) g->nodes[i].reached = false;
    for (int i = 0; i < g->n_edges && !there; i++)
        there = g->edges[i].from == from && g->edges[i].to == to;
    if (!there || !reaches(g, to, from))
        tidy_report(tree, "tests/tidy/tidy_cycles.c", 1, "no cycle: take %s -> %s off the list",
                    a->from, a->to);
}

void tidy_check_cycles(source_tree *tree, const allowed_include *allowed) {
    static include_graph g;
    make_graph(&g, tree);
    for (int i = 0; i < g.n_nodes; i++)
        if (g.nodes[i].state == UNSEEN) visit(tree, &g, i, allowed);
    for (; allowed->from; allowed++) check_allowed(tree, &g, allowed);
}
