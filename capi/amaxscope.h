/* amaxscope for programs in C, or in any language that calls C.
 *
 * A program opens a session on every rank, registers its GEMM layers, hands in each operand before a GEMM and
 * each result after it, and says when a step is over. The debug config (YAML) decides what happens then;
 * docs/c_api.md shows a trainer.
 *
 * Status: every function that can fail returns an amaxscope_status and never ends the process, unless the
 * config or the failure policy says that the job must not go on; then it is amaxscope_collectives.abort that
 * is called. The text of the last failure of this thread is amaxscope_last_error(). No C++ exception leaves
 * the library.
 *
 * Threads: a session and what belongs to it (layers, quantized and saved tensors, groups, devices) is used by
 * one thread at a time, not always the same one; two sessions that share no group and no device may be used
 * by two threads at once. The functions of a program that the library calls are called on the thread that
 * called the library. CPU tensors are computed on by AMAXSCOPE_THREADS threads of the library's own.
 *
 * Blocking: amaxscope_open with a config, amaxscope_freeze, amaxscope_step with something due,
 * amaxscope_weights_are_final, and quantizing where a scale is shared over ranks talk to the other ranks;
 * everything else is local. Tensors on a device: the functions enqueue on the view's stream and do not wait,
 * but for what docs/cuda.md lists.
 *
 * Memory: the library borrows what views point to, during the call, on a device until what was enqueued is
 * done; what amaxscope_quantize of a tensor in high precision returns goes on pointing to it. Strings are
 * copied. What the library hands out it frees, by the function named.
 *
 * Lifetimes: a layer ends with its session. Quantized and saved tensors do not: they are computed on and
 * freed before amaxscope_close or after, and the CPU threads that they need live as long (amaxscope_backward
 * needs the layer, which leaves amaxscope_saved_free). What an operand points to lives as long as its
 * quantized tensor. A group and a device outlive the sessions that use them, a device also the quantized and
 * saved tensors on it; a group needs not the one that it was split off. A CUDA graph that was captured with a
 * session is not launched after amaxscope_close. A program's functions are called, and their contexts are
 * used, until the group is released or the device freed.
 *
 * Structs: options begin with their own size, so that a program built with an older header works with a newer
 * library of the same major version; new fields come at the end. Zero in any other field is the default:
 * amaxscope_options options = {.size = sizeof options}; Views and moments have no size and do not change.
 */
#ifndef AMAXSCOPE_H
#define AMAXSCOPE_H

#include <stddef.h>
#include <stdint.h>

/* Of this header; amaxscope_version() is the library's. */
#define AMAXSCOPE_VERSION_MAJOR 0
#define AMAXSCOPE_VERSION_MINOR 1
#define AMAXSCOPE_VERSION_PATCH 0

#if defined(__GNUC__)
#define AMAXSCOPE_API __attribute__((visibility("default")))
#else
#define AMAXSCOPE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum amaxscope_status {
  AMAXSCOPE_OK = 0,
  AMAXSCOPE_ERROR_USAGE = 1,    /* wrong call or argument */
  AMAXSCOPE_ERROR_CONFIG = 2,   /* the debug YAML is wrong */
  AMAXSCOPE_ERROR_INPUT = 3,    /* a file is wrong or missing */
  AMAXSCOPE_ERROR_TENSOR = 4,   /* dtype, shape or layout of a tensor does not fit */
  AMAXSCOPE_ERROR_MISMATCH = 5, /* ranks of a group disagree */
  AMAXSCOPE_ERROR_DEADLINE = 6, /* a collective did not complete in time */
  AMAXSCOPE_ERROR_IO = 7,       /* the operating system refused a read or write */
  AMAXSCOPE_STOPPED = 8,        /* a feature ended the run on all ranks, as the config asked */
  AMAXSCOPE_ERROR_INTERNAL = 9, /* a bug of this library */
  AMAXSCOPE_ERROR_MEMORY = 10   /* out of memory */
} amaxscope_status;

