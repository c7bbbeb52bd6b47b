/* A C99 program under mpirun: a column-parallel layer with sequence parallelism, whose activation scale must
 * be one number on all ranks, hooks on a GEMM of the program's own, and what a rank learns from an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amaxscope.h"
#include "amaxscope_mpi.h"

enum { kRows = 4, kInner = 32, kOutputs = 8, kSteps = 4 };

static int rank_of_world = 0;

#define CHECK(condition)                                                                               \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      fprintf(stderr, "rank %d, line %d: %s does not hold; last error: %s\n", rank_of_world, __LINE__, \
              #condition, amaxscope_last_error());                                                     \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                    \
    }                                                                                                  \
  } while (0)
#define OK(call) CHECK((call) == AMAXSCOPE_OK)

static const char* const kConfig =
    "scaled:\n"
    "  enabled: True\n"
    "  layers:\n"
    "    layer_name_regex_pattern: fc1\n"
    "  transformer_engine:\n"
    "    PerTensorScaling:\n"
    "      enabled: True\n"
    "      gemms: [fprop]\n"
    "      tensors: [activation, weight]\n"
    "    LogTensorStats:\n"
    "      enabled: True\n"
    "      tensors: [activation, output]\n"
    "      stats: [cur_amax, l1_norm]\n"
    "      freq: 2\n";

static amaxscope_view view_of(float* data, int64_t rows, int64_t cols) {
  amaxscope_view view = {0};
  view.data = data;
  view.dtype = AMAXSCOPE_F32;
  view.rows = rows;
  view.cols = cols;
  return view;
}

/* out = a b^T, the program's own kernel. */
static void matmul(const float* a, const float* b, float* out, int rows, int columns, int inner) {
  int i, j, k;
  for (i = 0; i < rows; ++i) {
    for (j = 0; j < columns; ++j) {
      float sum = 0.0F;
      for (k = 0; k < inner; ++k) sum += a[i * inner + k] * b[j * inner + k];
      out[i * columns + j] = sum;
    }
  }
}

