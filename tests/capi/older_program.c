/* What a program is like that was compiled with the first header of this major version: it knows its structs
 * only up to the fields that there were then, and behind them is memory of its own. The declarations are
 * those of then, on purpose not those of amaxscope.h. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct options {
  size_t size;
  const char* config_path;
  const char* config_text;
  const char* log_dir;
  int64_t first_iteration;
  double deadline_seconds;
  int on_failure;
  int amax_scope;
  void* world;
  int tp_size;
  int cp_size;
  int pp_size;
} options;
typedef struct layer_options {
  size_t size;
  const char* name;
  int number;
  int is_expert;
  int expert;
  int parallel;
  int sequence_parallel;
  int recipe;
  int dtype;
  void* tp_group;
} layer_options;
typedef struct view {
  void* data;
  int dtype;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  void* device;
  void* stream;
} view;
typedef struct operand {
  size_t size;
  view data;
  int transposed;
  float scale_inv;
  view block_scales;
  int block_rows;
  int block_cols;
  float tensor_factor;
  int rotated;
  const float* device_scale_inv;
  const float* device_tensor_amax;
} operand;

int amaxscope_open(const options* given, void** session);
int amaxscope_register(void* session, const layer_options* given, void** layer);
int amaxscope_quantize(void* layer, int tensor, const view* x, unsigned directions, const void* moment,
                       void** quantized);
int amaxscope_get_operand(const void* quantized, unsigned direction, operand* result);
void amaxscope_quantized_free(void* quantized);
int amaxscope_step(void* session);
int amaxscope_close(void* session);
const char* amaxscope_last_error(void);

#define OK(call)                                                                     \
  do {                                                                               \
    if ((call) != 0) {                                                               \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, amaxscope_last_error()); \
      return 1;                                                                      \
    }                                                                                \
  } while (0)
#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
      return 1;                                                   \
    }                                                             \
  } while (0)

int main(void) {
  /* What lies behind the struct would make every newer field something that is refused or crashes. */
  struct {
    options known;
    unsigned char behind[256];
  } given;
  struct {
    operand known;
    unsigned char behind[256];
  } result;
  layer_options of_layer;
  float values[2 * 4] = {1.0F, 2.0F, -16.0F, 4.0F, 5.0F, 6.0F, 7.0F, 8.0F};
  view x;
  void *session = NULL, *layer = NULL, *quantized = NULL;
  size_t i;

  memset(&given, 0xA5, sizeof given);
  memset(&given.known, 0, sizeof given.known);
  given.known.size = sizeof given.known;
  given.known.config_text =
      "all:\n  enabled: True\n  layers:\n    layer_types: [all]\n  transformer_engine:\n"
      "    LogTensorStats:\n      enabled: True\n      tensors: [activation]\n      stats: [max]\n";
  OK(amaxscope_open(&given.known, &session));

  memset(&of_layer, 0, sizeof of_layer);
  of_layer.size = sizeof of_layer;
  of_layer.name = "fc1";
  of_layer.recipe = 2; /* current scaling */
  OK(amaxscope_register(session, &of_layer, &layer));

  memset(&x, 0, sizeof x);
  x.data = values;
  x.dtype = 1; /* f32 */
  x.rows = 2;
  x.cols = 4;
  OK(amaxscope_quantize(layer, 0, &x, 1, NULL, &quantized));
  memset(&result, 0xA5, sizeof result);
  result.known.size = sizeof result.known;
  OK(amaxscope_get_operand(quantized, 1, &result.known));
  CHECK(result.known.size == sizeof result.known);
  CHECK(result.known.scale_inv == 1.0F / 28.0F); /* 448 / 16 */
  CHECK(result.known.data.rows == 2 && result.known.data.cols == 4);
  for (i = 0; i < sizeof result.behind; ++i) CHECK(result.behind[i] == 0xA5);
  amaxscope_quantized_free(quantized);
  OK(amaxscope_step(session));
  OK(amaxscope_close(session));

  /* Of no version. */
  given.known.size = sizeof given.known - 8;
  CHECK(amaxscope_open(&given.known, &session) == 1);
  CHECK(strstr(amaxscope_last_error(), "options.size is 72") != NULL);
  puts("ok");
  return 0;
}