typedef enum amaxscope_dtype {
  AMAXSCOPE_F64 = 0,
  AMAXSCOPE_F32 = 1,
  AMAXSCOPE_F16 = 2,
  AMAXSCOPE_BF16 = 3,
  AMAXSCOPE_E4M3 = 4, /* FP8 codes, one byte */
  AMAXSCOPE_E5M2 = 5,
  AMAXSCOPE_E8M0 = 6, /* scale codes: byte b is 2^(b-127) */
  AMAXSCOPE_E2M1 = 7, /* FP4 codes, two to a byte, the even element in the low four bits */
  AMAXSCOPE_U8 = 8,
  AMAXSCOPE_U32 = 9,
  AMAXSCOPE_I32 = 10,
  AMAXSCOPE_U64 = 11,
  AMAXSCOPE_I64 = 12
} amaxscope_dtype;

/* Operands and results of a layer's three GEMMs: output = activation x weight, dgrad = gradient x weight,
 * wgrad = gradient x activation. */
typedef enum amaxscope_tensor {
  AMAXSCOPE_ACTIVATION = 0,
  AMAXSCOPE_WEIGHT = 1,
  AMAXSCOPE_GRADIENT = 2, /* of the output */
  AMAXSCOPE_OUTPUT = 3,
  AMAXSCOPE_WGRAD = 4,
  AMAXSCOPE_DGRAD = 5
} amaxscope_tensor;

typedef enum amaxscope_gemm {
  AMAXSCOPE_FPROP = 0,
  AMAXSCOPE_DGRAD_GEMM = 1,
  AMAXSCOPE_WGRAD_GEMM = 2
} amaxscope_gemm;
typedef enum amaxscope_phase {
  AMAXSCOPE_FORWARD = 0,
  AMAXSCOPE_RECOMPUTE = 1, /* a forward that is run again for backward */
  AMAXSCOPE_BACKWARD = 2,
  AMAXSCOPE_EVALUATION = 3
} amaxscope_phase;
typedef enum amaxscope_parallel {
  AMAXSCOPE_NOT_SPLIT = 0,
  AMAXSCOPE_COLUMN = 1,
  AMAXSCOPE_ROW = 2
} amaxscope_parallel;
/* How a tensor lies over its tensor-parallel group. */
typedef enum amaxscope_layout {
  AMAXSCOPE_REPLICATED = 0,
  AMAXSCOPE_SHARD_ROWS = 1,
  AMAXSCOPE_SHARD_COLUMNS = 2,
  AMAXSCOPE_PARTIAL_SUM = 3
} amaxscope_layout;
typedef enum amaxscope_recipe {
  AMAXSCOPE_HIGH_PRECISION = 0,
  AMAXSCOPE_DELAYED = 1,
  AMAXSCOPE_CURRENT = 2,
  AMAXSCOPE_MXFP8 = 3,
  AMAXSCOPE_FP8_BLOCK = 4,
  AMAXSCOPE_NVFP4 = 5
} amaxscope_recipe;
typedef enum amaxscope_reduce_op {
  AMAXSCOPE_SUM = 0,
  AMAXSCOPE_MIN = 1,
  AMAXSCOPE_MAX = 2
} amaxscope_reduce_op;

/* Where tensors of a device are computed on: amaxscope_cuda.h makes one. */
typedef struct amaxscope_device amaxscope_device;
typedef struct amaxscope_group amaxscope_group;
typedef struct amaxscope_session amaxscope_session;
typedef struct amaxscope_layer amaxscope_layer;
typedef struct amaxscope_quantized amaxscope_quantized;
typedef struct amaxscope_saved amaxscope_saved;

/* "0.1.0" */
AMAXSCOPE_API const char* amaxscope_version(void);
/* What went wrong in the last call of this thread that did not return AMAXSCOPE_OK; "" before. Valid until
 * the next failure of this thread. */
