/* Trains a small network to say which byte follows eight others: an embedding, a tensor-parallel MLP with a
 * residual, a softmax. Plain C with matrix products of its own; MPI for tensor parallelism (tp ranks) and
 * data parallelism (the rest). usage: mpirun -n RANKS train TP [STEPS] train_amaxscope.c is train.c with
 * amaxscope in it, and takes [STEPS [CONFIG [LOGS]]]: compare the two. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amaxscope_mpi.h"

#define OK(call) \
  ((call) == AMAXSCOPE_OK ? (void)0 : (puts(amaxscope_last_error()), (void)MPI_Abort(MPI_COMM_WORLD, 1)))

enum {
  kContext = 8,
  kEmbedding = 16,
  kWidth = kContext * kEmbedding,
  kHidden = 256,
  kBytes = 256,
  kBatch = 32
};

static const char kText[] =
    "The scale of a tensor is the largest number of the format over the largest magnitude of the tensor. A "
    "rank that makes a "
    "scale of its own part alone writes codes that the others read wrongly. Nothing crashes, and the loss "
    "looks plausible. "
    "That is why equal things are compared: codes with codes, scales with scales, ranks with ranks. ";

typedef struct Linear {
  int inputs, outputs;
  float *weight, *gradient; /* [outputs][inputs] */
  amaxscope_layer* debug;
  amaxscope_saved* saved; /* from forward to backward, in steps that amaxscope looks at */
} Linear;

static amaxscope_view view(float* data, int rows, int cols) {
  return (amaxscope_view){.data = data, .dtype = AMAXSCOPE_F32, .rows = rows, .cols = cols};
}

static MPI_Comm tp, dp;
static int world_rank, tp_rank, tp_size, dp_rank, dp_size;

static float* zeros(int count) {
  float* values = calloc((size_t)count, sizeof *values);
  if (values == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return values;
}

/* Every rank draws the whole of a weight, so that the model does not depend on how it is split. */
static float uniform(unsigned* state) {
  *state = *state * 1664525U + 1013904223U;
  return (float)(*state >> 8) / 8388608.0F - 1.0F;
}

/* parts_out > 1: this rank has a slice of the outputs (column parallel); parts_in > 1: of the inputs (row
 * parallel). */
static void make_linear(Linear* l, int outputs, int inputs, int parts_out, int parts_in, unsigned seed) {
  const int first_out = parts_out > 1 ? tp_rank * (outputs / parts_out) : 0;
  const int first_in = parts_in > 1 ? tp_rank * (inputs / parts_in) : 0;
  int i, j;
  l->outputs = outputs / parts_out;
  l->inputs = inputs / parts_in;
  l->weight = zeros(l->outputs * l->inputs);
  l->gradient = zeros(l->outputs * l->inputs);
  for (i = 0; i < outputs; ++i) {
    for (j = 0; j < inputs; ++j) {
      const float value = uniform(&seed) / sqrtf((float)inputs);
      if (i < first_out || i >= first_out + l->outputs || j < first_in || j >= first_in + l->inputs) continue;
      l->weight[(i - first_out) * l->inputs + j - first_in] = value;
    }
  }
}

/* y[rows][outputs] = x[rows][inputs] weight^T */
static void linear_forward(Linear* l, float* y, float* x, int rows) {
  amaxscope_view vx = view(x, rows, l->inputs), vw = view(l->weight, l->outputs, l->inputs),
                 vy = view(y, rows, l->outputs);
  int i, o, k;
  if (amaxscope_active(l->debug)) {
    OK(amaxscope_forward(l->debug, &vx, &vw, &vy, NULL, &l->saved));
    return;
  }
  for (i = 0; i < rows; ++i) {
    for (o = 0; o < l->outputs; ++o) {
      float sum = 0.0F;
      for (k = 0; k < l->inputs; ++k) sum += x[i * l->inputs + k] * l->weight[o * l->inputs + k];
      y[i * l->outputs + o] = sum;
    }
  }
}

/* dx = dy weight; gradient += dy^T x */
static void linear_backward(Linear* l, float* dx, float* dy, float* x, int rows) {
  amaxscope_view vy = view(dy, rows, l->outputs), vx = view(dx, rows, l->inputs),
                 vw = view(l->gradient, l->outputs, l->inputs);
  int i, o, k;
  if (l->saved != NULL) {
    OK(amaxscope_backward(l->debug, &vy, &vx, &vw, 1.0F, NULL, &l->saved));
    return;
  }
  memset(dx, 0, (size_t)(rows * l->inputs) * sizeof *dx);
  for (i = 0; i < rows; ++i) {
    for (o = 0; o < l->outputs; ++o) {
      const float d = dy[i * l->outputs + o];
      for (k = 0; k < l->inputs; ++k) {
        dx[i * l->inputs + k] += d * l->weight[o * l->inputs + k];
        l->gradient[o * l->inputs + k] += d * x[i * l->inputs + k];
      }
    }
  }
}

static void watch(amaxscope_session* session, Linear* l, const char* name, amaxscope_parallel parallel) {
  amaxscope_layer_options options = {.size = sizeof options, .name = name, .number = 1, .parallel = parallel};
  l->saved = NULL;
  OK(amaxscope_register(session, &options, &l->debug));
}

static void sum_over(MPI_Comm group, float* values, int count) {
  MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, group);
}

