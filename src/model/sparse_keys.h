/* sparse_keys.h: names of the keys that a prepared model's file has in addition to the ordinary
 * ones. Arrays have one item per layer. The tensors are rows of the architecture table. */
#ifndef MODEL_SPARSE_KEYS_H
#define MODEL_SPARSE_KEYS_H

#define SPARSE_KEY_VERSION            "powerinfer.version" /* u32, 1: the file is prepared */
#define SPARSE_KEY_CALIBRATION_TOKENS "powerinfer.calibration.tokens" /* u32 */
#define SPARSE_KEY_CALIBRATION_SHA256 "powerinfer.calibration.sha256" /* string, 64 hex digits */
/* f32: relative increase of perplexity on held-out calibration text in the mode that `auto` selects
 * (0.004 for 0.4%); NaN when not measured. */
#define SPARSE_KEY_CALIBRATION_LOSS  "powerinfer.calibration.loss"
#define SPARSE_KEY_PREDICTOR_KIND    "powerinfer.predictor.kind"    /* strings */
#define SPARSE_KEY_PREDICTOR_INPUT   "powerinfer.predictor.input"   /* "normed", "residual" */
#define SPARSE_KEY_PREDICTOR_RECALL  "powerinfer.predictor.recall"  /* f32, contribution recall */
#define SPARSE_KEY_PREDICTOR_DENSITY "powerinfer.predictor.density" /* f32, fraction selected */
/* f32: experts: fraction of a chosen expert's neurons that are active; NaN: the layer has none */
#define SPARSE_KEY_EXPERT_ACTIVE "powerinfer.expert.active"
/* f32: thresholds of activations and of hidden values (model_layer_sparse), NaN: none; measured
 * fractions of the rows of up and down that are read, NaN: unknown; loss as calibration.loss */
#define SPARSE_KEYS_THRESHOLD          "powerinfer.threshold."
#define SPARSE_KEY_THRESHOLD_CUT       SPARSE_KEYS_THRESHOLD "cut"
#define SPARSE_KEY_THRESHOLD_DOWN      SPARSE_KEYS_THRESHOLD "down"
#define SPARSE_KEY_THRESHOLD_UP_ROWS   SPARSE_KEYS_THRESHOLD "up_rows"
#define SPARSE_KEY_THRESHOLD_DOWN_ROWS SPARSE_KEYS_THRESHOLD "down_rows"
#define SPARSE_KEY_THRESHOLD_LOSS      SPARSE_KEYS_THRESHOLD "loss"
/* f32: predictor of the output head (model_head) */
#define SPARSE_KEYS_HEAD         "powerinfer.head."
#define SPARSE_KEY_HEAD_DISTANCE SPARSE_KEYS_HEAD "distance"
#define SPARSE_KEY_HEAD_LOSS     SPARSE_KEYS_HEAD "loss" /* NaN when not measured */
#define SPARSE_KEY_HEAD_ROWS     SPARSE_KEYS_HEAD "rows" /* fraction of candidates */
/* the original type of ffn_down per layer, which --undo restores */
#define SPARSE_KEY_SOURCE_DOWN_TYPE "powerinfer.source.down_type" /* strings */
/* strings: types of the rows in a layer's bundles (bundle.h), "none" where the part is absent */
#define SPARSE_KEYS_BUNDLE          "powerinfer.bundle."
#define SPARSE_KEY_BUNDLE_GATE_TYPE SPARSE_KEYS_BUNDLE "gate_type"
#define SPARSE_KEY_BUNDLE_UP_TYPE   SPARSE_KEYS_BUNDLE "up_type"
#define SPARSE_KEY_BUNDLE_DOWN_TYPE SPARSE_KEYS_BUNDLE "down_type"
/* as above, for experts' matrices; then f32: neurons per expert, 0 where the layer has no
 * bundles */
#define SPARSE_KEYS_BUNDLE_EXPERT   SPARSE_KEYS_BUNDLE "expert_"
#define SPARSE_KEY_BUNDLE_EXPERT_FF SPARSE_KEYS_BUNDLE_EXPERT "ff"
/* u32: general.alignment of the file that was bundled, where it had one */
#define SPARSE_KEY_SOURCE_ALIGNMENT "powerinfer.source.alignment"
/* strings: the tensors of that file, in their order */
#define SPARSE_KEY_SOURCE_TENSORS "powerinfer.source.tensors"
/* f32, in files of the original PowerInfer, and in files prepared from them: neurons with lower
 * scores are skipped */
#define SPARSE_KEY_PREDICTOR_THRESHOLD "powerinfer.sparse_threshold"

/* What `tune` found fastest, and for which machine. These keys may be in files that are not
 * prepared. Speeds are tokens per second of decode. */
#define TUNE_KEYS             "powerinfer.tune."
#define TUNE_KEY_CPU          TUNE_KEYS "cpu"         /* string: cpu_model_name() */
#define TUNE_KEY_CPUS         TUNE_KEYS "cpus"        /* u32: cpu_count_available() */
#define TUNE_KEY_MODE         TUNE_KEYS "mode"        /* string */
#define TUNE_KEY_HEAD         TUNE_KEYS "head"        /* string: "dense", "predict" */
#define TUNE_KEY_THREADS      TUNE_KEYS "threads"     /* u32; 0: not tuned */
#define TUNE_KEY_N_CTX        TUNE_KEYS "n_ctx"       /* u32, tokens of the context */
#define TUNE_KEY_ATTN_BLOCKS  TUNE_KEYS "attn_blocks" /* u32; 0: all positions */
#define TUNE_KEY_LOSS         TUNE_KEYS "loss"  /* f32, as calibration.loss: of all together */
#define TUNE_KEY_SPEED        TUNE_KEYS "speed" /* f32 */
#define TUNE_KEY_SPEED_BEFORE TUNE_KEYS "speed_before" /* f32: of the input by default */

enum { SPARSE_VERSION = 1 };

#endif
