// The launch of CUDA kernels as cuda.c calls it: to the driver, or, in a thread that has said so, as new parameters for nodes of a
// graph that is ready to be launched (backends/cuda/graphs.py). Nothing of CUDA's is needed to build this file.
typedef int launch(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, void *stream,
                   void **parameters, void **extra);
struct node {  // the driver's CUDA_KERNEL_NODE_PARAMS_v2
    void *function;
    unsigned blocks[3], threads[3], shared;
    void **parameters, **extra, *kernel, *context;
};
static launch *driver_launch;
static int (*driver_set)(void *graph, void *node, const struct node *);
static __thread void *graph, **nodes;
static __thread long at, count, launched;

void fl_graph_attach(launch *launching, int (*setting)(void *, void *, const struct node *)) {
    driver_launch = launching, driver_set = setting;
}

int fl_graph_launch(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                    void *stream, void **parameters, void **extra) {
    launched++;
    if (!graph) return driver_launch(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    if (at >= count) return 1;  // the driver's "invalid value"
    const struct node made = {function, {gx, gy, gz}, {bx, by, bz}, shared, parameters, extra, 0, 0};
    return driver_set(graph, nodes[at++], &made);
}

// From now on this thread's launches go to the nodes of a graph, one after the other. None: to the driver again; how many went there.
long fl_graph_redirect(void *to, void **some, long length) {
    long done = at;
    graph = to, nodes = some, count = length, at = 0;
    return done;
}
long fl_graph_launched(void) { return launched; }