AMAXSCOPE_API const char* amaxscope_last_error(void);
/* For code that adds to this library: keeps the text for amaxscope_last_error() and returns the status. */
AMAXSCOPE_API amaxscope_status amaxscope_fail(amaxscope_status status, const char* text);
/* "AMAXSCOPE_ERROR_CONFIG" */
AMAXSCOPE_API const char* amaxscope_status_name(amaxscope_status status);

/* ---- groups of ranks
 * -------------------------------------------------------------------------------------------------- */

/* A program's own collectives on host memory. Each returns 0, or another number when it failed; it blocks
 * until done, on the thread that uses the session. amaxscope_mpi.h makes one of an MPI communicator. */
typedef struct amaxscope_collectives {
  size_t size; /* sizeof(amaxscope_collectives) */
  int rank;
  int ranks;
  const int* world_ranks; /* the rank in the job of each of them; NULL: 0 .. ranks-1 */
  void* context;          /* handed to every function */
  /* F64, F32, U32, I32, U64 and I64 */
  int (*all_reduce)(void* context, void* io, int64_t count, amaxscope_dtype dtype, amaxscope_reduce_op op);
  int (*all_gather)(void* context, const void* in, void* out, size_t bytes_per_rank);
  int (*broadcast)(void* context, void* io, size_t bytes, int root);
  int (*barrier)(void* context);
  /* Ends the whole job with this status and does not return. */
  void (*abort)(void* context, int status, const char* reason);
  /* The group of the ranks that gave the same color, ordered by key; every rank of this one calls it. out has
   * its size set and is otherwise zero; a rank with a negative color leaves out->ranks 0. A session splits
   * what it is given, so that its traffic never meets the program's. */
  int (*split)(void* context, int color, int key, struct amaxscope_collectives* out);
  /* The group is not used any more. May be NULL. */
  void (*release)(void* context);
  /* all_reduce that does not wait: *request is handed to test until that sets *done. With both a rank that
   * never comes is reported at the deadline; without them (NULL) it is waited for as long as all_reduce
   * waits. When test is not called to its end the memory stays valid until the process ends. */
  int (*start_all_reduce)(void* context, void* io, int64_t count, amaxscope_dtype dtype,
                          amaxscope_reduce_op op, void** request);
  int (*test)(void* context, void* request, int* done);
} amaxscope_collectives;

/* context is released with the group. */
AMAXSCOPE_API amaxscope_status amaxscope_group_from_callbacks(const amaxscope_collectives* collectives,
                                                              amaxscope_group** group);
/* Collective over the group; a rank with a negative color gets NULL. */
AMAXSCOPE_API amaxscope_status amaxscope_group_split(amaxscope_group* group, int color, int key,
                                                     amaxscope_group** part);
/* After the sessions that use it are closed. NULL is allowed. */
AMAXSCOPE_API void amaxscope_group_free(amaxscope_group* group);

/* ---- the session
 * ------------------------------------------------------------------------------------------------------ */

typedef enum amaxscope_on_failure {
  AMAXSCOPE_BY_CONFIG = 0, /* detach when everything configured only observes, else abort */
  AMAXSCOPE_DETACH = 1,    /* stop observing, say so once, let the training go on */
  AMAXSCOPE_ABORT = 2
} amaxscope_on_failure;

typedef enum amaxscope_amax_scope {
  AMAXSCOPE_SCALE_OF_TENSOR =
      0, /* scales that features make: the same on all ranks that hold parts of a tensor */
  AMAXSCOPE_SCALE_AS_TE = 1, /* shared where codes are gathered, as the recipes of TransformerEngine do */
  AMAXSCOPE_SCALE_LOCAL = 2
} amaxscope_amax_scope;

