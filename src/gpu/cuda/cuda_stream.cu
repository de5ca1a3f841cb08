/* cuda_stream.cu: streams, events, copies, launches and programs of the HIP backend. Programs are
 * graphs captured from a stream, in relaxed mode, which does not restrict other threads.
 *
 * The driver loads a kernel at its first use. For that it may wait until the device is idle, or,
 * before CUDA 12.3, end a capture. So opening a device loads all kernels (cuda_device.cu): later no
 * kernel of any context is loaded while a program waits for the host. */
#include <string.h>

#include "cuda_backend.h"

/* ---- streams --------------------------------------------------------------------------------- */

pi_status cuda_stream_create(gpu_device *d, gpu_stream **out, pi_error *err) {
    gpu_stream *s = static_cast<gpu_stream *>(d->host->alloc(sizeof *s));
    if (!s) return error_nomem(err, sizeof *s, "a stream");
    memset(s, 0, sizeof *s);
    s->device = d;
    cudaError_t e = cudaSetDevice(d->index);
    /* Non-blocking: does not wait for the legacy stream, which this backend does not use. */
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        d->host->free(s);
        return cuda_error(err, e, "cannot create a stream");
    }
    *out = s;
    return PI_OK;
}

void cuda_stream_destroy(gpu_stream *s) {
    if (!s) return;
    if (cuda_use(s->device)) {
        if (s->recording) {
            cudaGraph_t graph = nullptr;
            if (cudaStreamEndCapture(s->stream, &graph) == cudaSuccess && graph)
                cudaGraphDestroy(graph);
        }
        cudaStreamSynchronize(s->stream);
        cudaStreamDestroy(s->stream);
    }
    gpu_frees.end(&s->busy);
    s->device->host->free(s);
}

