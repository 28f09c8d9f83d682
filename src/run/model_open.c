#include "run/model_open.h"

#include <stdlib.h>

#include "os/probe.h"
#include "run/weights.h"

static enum wh_status build(const struct wh_open_how *how, struct wh_open_model *m) {
    const struct wh_model *model = &m->info.model;
    const uint32_t T = how->T ? how->T : model->max_position;
    if (T > model->max_position)
        return WH_FAIL(WH_CONFIG, "%u positions are more than the model's %u", T, model->max_position);
    WH_TRY(wh_params_new(model, &m->params));
    const struct wh_net_shape shape = {.model = model,
                                       .params = &m->params,
                                       .grain = m->info.grain,
                                       .T = T,
                                       .micro_batch = how->micro_batch,
                                       .global_batch = how->micro_batch,
                                       .dtype = m->info.compute,
                                       .grad_dtype = WH_F32,
                                       .threads = how->threads ? how->threads : wh_probe_processors(),
                                       .kernels = how->kernels};
    WH_TRY(wh_net_new(&shape, &m->net));
    return wh_weights_load(&m->net, m->folder);
}

enum wh_status wh_open_model(const char *path, const struct wh_open_how *how, struct wh_open_model *out,
                             struct wh_text *remarks) {
    *out = (struct wh_open_model){0};
    WH_TRY(wh_ckpt_find(path, how->step, &out->folder, remarks));
    enum wh_status status = wh_ckpt_read(out->folder, &out->info);
    if (status == WH_OK) status = build(how, out);
    if (status != WH_OK) wh_open_model_close(out);
    return status;
}

void wh_open_model_close(struct wh_open_model *m) {
    wh_net_free(&m->net);
    wh_params_free(&m->params);
    free(m->folder);
    *m = (struct wh_open_model){0};
}