typedef struct amaxscope_options {
  size_t size;             /* sizeof(amaxscope_options) */
  const char* config_path; /* the debug config; this or config_text, or neither: nothing is observed */
  const char* config_text;
  const char* log_dir; /* NULL: no files */
  int64_t first_iteration;
  double deadline_seconds; /* how long ranks may wait for one another; 0: 600 */
  amaxscope_on_failure on_failure;
  amaxscope_amax_scope amax_scope;
  amaxscope_group* world; /* NULL: one rank. Borrowed until amaxscope_close */
  /* Megatron's sizes, from which the groups are made (tp varies fastest, then cp, dp, pp); 0: 1. */
  int tp_size;
  int cp_size;
  int pp_size;
  /* Fields from here on may be missing in a program of an older header. */
  const char* preset; /* "watch", "nan", "diagnose", "gap" or "full", instead of a config */
  /* Iterations between polls of the ranks, where something needs them (docs/live.md); 0: 1 when findings set
   * off the job, else 10. */
  int64_t poll_every;
  int watch_config;       /* 1: rank 0 looks at config_path at every poll, an edited file takes effect */
  int replaceable_config; /* 1: amaxscope_replace_config may be called */
  int dump_on_signal;     /* 1: SIGUSR1 asks for the state of the runtime, in log_dir/events */
  int strict;             /* 1: a section of the config that matches no layer is an error */
  int log_all_ranks;      /* 1: records of every rank of a group instead of its leader */
  int count_replicas;     /* 1: every replica of a tensor counts in sums, as in TransformerEngine */
} amaxscope_options;

/* Collective over options->world. */
AMAXSCOPE_API amaxscope_status amaxscope_open(const amaxscope_options* options, amaxscope_session** session);
/* Flushes the logs, marks the run as closed and frees the session and its layers; quantized and saved tensors
 * stay (Lifetimes, above). NULL is allowed. Does not talk to other ranks. */
AMAXSCOPE_API amaxscope_status amaxscope_close(amaxscope_session* session);

/* Compares the registrations of all ranks now instead of at the first step. */
AMAXSCOPE_API amaxscope_status amaxscope_freeze(amaxscope_session* session);
/* Ends an iteration, after the optimizer: new scales of delayed scaling, statistics that are due.
 * AMAXSCOPE_STOPPED, the same on all ranks, when the config asked to end the run at what was found. */
AMAXSCOPE_API amaxscope_status amaxscope_step(amaxscope_session* session);
AMAXSCOPE_API int64_t amaxscope_iteration(const amaxscope_session* session);
/* 1 when a config is in force and the session has not detached. */
AMAXSCOPE_API int amaxscope_enabled(const amaxscope_session* session);
/* What could not be written to a log, or NULL. Observing goes on. Valid until amaxscope_close. */
AMAXSCOPE_API const char* amaxscope_write_failure(const amaxscope_session* session);

/* The loss, a norm, a learning rate: written with this iteration by rank 0. */
AMAXSCOPE_API amaxscope_status amaxscope_scalar(amaxscope_session* session, const char* name, double value);
/* No weight changes until the next amaxscope_step: amaxes of all weights that were given by
 * amaxscope_set_weight are reduced in one call. Every rank calls it at the same point of each step, or none
 * does. */
AMAXSCOPE_API amaxscope_status amaxscope_weights_are_final(amaxscope_session* session);

/* What must survive a restart, for this rank, beside the program's own checkpoint: what features have
 * learned, the histories and scales of layers with the recipe DELAYED, the places in the random numbers of
 * NVFP4. Two files in an existing directory, amaxscope_session_rank_R.safetensors and
 * amaxscope_recipes_rank_R.safetensors. save: between two steps. load: after the same layers are registered,
 * before the first step, with the same config and number of ranks; what does not fit is
 * AMAXSCOPE_ERROR_INPUT, and nothing has changed then. */
AMAXSCOPE_API amaxscope_status amaxscope_save_state(amaxscope_session* session, const char* directory);
AMAXSCOPE_API amaxscope_status amaxscope_load_state(amaxscope_session* session, const char* directory);

