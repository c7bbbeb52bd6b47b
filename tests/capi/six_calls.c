/* The session that docs/c_api.md begins with, as it stands there. usage: mpirun -n 2 six_calls, in a folder
 * with debug.yaml */
#include <mpi.h>
#include <stdio.h>

#include "amaxscope_mpi.h"

/* The page leaves it to the reader to look at each status. */
static void check(amaxscope_status status, const char* call) {
  if (status == AMAXSCOPE_OK) return;
  fprintf(stderr, "%s: %s\n", call, amaxscope_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define amaxscope_group_from_mpi(comm, group) check(amaxscope_group_from_mpi(comm, group), "group_from_mpi")
#define amaxscope_open(options, session) check(amaxscope_open(options, session), "open")
#define amaxscope_register(session, options, layer) \
  check(amaxscope_register(session, options, layer), "register")
#define amaxscope_step(session) check(amaxscope_step(session), "step")
#define amaxscope_close(session) check(amaxscope_close(session), "close")

enum { kRows = 4, kInputs = 16, kOutputs = 16 };

static amaxscope_view matrix(float* values, int rows, int cols) {
  amaxscope_view view = {.data = values, .dtype = AMAXSCOPE_F32, .rows = rows, .cols = cols};
  int i;
  for (i = 0; i < rows * cols; ++i) values[i] = (float)(i % 7) - 2.0F;
  return view;
}

static void both_passes(amaxscope_layer* layer) {
  float x[kRows * kInputs], w[kOutputs * kInputs], y[kRows * kOutputs], dx[kRows * kInputs],
      dw[kOutputs * kInputs];
  amaxscope_view vx = matrix(x, kRows, kInputs), vw = matrix(w, kOutputs, kInputs),
                 vy = matrix(y, kRows, kOutputs);
  amaxscope_view vdx = matrix(dx, kRows, kInputs), vdw = matrix(dw, kOutputs, kInputs);
  amaxscope_saved* saved;
  check(amaxscope_forward(layer, &vx, &vw, &vy, NULL, &saved), "forward");
  check(amaxscope_backward(layer, &vy, &vdx, &vdw, 0.0F, NULL, &saved), "backward");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);

  amaxscope_group* world;
  amaxscope_group_from_mpi(MPI_COMM_WORLD, &world);

  amaxscope_options options = {
      .size = sizeof options, .config_path = "debug.yaml", .log_dir = "logs", .world = world, .tp_size = 2};
  amaxscope_session* session;
  amaxscope_open(&options, &session);

  amaxscope_layer_options fc1 = {.size = sizeof fc1,
                                 .name = "decoder.layers.1.mlp.linear_fc1",
                                 .number = 1,
                                 .parallel = AMAXSCOPE_COLUMN,
                                 .recipe = AMAXSCOPE_CURRENT};
  amaxscope_layer* layer;
  amaxscope_register(session, &fc1, &layer);

  /* forward and backward of each layer: see below */
  both_passes(layer);

  amaxscope_step(session);  /* after the optimizer */
  amaxscope_close(session); /* then amaxscope_group_free, then MPI_Finalize */
  amaxscope_group_free(world);
  MPI_Finalize();
  return 0;
}
