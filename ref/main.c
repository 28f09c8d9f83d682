/* wanhe-ref VECTORS.safetensors [STEPS]: trains the model in a stored PyTorch run with the oracle and prints both side
 * by side. Exit 0: all within the bounds of README.md; 1: not; 2: wrong arguments. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "vectors.h"
#include "wanhe_ref.h"

static double stored(const struct vectors *v, const char *name, int i) {
    struct vector t;
    return vectors_find(v, name, &t) ? vector_get(&t, (size_t)i) : NAN;
}

static double relative(double a, double b) { return fabs(a - b) / fabs(b); }

/* Returns whether all steps are within the bounds. */
static int train(const struct vectors *v, int steps) {
    struct ref_config c = vectors_config(v);
    struct ref *r = ref_new(&c, 0);
    struct vector shape;
    int32_t *ids = vectors_ints(v, "ids"), *labels = vectors_ints(v, "labels"), *starts = NULL;
    if (vectors_find(v, "document_start", &shape)) starts = vectors_ints(v, "document_start");
    vectors_find(v, "ids", &shape);
    int B = (int)shape.shape[1], T = (int)shape.shape[2], good = 1;
    if (steps > (int)shape.shape[0]) steps = (int)shape.shape[0];
    vectors_load(v, "weight.", r);

    printf("step  lr         loss         torch f32    deviation  norm         torch f32    deviation\n");
    for (int t = 1; t <= steps; t++) {
        size_t at = (size_t)(t - 1) * shape.shape[1] * shape.shape[2];
        double loss = ref_step(r, B, T, ids + at, labels + at, starts ? (uint32_t *)starts + at : NULL);
        double norm = ref_norm(r), lr = ref_lr(&c, t);
        double torch_loss = stored(v, "loss.f32", t - 1), torch_norm = stored(v, "norm.f32", t - 1);
        printf("%4d  %.3e  %.9f  %.9f  %.1e    %.9f  %.9f  %.1e\n", t, lr, loss, torch_loss, relative(loss, torch_loss),
               norm, torch_norm, relative(norm, torch_norm));
        good = good && relative(loss, torch_loss) <= 1e-5 && relative(norm, torch_norm) <= 1e-4;
        ref_update(r, lr, t);
    }
    free(ids), free(labels), free(starts);
    ref_free(r);
    return good;
}

int main(int argc, char **argv) {
    struct vectors v;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: wanhe-ref VECTORS.safetensors [STEPS]\n");
        return 2;
    }
    if (!vectors_open(argv[1], &v)) {
        fprintf(stderr, "wanhe-ref: cannot read %s\n", argv[1]);
        return 2;
    }
    int good = train(&v, argc == 3 ? atoi(argv[2]) : 10);
    vectors_close(&v);
    return good ? 0 : 1;
}