pi_status cuda_stream_sync(gpu_stream *s, pi_error *err) {
    if (cuda_use(s->device))
        cuda_stick(s->device, cudaStreamSynchronize(s->stream), "work on the device failed");
    gpu_frees.end(&s->busy);
    return cuda_status(s->device, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

pi_status cuda_event_create(gpu_device *d, gpu_event **out, pi_error *err) {
    gpu_event *e = static_cast<gpu_event *>(d->host->alloc(sizeof *e));
    if (!e) return error_nomem(err, sizeof *e, "an event");
    memset(e, 0, sizeof *e);
    e->device = d;
    cudaError_t rc = cudaSetDevice(d->index);
    if (rc == cudaSuccess) rc = cudaEventCreate(&e->event);
    if (rc != cudaSuccess) {
        d->host->free(e);
        return cuda_error(err, rc, "cannot create an event");
    }
    *out = e;
    return PI_OK;
}

void cuda_event_destroy(gpu_event *e) {
    if (!e) return;
    if (cuda_use(e->device)) cudaEventDestroy(e->event);
    e->device->host->free(e);
}

void cuda_event_record(gpu_stream *s, gpu_event *e) {
    if (!cuda_use(s->device)) return;
    e->stream = s;
    e->captured = s->recording || s->branch;
    e->recorded = !e->captured;
    cuda_stick(s->device, cudaEventRecord(e->event, s->stream), "cannot record an event");
}

bool cuda_event_done(gpu_event *e) {
    if (!cuda_use(e->device)) return true; /* the device is lost: the event would never complete */
    cudaError_t rc = cudaEventQuery(e->event);
    if (rc == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* cudaErrorNotReady is not an error */
        return false;
    }
    cuda_stick(e->device, rc, "work on the device failed");
    return true;
}

/* A stream that waits for an event of a capture joins the capture, until the main stream waits for
 * an event of this stream. */
void cuda_stream_wait(gpu_stream *s, gpu_event *e) {
    if (!cuda_use(s->device)) return;
    if (e->captured && !s->recording) {
        s->branch = true;
        e->stream->side = s;
    }
    if (e->captured && s->recording) e->stream->branch = false;
    gpu_order_other(&s->order);
    cuda_stick(s->device, cudaStreamWaitEvent(s->stream, e->event, 0), "cannot wait for an event");
}

double cuda_event_elapsed(gpu_event *from, gpu_event *to) {
    float ms = -1;
    if (!cuda_use(from->device) || !from->recorded || !to->recorded) return -1;
    if (!cuda_event_done(from) || !cuda_event_done(to)) return -1;
    if (cudaEventElapsedTime(&ms, from->event, to->event) == cudaSuccess) return ms;
    (void)cudaGetLastError();
    return -1;
}

/* ---- work ------------------------------------------------------------------------------------ */

void gpu_stream_waits(gpu_stream *s) {
    s->order.waits = true;
    if (!s->recording && !s->branch) gpu_frees.begin(&s->busy);
}

void gpu_launch_any(gpu_stream *s, const gpu_grid &grid, const gpu_kernel &kernel, const void *args,
                    size_t) {
    if (!cuda_use(s->device)) return;
    void *params[] = {const_cast<void *>(args)};
    const bool overlap = gpu_order_kernel(&s->order) && s->recording && s->device->overlaps;
    cuda_stick(s->device,
               gpu_launch_kernel(kernel.function, dim3(grid.x, grid.y, grid.z),
                                 dim3(grid.threads, 1, 1), params, s->stream, overlap),
               "cannot launch a kernel");
}

static void copy(gpu_stream *s, void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind) {
    if (!cuda_use(s->device)) return;
    gpu_order_other(&s->order);
    cuda_stick(s->device, cudaMemcpyAsync(to, from, n_bytes, kind, s->stream), "a copy failed");
}

void cuda_upload(gpu_stream *s, void *device, const void *host, size_t n_bytes) {
    copy(s, device, host, n_bytes, cudaMemcpyHostToDevice);
}

void cuda_download(gpu_stream *s, void *host, const void *device, size_t n_bytes) {
    copy(s, host, device, n_bytes, cudaMemcpyDeviceToHost);
}

void cuda_copy(gpu_stream *s, void *device_to, const void *device_from, size_t n_bytes) {
    copy(s, device_to, device_from, n_bytes, cudaMemcpyDeviceToDevice);
}

void cuda_fill(gpu_stream *s, void *device, uint8_t value, size_t n_bytes) {
    if (!cuda_use(s->device)) return;
    gpu_order_other(&s->order);
    cuda_stick(s->device, cudaMemsetAsync(device, value, n_bytes, s->stream), "a fill failed");
}

/* ---- programs -------------------------------------------------------------------------------- */

pi_status cuda_record_begin(gpu_stream *s, pi_error *err) {
    if (s->recording)
        return error_set(err, PI_ERR_ARG, "a program is being recorded already: end it first");
    if (!cuda_use(s->device)) return cuda_status(s->device, err);
    cudaError_t e = cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeRelaxed);
    if (e != cudaSuccess) return cuda_error(err, e, "cannot capture a program");
    s->recording = true;
    s->order = gpu_order();
    return PI_OK;
}

pi_status cuda_record_end(gpu_stream *s, gpu_program **out, pi_error *err) {
    gpu_device *d = s->device;
    if (!s->recording) return error_set(err, PI_ERR_ARG, "no program is being recorded: begin one");
    s->recording = false;
    if (s->side) s->side->branch = false; /* also after a failed recording */
    s->side = nullptr;
    if (!cuda_use(d)) return cuda_status(d, err);
    cudaGraph_t graph = nullptr;
    cudaError_t e = cudaStreamEndCapture(s->stream, &graph);
    if (e != cudaSuccess) {
        d->overlaps = false; /* the retry is without overlap, which the driver may not support */
        return cuda_error(err, e, "cannot capture a program");
    }
    gpu_program *p = static_cast<gpu_program *>(d->host->alloc(sizeof *p));
    if (!p) {
        cudaGraphDestroy(graph);
        return error_nomem(err, sizeof *p, "a program");
    }
    memset(p, 0, sizeof *p);
    p->device = d;
    p->graph = graph;
    e = cudaGraphInstantiateWithFlags(&p->exec, graph, 0);
    d->overlaps = d->overlaps && e == cudaSuccess;
    if (e == cudaSuccess) e = GPU_GRAPH_UPLOAD(p->exec, s->stream);
    pi_status status = cuda_status(d, err); /* errors of the recorded work */
    if (e != cudaSuccess) status = cuda_error(err, e, "cannot instantiate a program");
    if (status) {
        cuda_program_free(p);
        return status;
    }
    *out = p;
    return PI_OK;
}

void cuda_program_launch(gpu_stream *s, gpu_program *p) {
    if (!cuda_use(s->device)) return;
    gpu_frees.begin(&s->busy);
    cuda_stick(s->device, cudaGraphLaunch(p->exec, s->stream), "cannot launch a program");
}

void cuda_program_free(gpu_program *p) {
    if (!p) return;
    if (cuda_use(p->device)) {
        if (p->exec) cudaGraphExecDestroy(p->exec);
        cudaGraphDestroy(p->graph);
    }
    p->device->host->free(p);
}