/* Another config for all ranks, instead of the one in force; the text counts on rank 0 and is taken at the
 * iteration after the next poll, everywhere or nowhere. AMAXSCOPE_ERROR_CONFIG for a text that is not valid;
 * what another rank finds is said in the log and changes nothing. Local. */
AMAXSCOPE_API amaxscope_status amaxscope_replace_config(amaxscope_session* session, const char* text);
/* Statistics that are no weights' are reduced over this group (NULL: not at all) instead of the one that
 * follows from the layers. Before any layer is registered; borrowed until amaxscope_close. */
AMAXSCOPE_API amaxscope_status amaxscope_set_reduction_group(amaxscope_session* session,
                                                             amaxscope_group* group);

/* ---- layers and tensors
 * ----------------------------------------------------------------------------------------------- */

typedef struct amaxscope_layer_options {
  size_t size;      /* sizeof(amaxscope_layer_options) */
  const char* name; /* "decoder.layers.1.mlp.linear_fc1", as in the config */
  int number;       /* of the transformer layer, from 1; 0: none */
  int is_expert;    /* 1: expert is its index among the experts of all ranks */
  int expert;
  amaxscope_parallel parallel;
  int sequence_parallel; /* 1: rows between the tensor-parallel regions are split over tp */
  amaxscope_recipe
      recipe; /* what amaxscope_quantize makes of operands where the config asks for nothing else */
  amaxscope_dtype dtype;     /* the compute dtype: F32, F16 or BF16; 0 (F64) stands for F32 */
  amaxscope_group* tp_group; /* NULL: the session's. Borrowed */
} amaxscope_layer_options;

/* The layer is freed with the session. Before the first step, in the same way on all ranks of a pipeline
 * stage. */
AMAXSCOPE_API amaxscope_status amaxscope_register(amaxscope_session* session,
                                                  const amaxscope_layer_options* options,
                                                  amaxscope_layer** layer);
/* Whether anything may differ from the plain path in this layer at this iteration: one comparison. A program
 * with kernels of its own asks this first, and calls the rest when it is 1. Calling the rest anyway gives the
 * layer's recipe. */
AMAXSCOPE_API int amaxscope_active(const amaxscope_layer* layer);

/* A row-major matrix. All tensors of one call are on one device, on one stream. */
typedef struct amaxscope_view {
  void* data; /* not written to where a function takes a const amaxscope_view* and says nothing else */
  amaxscope_dtype dtype;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;       /* elements between the starts of rows; 0: cols */
  amaxscope_device* device; /* NULL: host memory */
  void* stream;             /* of a device: the queue (cudaStream_t) on which the tensor is made and used */
} amaxscope_view;

typedef struct amaxscope_moment {
  amaxscope_phase phase;
  int microbatch; /* from 0, within a step */
} amaxscope_moment;

/* Where the weight is and stays until amaxscope_close, for amaxscope_weights_are_final. */
AMAXSCOPE_API amaxscope_status amaxscope_set_weight(amaxscope_layer* layer, const amaxscope_view* weight);

enum { AMAXSCOPE_ROWWISE = 1, AMAXSCOPE_COLUMNWISE = 2 };

/* An operand of GEMMs, as the config or else the recipe wants it. directions: which of the two uses come,
 * ROWWISE for fprop of activation and weight and for dgrad of the gradient, COLUMNWISE for the other. Every
 * rank of tp calls it for a tensor whose scale they share, ranks with no row too. A weight is quantized in
 * the first micro-batch of a step. */
AMAXSCOPE_API amaxscope_status amaxscope_quantize(amaxscope_layer* layer, amaxscope_tensor tensor,
                                                  const amaxscope_view* x, unsigned directions,
                                                  const amaxscope_moment* moment,
                                                  amaxscope_quantized** quantized);