static void forward(amaxscope_layer* layer, float* x, float* weight, int step) {
  float own_x[kRows * kInner], own_weight[kOutputs * kInner], y[kRows * kOutputs], plain[kRows * kOutputs];
  amaxscope_view x_view = view_of(x, kRows, kInner);
  amaxscope_view weight_view = view_of(weight, kOutputs, kInner);
  amaxscope_view own_x_view = view_of(own_x, kRows, kInner);
  amaxscope_view own_weight_view = view_of(own_weight, kOutputs, kInner);
  amaxscope_view y_view = view_of(y, kRows, kOutputs);
  amaxscope_moment moment = {AMAXSCOPE_FORWARD, 0};
  amaxscope_quantized *activation, *weight_codes;
  amaxscope_operand operand = {.size = sizeof operand};
  float least, most;
  char format[32];
  int i;
  CHECK(amaxscope_active(layer) == 1);
  OK(amaxscope_quantize(layer, AMAXSCOPE_ACTIVATION, &x_view, AMAXSCOPE_ROWWISE, &moment, &activation));
  OK(amaxscope_quantize(layer, AMAXSCOPE_WEIGHT, &weight_view, AMAXSCOPE_ROWWISE, &moment, &weight_codes));
  OK(amaxscope_format_name(activation, AMAXSCOPE_ROWWISE, format, sizeof format));
  CHECK(strcmp(format, "E4M3") == 0);
  OK(amaxscope_get_operand(activation, AMAXSCOPE_ROWWISE, &operand));
  CHECK(operand.data.dtype == AMAXSCOPE_E4M3 && operand.data.rows == kRows && operand.data.cols == kInner);
  /* Rows are spread over the ranks and gathered under one scale. The largest value is the last rank's. */
  MPI_Allreduce(&operand.scale_inv, &least, 1, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&operand.scale_inv, &most, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(least == most);
  {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(operand.scale_inv == 1.0F / (448.0F / (float)(ranks + step)));
  }
  OK(amaxscope_values(activation, AMAXSCOPE_ROWWISE, &own_x_view));
  OK(amaxscope_values(weight_codes, AMAXSCOPE_ROWWISE, &own_weight_view));
  matmul(own_x, own_weight, y, kRows, kOutputs, kInner);
  memcpy(plain, y, sizeof y);
  OK(amaxscope_result(layer, AMAXSCOPE_OUTPUT, &y_view, &moment, activation, weight_codes, &x_view,
                      &weight_view));
  CHECK(memcmp(plain, y, sizeof y) == 0); /* only observed */
  OK(amaxscope_multiply(AMAXSCOPE_FPROP, activation, weight_codes, 0.0F, &y_view));
  for (i = 0; i < kRows * kOutputs; ++i) CHECK(fabsf(plain[i] - y[i]) <= 1e-4F * (1.0F + fabsf(plain[i])));
  amaxscope_quantized_free(activation);
  amaxscope_quantized_free(weight_codes);
}

/* A rank that reads another config than the others: all of them are told. */
static void config_of_one_rank_differs(amaxscope_group* world, int ranks) {
  amaxscope_options options = {.size = sizeof options};
  amaxscope_session* session = NULL;
  options.world = world;
  options.config_text = rank_of_world == 0 ? kConfig : "";
  if (ranks == 1) return;
  CHECK(amaxscope_open(&options, &session) != AMAXSCOPE_OK);
  CHECK(session == NULL);
  CHECK(strlen(amaxscope_last_error()) > 20);
}

int main(int argc, char** argv) {
  amaxscope_group *world, *half;
  amaxscope_options options = {.size = sizeof options};
  amaxscope_layer_options layer_options = {.size = sizeof layer_options};
  amaxscope_session* session;
  amaxscope_layer *fc1, *fc2;
  float x[kRows * kInner], weight[kOutputs * kInner];
  int ranks, step, i;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  OK(amaxscope_group_from_mpi(MPI_COMM_WORLD, &world));
  OK(amaxscope_group_split(world, rank_of_world == 0 ? -1 : 0, 0, &half));
  CHECK((half == NULL) == (rank_of_world == 0));
  amaxscope_group_free(half);
  config_of_one_rank_differs(world, ranks);

  options.config_text = kConfig;
  options.world = world;
  options.tp_size = ranks;
  options.deadline_seconds = 30;
  OK(amaxscope_open(&options, &session));
  CHECK(amaxscope_enabled(session) == 1);
  layer_options.name = "decoder.layers.1.mlp.linear_fc1";
  layer_options.number = 1;
  layer_options.parallel = AMAXSCOPE_COLUMN;
  layer_options.sequence_parallel = 1;
  layer_options.recipe = AMAXSCOPE_DELAYED;
  OK(amaxscope_register(session, &layer_options, &fc1));
  layer_options.name = "decoder.layers.1.mlp.linear_fc2";
  layer_options.parallel = AMAXSCOPE_ROW;
  OK(amaxscope_register(session, &layer_options, &fc2));
  OK(amaxscope_freeze(session));
  CHECK(amaxscope_active(fc2) == 0);

  for (step = 0; step < kSteps; ++step) {
    amaxscope_view weight_view = view_of(weight, kOutputs, kInner);
    for (i = 0; i < kRows * kInner; ++i) x[i] = sinf((float)(i + step)) / 2.0F;
    x[3] = -(float)(rank_of_world + 1 + step);
    for (i = 0; i < kOutputs * kInner; ++i) weight[i] = cosf((float)(i + rank_of_world));
    OK(amaxscope_set_weight(fc1, &weight_view));
    OK(amaxscope_weights_are_final(session));
    forward(fc1, x, weight, step);
    OK(amaxscope_scalar(session, "loss", 1.0 / (step + 1)));
    CHECK(amaxscope_iteration(session) == step);
    OK(amaxscope_step(session));
  }
  OK(amaxscope_close(session));
  amaxscope_group_free(world);
  MPI_Finalize();
  if (rank_of_world == 0) puts("ok");
  return 0;
}