static void descend(float* weight, float* gradient, int count, float rate) {
  int i;
  sum_over(dp, gradient, count);
  for (i = 0; i < count; ++i) weight[i] -= rate * gradient[i] / (float)dp_size;
  memset(gradient, 0, (size_t)count * sizeof *gradient);
}

/* Turns logits into the gradient of the mean loss; returns the mean loss. */
static float cross_entropy(float* logits, const int* targets, int rows) {
  float loss = 0.0F;
  int i, j;
  for (i = 0; i < rows; ++i) {
    float* row = logits + i * kBytes;
    float most = row[0], sum = 0.0F;
    for (j = 1; j < kBytes; ++j) most = row[j] > most ? row[j] : most;
    for (j = 0; j < kBytes; ++j) sum += row[j] = expf(row[j] - most);
    loss -= logf(row[targets[i]] / sum) / (float)rows;
    for (j = 0; j < kBytes; ++j) row[j] = (row[j] / sum - (j == targets[i] ? 1.0F : 0.0F)) / (float)rows;
  }
  return loss;
}

int main(int argc, char** argv) {
  amaxscope_options options = {.size = sizeof options};
  amaxscope_session* session;
  Linear fc1, fc2, head;
  float *embedding, *embedding_gradient, *x, *h, *y, *logits, *dh, *dx, *dy;
  int targets[kBatch], bytes[kBatch][kContext];
  int steps, step, ranks, i, j;
  unsigned seed = 7;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  tp_size = argc > 1 ? atoi(argv[1]) : 1;
  steps = argc > 2 ? atoi(argv[2]) : 100;
  if (tp_size < 1 || ranks % tp_size != 0 || kHidden % tp_size != 0) {
    if (world_rank == 0)
      fprintf(stderr, "usage: mpirun -n RANKS %s TP [STEPS]; TP divides RANKS and %d\n", argv[0], kHidden);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Comm_split(MPI_COMM_WORLD, world_rank / tp_size, world_rank, &tp);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % tp_size, world_rank, &dp);
  MPI_Comm_rank(tp, &tp_rank);
  MPI_Comm_rank(dp, &dp_rank);
  MPI_Comm_size(dp, &dp_size);

  make_linear(&fc1, kHidden, kWidth, tp_size, 1, 1); /* column parallel */
  make_linear(&fc2, kWidth, kHidden, 1, tp_size, 2); /* row parallel */
  make_linear(&head, kBytes, kWidth, 1, 1, 3);       /* the same on every rank */
  options.config_path = argc > 3 ? argv[3] : NULL;
  options.log_dir = argc > 4 ? argv[4] : "amaxscope_logs";
  options.tp_size = tp_size;
  OK(amaxscope_group_from_mpi(MPI_COMM_WORLD, &options.world));
  OK(amaxscope_open(&options, &session));
  watch(session, &fc1, "layers.1.mlp.fc1", AMAXSCOPE_COLUMN);
  watch(session, &fc2, "layers.1.mlp.fc2", AMAXSCOPE_ROW);
  watch(session, &head, "head", AMAXSCOPE_NOT_SPLIT);
  embedding = zeros(kBytes * kEmbedding);
  embedding_gradient = zeros(kBytes * kEmbedding);
  for (i = 0; i < kBytes * kEmbedding; ++i) embedding[i] = uniform(&seed);
  x = zeros(kBatch * kWidth);
  h = zeros(kBatch * fc1.outputs);
  y = zeros(kBatch * kWidth);
  logits = zeros(kBatch * kBytes);
  dh = zeros(kBatch * fc1.outputs);
  dx = zeros(kBatch * kWidth);
  dy = zeros(kBatch * kWidth);

  for (step = 0; step < steps; ++step) {
    float loss;
    for (i = 0; i < kBatch; ++i) {
      const int at = (int)(((size_t)(step * dp_size + dp_rank) * kBatch + (size_t)i) * 37U %
                           (sizeof kText - kContext - 1));
      for (j = 0; j < kContext; ++j) bytes[i][j] = (unsigned char)kText[at + j];
      targets[i] = (unsigned char)kText[at + kContext];
      for (j = 0; j < kContext; ++j) {
        memcpy(x + i * kWidth + j * kEmbedding, embedding + bytes[i][j] * kEmbedding, kEmbedding * sizeof *x);
      }
    }
    linear_forward(&fc1, h, x, kBatch);
    for (i = 0; i < kBatch * fc1.outputs; ++i) h[i] = h[i] > 0.0F ? h[i] : 0.0F;
    linear_forward(&fc2, y, h, kBatch);
    sum_over(tp, y, kBatch * kWidth);
    for (i = 0; i < kBatch * kWidth; ++i) y[i] += x[i];
    linear_forward(&head, logits, y, kBatch);
    loss = cross_entropy(logits, targets, kBatch);

    linear_backward(&head, dy, logits, y, kBatch);
    linear_backward(&fc2, dh, dy, h, kBatch);
    for (i = 0; i < kBatch * fc1.outputs; ++i) dh[i] = h[i] > 0.0F ? dh[i] : 0.0F;
    linear_backward(&fc1, dx, dh, x, kBatch);
    sum_over(tp, dx, kBatch * kWidth);
    for (i = 0; i < kBatch; ++i) {
      for (j = 0; j < kWidth; ++j) {
        embedding_gradient[bytes[i][j / kEmbedding] * kEmbedding + j % kEmbedding] +=
            dx[i * kWidth + j] + dy[i * kWidth + j];
      }
    }
    descend(fc1.weight, fc1.gradient, fc1.outputs * fc1.inputs, 0.1F);
    descend(fc2.weight, fc2.gradient, fc2.outputs * fc2.inputs, 0.1F);
    descend(head.weight, head.gradient, head.outputs * head.inputs, 0.1F);
    descend(embedding, embedding_gradient, kBytes * kEmbedding, 0.1F);
    sum_over(dp, &loss, 1);
    OK(amaxscope_scalar(session, "loss", (double)loss / dp_size));
    OK(amaxscope_step(session));
    if (world_rank == 0) printf("step %d loss %.6f\n", step, (double)loss / dp_size);
  }
  OK(amaxscope_close(session));
  amaxscope_group_free(options.world);
  MPI_Finalize();
  return 0;
}