/* Says that an operand of an earlier call is used again: a weight in later micro-batches, or in backward. */
AMAXSCOPE_API amaxscope_status amaxscope_reuse(amaxscope_layer* layer, amaxscope_tensor tensor,
                                               const amaxscope_view* x, const amaxscope_quantized* quantized,
                                               const amaxscope_moment* moment);
/* Frees what is not in directions; makes what is missing where the format allows. */
AMAXSCOPE_API amaxscope_status amaxscope_keep(amaxscope_quantized* quantized, unsigned directions);
AMAXSCOPE_API void amaxscope_quantized_free(amaxscope_quantized* quantized);

/* What a GEMM multiplies: views into the quantized tensor, valid until it is changed or freed. */
typedef struct amaxscope_operand {
  size_t size;         /* sizeof(amaxscope_operand), set by the program; the rest is written */
  amaxscope_view data; /* codes, or values in high precision */
  int transposed;      /* data is the transpose of the matrix that stands here */
  float scale_inv;     /* values are codes * scale_inv; 1 in high precision and with block scales */
  amaxscope_view
      block_scales; /* data NULL: none. E8M0 (MXFP8), F32 (FP8 blocks) or E4M3 (NVFP4), padding included */
  int block_rows;   /* elements under one scale */
  int block_cols;
  float tensor_factor; /* NVFP4: a block's scale stands for scale * tensor_factor; else 1 */
  int rotated; /* NVFP4: the codes are of the random Hadamard transform along the sum of the product */
  /* Codes on a device have these in device memory, where kernels made them, and the host has not seen them:
   * scale_inv is then 0, and tensor_factor is without the amax, which it is to be multiplied by. Else NULL.
   */
  const float* device_scale_inv;
  const float* device_tensor_amax;
} amaxscope_operand;

AMAXSCOPE_API amaxscope_status amaxscope_get_operand(const amaxscope_quantized* quantized, unsigned direction,
                                                     amaxscope_operand* operand);
/* "E4M3", "E4M3+E8M0 scales", "high precision"; copied as far as size allows, with a 0 at the end. */
AMAXSCOPE_API amaxscope_status amaxscope_format_name(const amaxscope_quantized* quantized, unsigned direction,
                                                     char* text, size_t size);
/* out = what the codes of a direction stand for, in the shape of the tensor, whatever the direction. F32, F16
 * or BF16. For programs that multiply in high precision. */
AMAXSCOPE_API amaxscope_status amaxscope_values(const amaxscope_quantized* quantized, unsigned direction,
                                                amaxscope_view* out);

/* out = a b^T as the GEMM of the layer has it, + beta * out: FPROP takes activation and weight, DGRAD_GEMM
 * gradient and weight, WGRAD_GEMM gradient and activation. Accumulates in F32. out: F32, or F16 and BF16 with
 * beta 0. */
AMAXSCOPE_API amaxscope_status amaxscope_multiply(amaxscope_gemm gemm, const amaxscope_quantized* a,
                                                  const amaxscope_quantized* b, float beta,
                                                  amaxscope_view* out);

/* Whether the config wants to see or change this result in this iteration. A program that accumulates into a
 * running sum (wgrad) then multiplies into a scratch first, because what counts is the product of this
 * micro-batch. */
AMAXSCOPE_API int amaxscope_wants_result(const amaxscope_layer* layer, amaxscope_tensor tensor);
/* The result of a GEMM, before any sum over ranks and before a bias. io may be changed, if the config says
 * so. a, b: its operands, and original_a, original_b what they were made of, for features that repeat the
 * GEMM in high precision; all may be NULL. */
AMAXSCOPE_API amaxscope_status amaxscope_result(amaxscope_layer* layer, amaxscope_tensor tensor,
                                                amaxscope_view* io, const amaxscope_moment* moment,
                                                const amaxscope_quantized* a, const amaxscope_quantized* b,
                                                const amaxscope_view* original_a,
                                                const amaxscope_view* original_b);

