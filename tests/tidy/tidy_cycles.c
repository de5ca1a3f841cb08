/* tidy_cycles.c: no include cycles within src/. A node is a source file with its headers: x.c, x.h
 * and x_impl.h, which the other files of x share. The files of a cycle cannot be read, tested or
 * moved separately. */
#include <stdio.h>
#include <string.h>

#include "tidy.h"

enum { EDGES_MAX = 16384 };

typedef enum node_state { UNSEEN, OPEN, DONE } node_state;

typedef struct include_node {
    char name[TIDY_NAME_MAX];
    node_state state;
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

/* Writes the cycle that an edge to an open node closes: "a -> b -> a". */
static void report(source_tree *tree, const include_graph *g, const include_edge *e) {
    char text[1024] = "";
    size_t n = 0;
    int first = 0;
    while (g->path[first] != e->to) first++;
    for (int i = first; i < g->n_path && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s -> ", g->nodes[g->path[i]].name);
    tidy_report(tree, e->file->path, e->line, "include cycle: %s%s", text, g->nodes[e->to].name);
}

static void visit(source_tree *tree, include_graph *g, int node) {
    g->nodes[node].state = OPEN;
    g->path[g->n_path++] = node;
    for (int i = 0; i < g->n_edges; i++) {
        const include_edge *e = &g->edges[i];
        if (e->from != node) continue;
        if (g->nodes[e->to].state == OPEN) report(tree, g, e);
        if (g->nodes[e->to].state == UNSEEN) visit(tree, g, e->to);
    }
    g->n_path--;
    g->nodes[node].state = DONE;
}

void tidy_check_cycles(source_tree *tree) {
    static include_graph g;
    make_graph(&g, tree);
    for (int i = 0; i < g.n_nodes; i++)
        if (g.nodes[i].state == UNSEEN) visit(tree, &g, i);
}