/* The whole of a linear layer's two passes, with amaxscope_multiply: quantizes, multiplies and hands in what
 * the functions above do one by one. For programs that let amaxscope multiply where it has something to do,
 * and for those without kernels of their own. What is summed over ranks, gathered or added as a bias stays
 * the program's.
 *
 * y = x weight^T. x and weight stay as they are until backward. saved NULL: no backward follows; else the new
 * object is freed by amaxscope_backward or amaxscope_saved_free. The weight is quantized in micro-batch 0 and
 * kept for the others. */
AMAXSCOPE_API amaxscope_status amaxscope_forward(amaxscope_layer* layer, const amaxscope_view* x,
                                                 const amaxscope_view* weight, amaxscope_view* y,
                                                 const amaxscope_moment* moment, amaxscope_saved** saved);
/* dx = dy weight; dweight = dy^T x + beta * dweight, of which the config sees and changes dy^T x. dx NULL:
 * not wanted. moment NULL: micro-batch 0. Frees *saved and sets it to NULL. */
AMAXSCOPE_API amaxscope_status amaxscope_backward(amaxscope_layer* layer, const amaxscope_view* dy,
                                                  amaxscope_view* dx, amaxscope_view* dweight, float beta,
                                                  const amaxscope_moment* moment, amaxscope_saved** saved);
AMAXSCOPE_API void amaxscope_saved_free(amaxscope_saved* saved);

/* Any tensor that is no operand, for sections with `observe:`. kind: residual, norm_weight, logits,
 * parameter, ... */
AMAXSCOPE_API amaxscope_status amaxscope_observe(amaxscope_session* session, const char* name,
                                                 const char* kind, const amaxscope_view* x,
                                                 amaxscope_layout layout, const amaxscope_moment* moment);
/* Whether amaxscope_observe_update of this name would do anything in this iteration: ask before computing
 * what it takes. */
AMAXSCOPE_API int amaxscope_observes_update(amaxscope_session* session, const char* name,
                                            amaxscope_layout layout);
/* What an optimizer step is about to do to a parameter: an observed tensor of the kind "update". before: the
 * weight as it is stored; update: F32 or F64, what will be added to it, not yet rounded to the weight's
 * dtype; normalized_gradient: g / sqrt(v) of Adam, or NULL. */
AMAXSCOPE_API amaxscope_status amaxscope_observe_update(amaxscope_session* session, const char* name,
                                                        const amaxscope_view* before,
                                                        const amaxscope_view* update, amaxscope_layout layout,
                                                        const amaxscope_view* normalized_gradient);

/* ---- devices
 * ------------------------------------------------------------------------------------------------------- */

/* After the sessions, quantized and saved tensors that used it; their streams live as long. NULL is allowed.
 */
AMAXSCOPE_API void amaxscope_device_free(amaxscope_device* device);

/* A step that the program captures into a CUDA graph and replays (docs/cuda.md):
 *   amaxscope_begin_capture; cudaStreamBeginCapture; forward, backward; cudaStreamEndCapture;
 *   amaxscope_end_capture; then in each iteration amaxscope_before_replay; cudaGraphLaunch; amaxscope_step.
 * begin: after the first amaxscope_step. What needs the host is refused with its name. */
AMAXSCOPE_API amaxscope_status amaxscope_begin_capture(amaxscope_session* session, amaxscope_device* device,
                                                       void* stream);
AMAXSCOPE_API amaxscope_status amaxscope_end_capture(amaxscope_session* session);
/* 1 when this iteration is not what was captured last: then the step is to be captured again. */
AMAXSCOPE_API int amaxscope_needs_capture(amaxscope_session* session);
AMAXSCOPE_API amaxscope_status amaxscope_before_replay(amaxscope_session* session);

#ifdef __cplusplus
}
#endif

#endif
